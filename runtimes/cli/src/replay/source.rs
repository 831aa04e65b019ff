//! Where a trace comes from: a file of either encoding. Both hold the same schema.

use std::io::{self, Write};
use std::path::Path;

use cmap_core::time::Instant;
use cmap_core::topology::Topology;
use cmap_core::trace::{BEHAVIOUR, Header, Item, Segment, Trace, TraceError, TraceErrorKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why there is no trace.
#[derive(Debug, Error)]
pub(super) enum SourceError {
    #[error("the file cannot be read: {0}")]
    File(io::Error),
    #[error("{0}")]
    Trace(TraceError),
    #[error("line {line} is not of a trace: {error}; give what `replay --json` has printed")]
    Line { line: usize, error: serde_json::Error },
    #[error(
        "line {line} does not follow the one before it: a header comes first, then texts, then segments with their items, then the end"
    )]
    Order { line: usize },
    #[error("its end is missing; copy the whole file")]
    NoEnd,
}

/// One line. The header comes first, the end last.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Header(Header),
    Texts(Vec<(u32, String)>),
    Segment { first: u64, begun_at: Instant, snapshot: Box<Topology<()>> },
    Item(Box<Item>),
    End { calls: u64 },
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Trace, SourceError> {
    let bytes = std::fs::read(path).map_err(SourceError::File)?;
    if bytes.first() == Some(&b'{') { read_lines(&bytes) } else { Trace::read(&bytes).map_err(SourceError::Trace) }
}

fn read_lines(bytes: &[u8]) -> Result<Trace, SourceError> {
    let mut header = None;
    let mut texts = Vec::new();
    let mut segments: Vec<Segment> = Vec::new();
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let parsed = serde_json::from_slice(line).map_err(|error| SourceError::Line { line: number, error })?;
        match (parsed, segments.last_mut()) {
            (Line::Header(Header { behaviour, .. }), None) if behaviour != BEHAVIOUR => {
                let kind = TraceErrorKind::OtherBehaviour(behaviour);
                return Err(SourceError::Trace(TraceError { offset: 0, kind }));
            }
            (Line::Header(given), None) if header.is_none() => header = Some(given),
            (Line::Texts(given), None) => texts = given,
            (Line::Segment { first, begun_at, snapshot }, _) => segments.push(Segment::new(first, begun_at, *snapshot)),
            (Line::Item(item), Some(segment)) => segment.items.push(*item),
            (Line::End { calls }, Some(_)) => {
                let trace = Trace::new(header.unwrap_or_default(), texts, segments);
                return if trace.calls() == calls { Ok(trace) } else { Err(SourceError::NoEnd) };
            }
            _ => return Err(SourceError::Order { line: number }),
        }
    }
    Err(SourceError::NoEnd)
}

/// Prints a trace as lines.
pub(super) fn write_lines(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |line: &Line| {
        serde_json::to_writer(&mut *out, line)?;
        writeln!(out)
    };
    line(&Line::Header(trace.header.clone()))?;
    line(&Line::Texts(trace.texts.clone()))?;
    for segment in &trace.segments {
        let (first, begun_at) = (segment.first, segment.begun_at);
        line(&Line::Segment { first, begun_at, snapshot: Box::new(segment.snapshot.clone()) })?;
        for item in &segment.items {
            line(&Line::Item(Box::new(item.clone())))?;
        }
    }
    line(&Line::End { calls: trace.calls() })
}
