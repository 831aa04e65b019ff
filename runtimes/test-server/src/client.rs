//! One connection as the server drives it: the bytes that came, and the state of its command.

use std::fmt;

use cmap_core::time::Instant;
use cmap_core::wire::{FrameReader, TopologyVersion};

use super::ClientId;
use super::fail_command::Effect;
use super::identity::Identity;
use super::service::Reply;
use super::write_concern::Goal;

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) line: Line,
    pub(super) frames: FrameReader,
    /// Bytes that came while a reply was delayed or could not be sent.
    pub(super) backlog: Backlog,
    /// The driver asked to wait until earlier replies are sent.
    pub(super) is_held: bool,
}

/// The parts of a connection that a request uses.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: ClientId,
    pub(super) identity: Identity,
    /// A command that is being carried out for some time.
    pub(super) waiting: Option<Waiting>,
    /// Its commands took so long that others have their turn until then.
    pub(super) rests_until: Option<Instant>,
    /// The number of bytes of replies that the driver has not taken yet.
    pub(super) queued: usize,
    /// The topologyVersion in the last reply to a hello.
    pub(super) told: Option<TopologyVersion>,
}

/// A command that is not carried out at once.
pub(super) struct Waiting {
    /// Until when at most, if there is a limit.
    pub(super) until: Option<Instant>,
    /// The request, whole.
    pub(super) frame: Vec<u8>,
    /// The last reply to a hello that is answered again and again (MSG-8).
    pub(super) last_reply: Option<i32>,
    pub(super) stage: Stage,
}

/// The progress of a command.
#[derive(Debug)]
pub(super) enum Stage {
    /// New.
    Fresh,
    /// The fail point has delayed it long enough; its other effects follow.
    Blocked(Effect),
    /// A hello has waited for news long enough.
    Awaited(Effect),
    /// A getMore waits for documents until then.
    AwaitedData { effect: Effect, until: Instant },
    /// A read waits until this member, or a majority, has got further.
    Behind { effect: Effect, until: Option<Instant> },
    /// The command was carried out, and has slept long enough.
    Slept { done: Box<Done>, until: Instant },
    /// The command was carried out, and waits for other members.
    Replicating(Box<Done>),
}

/// A command that was carried out, and whose reply is not sent yet.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) reply: Reply,
    /// What it waits for, if it has written.
    pub(super) goal: Option<Goal>,
}

impl Stage {
    /// Whether a change of the replica set may end the wait.
    pub(super) fn depends_on_set(&self) -> bool {
        match self {
            Self::Behind { .. } | Self::Replicating(_) => true,
            Self::Slept { done, .. } => done.goal.is_some(),
            Self::Fresh | Self::Blocked(_) | Self::Awaited(_) | Self::AwaitedData { .. } => false,
        }
    }
}

/// Bytes to be read later.
#[derive(Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    /// How many of them were read.
    done: usize,
}

impl Client {
    pub(super) fn new(id: ClientId, identity: Identity) -> Self {
        Self {
            line: Line { id, identity, waiting: None, rests_until: None, queued: 0, told: None },
            frames: FrameReader::new(),
            backlog: Backlog::default(),
            is_held: false,
        }
    }

    /// Whether the next request may be carried out: at most this many bytes of replies are queued.
    pub(super) fn is_free(&self, max_queued: usize) -> bool {
        self.line.waiting.is_none() && self.line.rests_until.is_none() && !self.is_congested(max_queued)
    }

    /// Whether earlier replies have to leave first.
    pub(super) fn is_congested(&self, max_queued: usize) -> bool {
        self.is_held || self.line.queued >= max_queued
    }
}

// Requests may hold a password, so only their length is shown.
impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { until, frame, last_reply, stage } = self;
        let mut shown = f.debug_struct("Waiting");
        shown.field("until", until).field("frame", &frame.len()).field("last_reply", last_reply);
        shown.field("stage", stage).finish()
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlog").field("len", &self.len()).finish()
    }
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.done
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    /// All but the last `left` bytes were read. Moves bytes only once half of them are done with.
    pub(super) fn keep_last(&mut self, left: usize) {
        self.done = self.bytes.len() - left.min(self.bytes.len());
        if self.done == self.bytes.len() {
            *self = Self::default();
        } else if self.done > self.bytes.len() / 2 {
            self.bytes.drain(..self.done);
            self.done = 0;
        }
    }
}
