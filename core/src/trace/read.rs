//! Reads a file, and trusts nothing in it: every length is checked before memory is taken, every section before it is decoded.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::de::DeserializeOwned;

use super::error::{TraceError, TraceErrorKind};
use super::file::{self, HEAD, NAME, TAIL, Tag};
use super::history::History;
use super::item::{Header, Item, Segment, Trace};
use super::{BEHAVIOUR, SCHEMA};
use crate::time::Instant;

/// Longest line that names a trace.
const LONGEST_LINE: usize = 64;

impl Trace {
    /// Reads a whole file.
    ///
    /// # Errors
    /// It is not a trace, or one of another version, or damaged, or not whole.
    pub fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        let mut sections = Sections::new(bytes)?;
        let header: Header = sections.expect(Tag::Header)?;
        let texts: Vec<(u32, String)> = sections.expect(Tag::Texts)?;
        let mut segments: Vec<Segment> = Vec::new();
        let mut history: Option<History> = None;
        let calls: u64 = loop {
            let (tag, payload) = sections.next()?;
            match (tag, segments.last_mut()) {
                (Tag::Segment, _) if history.is_none() => segments.push(sections.segment(payload)?),
                (Tag::Items, Some(segment)) => segment.items.append(&mut sections.decode::<Vec<Item>>(payload)?),
                (Tag::History, None) if history.is_none() => history = Some(sections.decode(payload)?),
                (Tag::End, last) if last.is_some() || history.is_some() => break sections.decode(payload)?,
                _ => return Err(sections.error(TraceErrorKind::OutOfOrder)),
            }
        };
        let trace = Self { header, texts, segments, history };
        if trace.calls() != calls {
            return Err(sections.error(TraceErrorKind::OutOfOrder));
        }
        sections.end()?;
        Ok(trace)
    }

    /// A trace of these parts, of another encoding.
    pub fn new(header: Header, mut texts: Vec<(u32, String)>, segments: Vec<Segment>) -> Self {
        texts.sort_unstable();
        Self { header, texts, segments, history: None }
    }

    /// How many calls it has.
    pub fn calls(&self) -> u64 {
        let items = self.segments.iter().flat_map(|segment| &segment.items);
        items.filter(|item| matches!(item, Item::Call(_))).map(|_| 1).sum()
    }

    /// The text of a [holder](super::Note::Holder).
    pub fn text(&self, number: u32) -> Option<&str> {
        let at = self.texts.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.texts.get(at).map(|(_, text)| text.as_str())
    }
}

struct Sections<'a> {
    bytes: &'a [u8],
    /// Where the present section begins, and the next one.
    at: usize,
    next: usize,
    checksum: u32,
}

impl<'a> Sections<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, TraceError> {
        let error = |kind| TraceError { offset: 0, kind };
        let length = bytes.iter().take(LONGEST_LINE).position(|&byte| byte == b'\n');
        let length = length.ok_or(error(TraceErrorKind::NoTrace))? + 1;
        let line = bytes.get(..length).unwrap_or_default();
        let [schema, behaviour] = versions(line).ok_or(error(TraceErrorKind::NoTrace))?;
        if schema != SCHEMA {
            return Err(error(TraceErrorKind::OtherSchema(schema)));
        }
        if behaviour != BEHAVIOUR {
            return Err(error(TraceErrorKind::OtherBehaviour(behaviour)));
        }
        Ok(Self { bytes, at: 0, next: length, checksum: file::checksum(0, line) })
    }

    fn error(&self, kind: TraceErrorKind) -> TraceError {
        TraceError { offset: self.at, kind }
    }

    fn next(&mut self) -> Result<(Tag, &'a [u8]), TraceError> {
        self.at = self.next;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let truncated = self.error(TraceErrorKind::Truncated);
        let (&[tag, ref length @ ..], after_head) = rest.split_first_chunk::<HEAD>().ok_or(truncated.clone())?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| truncated.clone())?;
        let (payload, tail) = after_head.split_at_checked(length).ok_or(truncated.clone())?;
        let (found, _) = tail.split_first_chunk::<TAIL>().ok_or(truncated)?;
        let section = rest.get(..HEAD + length).unwrap_or_default();
        self.checksum = file::checksum(self.checksum, section);
        if u32::from_le_bytes(*found) != self.checksum {
            return Err(self.error(TraceErrorKind::Damaged));
        }
        self.next = self.at + HEAD + length + TAIL;
        let tag = Tag::of(tag).ok_or(self.error(TraceErrorKind::OutOfOrder))?;
        Ok((tag, payload))
    }

    fn expect<T: DeserializeOwned>(&mut self, expected: Tag) -> Result<T, TraceError> {
        let (tag, payload) = self.next()?;
        if tag != expected {
            return Err(self.error(TraceErrorKind::OutOfOrder));
        }
        self.decode(payload)
    }

    fn segment(&self, payload: &[u8]) -> Result<Segment, TraceError> {
        let (first, begun_at, snapshot): (u64, Instant, Vec<u8>) = self.decode(payload)?;
        Ok(Segment { first, begun_at, snapshot: self.decode(&snapshot)?, items: Vec::new() })
    }

    fn decode<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, TraceError> {
        let unreadable = |problem: String| self.error(TraceErrorKind::Unreadable(problem));
        let (value, rest) = postcard::take_from_bytes(payload).map_err(|error| unreadable(error.to_string()))?;
        if rest.is_empty() { Ok(value) } else { Err(unreadable("bytes are left over".to_string())) }
    }

    fn end(mut self) -> Result<(), TraceError> {
        self.at = self.next;
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error(TraceErrorKind::Excess)) }
    }
}

/// The schema and the behaviour that the first line names.
fn versions(line: &[u8]) -> Option<[u32; 2]> {
    let mut words = core::str::from_utf8(line).ok()?.strip_suffix('\n')?.split(' ');
    if words.next() != Some(NAME) {
        return None;
    }
    let schema = words.next()?.parse().ok()?;
    if words.next() != Some("behaviour") {
        return None;
    }
    let behaviour = words.next()?.parse().ok()?;
    words.next().is_none().then_some([schema, behaviour])
}
