//! A command's document as it goes on to a server.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, cstr};

use super::request::Request;

impl Request {
    /// The request without the number by which its driver could repeat it, for a server that knows no such numbers.
    pub fn without_number(&self) -> Self {
        let mut body = RawDocumentBuf::new();
        let fields = self.fields().filter(|(key, _)| *key != cstr!("txnNumber"));
        fields.for_each(|(key, value)| body.append(key, value));
        let mut request = self.clone();
        (request.body, request.number) = (body, None);
        request
    }

    /// The document as it goes on: without `$db`, which is sent anew, and with what is left of the time in place of
    /// `maxTimeMS`.
    pub fn compose(&self, time_left: Option<Duration>) -> RawDocumentBuf {
        let mut body = RawDocumentBuf::new();
        for (key, value) in self.fields() {
            match (key.as_str(), time_left) {
                ("$db", _) => {}
                ("maxTimeMS", Some(left)) => {
                    // At least one: zero would be for ever.
                    let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX).max(1);
                    body.append(key, left);
                }
                _ => body.append(key, value),
            }
        }
        body
    }

    /// Adds who asks to a document that goes on, unless the stable API forbids that.
    pub fn introduce(&self, body: &mut RawDocumentBuf, introduction: &RawDocument) {
        if !self.api_strict {
            body.append(cstr!("$client"), introduction);
        }
    }
}
