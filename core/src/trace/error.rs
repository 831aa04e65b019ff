//! Why a trace cannot be read.

use alloc::string::String;

use thiserror::Error;

use super::{BEHAVIOUR, SCHEMA};

/// A file is no trace that can be read: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the trace cannot be read: at byte {offset}, {kind}")]
pub struct TraceError {
    /// Where it was found out.
    pub offset: usize,
    /// Why.
    pub kind: TraceErrorKind,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// Another program's.
    #[error("it does not begin as traces do; give a file that a recorder has written")]
    NoTrace,
    /// Another schema.
    #[error("it has schema {0}, and this program reads {SCHEMA}; read it with the version that wrote it")]
    OtherSchema(u32),
    /// Another behaviour: its calls would have other outputs.
    #[error(
        "it was recorded with behaviour {0}, and this program has {BEHAVIOUR}; replay it with the version that wrote it"
    )]
    OtherBehaviour(u32),
    /// It ends too early.
    #[error("it ends within a section; its end is missing, copy the whole file")]
    Truncated,
    /// A section's checksum differs.
    #[error("a section does not match its checksum; the file is damaged, take another copy")]
    Damaged,
    /// A section cannot be decoded.
    #[error("a section has no meaning to this program ({0}); it was written by another version, read it with that one")]
    Unreadable(String),
    /// Sections that may not follow each other.
    #[error("a section is not the one that has to follow; the file is damaged, take another copy")]
    OutOfOrder,
    /// Bytes after its end.
    #[error("more follows after its end; the file is damaged, take another copy")]
    Excess,
}
