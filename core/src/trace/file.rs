//! How a file holds a trace: a line that names it, then sections, each with its length and its checksum.
//!
//! ```text
//! cmap-trace 3 behaviour 5
//! tag (1 byte) | length (4 bytes, little-endian) | payload | CRC-32C (4 bytes)
//! ```
//!
//! | tag | payload |
//! |---|---|
//! | `H` | the [`Header`] |
//! | `T` | the texts |
//! | `S` | a segment: the calls before it, its time, its snapshot |
//! | `I` | items of the segment, up to 64 |
//! | `W` | a [`History`](super::History), in a file without segments |
//! | `E` | the end: how many calls the trace has |
//!
//! A checksum covers all of its section and the one before it, the first of them the line, too: so that no section can be lost
//! or moved unnoticed. Payloads are serialised by `postcard`.

use alloc::vec::Vec;

use crc::{CRC_32_ISCSI, Crc};
use serde::Serialize;

use super::item::{Header, Item};
use super::tape::{Contents, ContentsKept};
use super::{BEHAVIOUR, SCHEMA, words};

/// The first words of the line that names a trace.
pub(super) const NAME: &str = "cmap-trace";

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Header,
    Texts,
    Segment,
    Items,
    History,
    End,
}

/// The bytes of a section besides its payload: tag and length before it, checksum after it.
pub(super) const HEAD: usize = 5;
/// See [`HEAD`].
pub(super) const TAIL: usize = 4;

/// Most items of a section.
const ITEMS: usize = 64;

static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

impl Tag {
    /// The byte in the file.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Header => b'H',
            Self::Texts => b'T',
            Self::Segment => b'S',
            Self::Items => b'I',
            Self::History => b'W',
            Self::End => b'E',
        }
    }

    /// The tag of a byte.
    pub(super) fn of(byte: u8) -> Option<Self> {
        let all = [Self::Header, Self::Texts, Self::Segment, Self::Items, Self::History, Self::End];
        all.into_iter().find(|tag| tag.byte() == byte)
    }
}

/// The checksum of a section, or of the line, after those before it.
pub(super) fn checksum(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = CHECKSUM.digest();
    digest.update(&before.to_le_bytes());
    digest.update(bytes);
    digest.finalize()
}

impl Contents {
    /// The file. Its behaviour is that of this version, whatever `header` says.
    pub fn encode(&self, header: &Header) -> Vec<u8> {
        let segments = match &self.kept {
            ContentsKept::Segments(segments) => segments,
            ContentsKept::History(kept) => return kept.history().encode(header, &self.texts),
        };
        let mut writer = Writer::new();
        writer.section(Tag::Header, &Header { behaviour: BEHAVIOUR, ..header.clone() });
        writer.section(Tag::Texts, &self.texts);
        let mut calls = 0_u64;
        for segment in segments {
            writer.section(Tag::Segment, &(segment.first, segment.begun_at, &segment.snapshot));
            let mut items = words::items(&segment.words).peekable();
            while items.peek().is_some() {
                let some: Vec<Item> = items.by_ref().take(ITEMS).collect();
                calls += some.iter().filter(|item| matches!(item, Item::Call(_))).map(|_| 1).sum::<u64>();
                writer.section(Tag::Items, &some);
            }
        }
        writer.section(Tag::End, &calls);
        writer.bytes
    }
}

/// Writes sections.
pub(super) struct Writer {
    /// The file until here.
    pub(super) bytes: Vec<u8>,
    checksum: u32,
}

impl Writer {
    /// A file that begins.
    pub(super) fn new() -> Self {
        let bytes = alloc::format!("{NAME} {SCHEMA} behaviour {BEHAVIOUR}\n").into_bytes();
        Self { checksum: checksum(0, &bytes), bytes }
    }

    /// Adds a section.
    pub(super) fn section(&mut self, tag: Tag, payload: &impl Serialize) {
        // Neither refused, since no type here has a length that is not known beforehand, nor as long as 4 GiB.
        let payload = postcard::to_allocvec(payload).unwrap_or_default();
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let start = self.bytes.len();
        self.bytes.push(tag.byte());
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(payload);
        self.checksum = checksum(self.checksum, self.bytes.get(start..).unwrap_or_default());
        self.bytes.extend(self.checksum.to_le_bytes());
    }
}
