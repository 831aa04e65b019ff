//! A command's document as it goes on to a server.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, cstr};
use cmap_core::wire::Limits;

use super::request::Request;

/// For what is added to a command besides: its header, and fields such as `$db` and `$clusterTime`.
const RESERVE: usize = 1024;

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

    /// Adds who asks to a document that goes on, unless the stable API forbids that, or the message would be too long.
    pub fn introduce(&self, body: &mut RawDocumentBuf, introduction: &RawDocument) {
        let length = introduction.as_bytes().len() + RESERVE;
        let has_room = |of: usize, most: u32| of + length <= most as usize;
        let message = self.frame.as_ref().map_or(0, |frame| frame.len()).max(body.as_bytes().len());
        if !self.api_strict
            && has_room(message, Limits::DEFAULT.max_message_size)
            && has_room(body.as_bytes().len(), Limits::DEFAULT.max_document_size)
        {
            body.append(cstr!("$client"), introduction);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use cmap_core::time::Instant;
    use cmap_core::wire::{Flags, MessageIds, MessageWriter};

    use super::*;

    /// Whether a command of this length says who asks.
    fn is_introduced(length: usize) -> bool {
        let command = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(length) }], "$db": "test" };
        let mut frame = Vec::new();
        MessageWriter::begin(&mut frame, MessageIds::request(1), Flags::NONE, &command, &[], &Limits::DEFAULT)
            .unwrap()
            .finish();
        let request = Request::read(&frame, &Limits::DEFAULT, Instant::from_millis(0)).unwrap();
        let mut body = request.compose(None);
        request.introduce(&mut body, &rawdoc! { "driver": "d".repeat(400) });
        body.get("$client").unwrap().is_some()
    }

    #[test]
    fn a_command_that_is_almost_too_long_does_not_become_so_x_194() {
        assert!(is_introduced(1_000));
        assert!(is_introduced(16_000_000));
        assert!(!is_introduced(16 * 1024 * 1024 - 200));
    }
}
