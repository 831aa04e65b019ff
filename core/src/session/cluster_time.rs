//! The cluster's time, which servers and clients pass on to each other (SES-13).

use alloc::borrow::ToOwned;

use bson::{RawDocument, RawDocumentBuf, Timestamp};

use crate::wire::document::elements;

/// The longest `$clusterTime` that is kept: a time and a signature take about 150 bytes.
const MAX_LENGTH: usize = 4096;

/// The greatest `$clusterTime` that was seen, with the signature of the server that named it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterTime {
    time: Timestamp,
    document: RawDocumentBuf,
}

impl ClusterTime {
    /// Reads the document `$clusterTime`. `None` if it has no time.
    pub fn read(document: &RawDocument) -> Option<Self> {
        let time = document.get_timestamp("clusterTime").ok()?;
        (document.as_bytes().len() <= MAX_LENGTH).then(|| Self { time, document: document.to_owned() })
    }

    /// `$clusterTime` of a reply.
    pub fn of_reply(reply: &RawDocument) -> Option<&RawDocument> {
        elements(reply).map_while(Result::ok).find(|element| element.name == b"$clusterTime")?.document()
    }

    /// The document to send.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// Puts `seen` in place of what is known, if it is greater. Only the time decides.
    pub fn advance(known: &mut Option<Self>, seen: &RawDocument) {
        if let Some(greater) = Self::greater_than(known.as_ref(), seen) {
            *known = Some(greater);
        }
    }

    /// `seen`, if it is greater than what is known. Only the time decides.
    pub fn greater_than(known: Option<&Self>, seen: &RawDocument) -> Option<Self> {
        let Some(known) = known else { return Self::read(seen) };
        // Most replies of a busy second name the same time.
        if known.document.as_bytes() == seen.as_bytes() {
            return None;
        }
        let time = seen.get_timestamp("clusterTime").ok()?;
        if (time.time, time.increment) > known.order() { Self::read(seen) } else { None }
    }

    /// The greater of two.
    pub fn greater<'t>(one: Option<&'t Self>, other: Option<&'t Self>) -> Option<&'t Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.order() > one.order() => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }

    fn order(&self) -> (u32, u32) {
        (self.time.time, self.time.increment)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn at(time: u32, increment: u32) -> RawDocumentBuf {
        rawdoc! { "clusterTime": Timestamp { time, increment }, "signature": { "keyId": 7_i64 } }
    }

    #[test]
    fn the_greatest_time_is_kept_with_its_signature_ses_13() {
        let mut known = None;

        for (seen, expected) in
            [(at(5, 2), at(5, 2)), (at(5, 1), at(5, 2)), (at(5, 10), at(5, 10)), (at(4, 99), at(5, 10))]
        {
            ClusterTime::advance(&mut known, &seen);
            assert_eq!(known.as_ref().map(ClusterTime::document), Some(&*expected));
        }
    }

    #[test]
    fn what_is_no_time_is_ignored() {
        let mut known = None;

        ClusterTime::advance(&mut known, &rawdoc! { "clusterTime": 5_i64 });
        let mut huge = at(1, 1);
        huge.append(bson::cstr!("more"), "x".repeat(MAX_LENGTH).as_str());
        ClusterTime::advance(&mut known, &huge);

        assert_eq!(known, None);
    }
}
