//! The agent's side of a socket: it greets, waits to be started, and then passes bytes on.
//!
//! | stage | ends by |
//! |---|---|
//! | greeting | PARK: parked. REFUSE, or ten seconds: ended |
//! | parked | START: starting. GOING_AWAY of either side, or silence: ended |
//! | starting | the member is connected: passing. It cannot be: FAILED, ended |
//! | passing | the socket is its driver's |
//! | ended | its driver closes the socket, once everything is sent |

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::line::Line;
use super::message::{BootId, Hello, Message, StartFailure, StartPhase};
use super::proof::{ChannelBinding, Token};
use super::{Ending, short};
use crate::address::ServerAddress;
use crate::time::Instant;

/// For whom an agent speaks, and by which right.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// The member, by the name that its replica set knows it by.
    pub member: ServerAddress,
    /// This run of the agent.
    pub boot: BootId,
    /// Without one, the certificate of the agent has to do.
    pub token: Option<Token>,
}

/// One socket, at the agent.
#[derive(Clone, Debug)]
pub struct AgentSide {
    line: Line,
    stage: Stage,
    outputs: VecDeque<AgentOutput>,
}

/// What an agent has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentOutput {
    /// The application has parked the socket, and wants this number of them from each agent at all times.
    Parked {
        /// How many sockets are to be parked.
        wanted: u16,
    },
    /// The application wants so many more sockets now.
    Demanded(u16),
    /// Connect to the member, within a time limit of your own; then call [`AgentSide::handle_started`] or
    /// [`AgentSide::handle_start_failed`]. Another socket takes the place of this one.
    Start,
    /// The member is connected: once everything is sent, pass on what comes, in both directions. First these bytes, to the member.
    Pass(Vec<u8>),
    /// Close the socket, once everything is sent.
    Close(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Parked,
    Starting,
    Passing,
    Ended,
}

impl AgentSide {
    /// A socket whose TLS handshake is over. It greets.
    pub fn new(greeting: &Greeting, binding: &ChannelBinding, now: Instant) -> Self {
        let Greeting { member, boot, token } = greeting;
        let proof = token.as_ref().map(|token| token.prove(binding, member, *boot));
        let mut line = Line::new(now);
        line.say(&Message::Hello(Hello { member: member.clone(), boot: *boot, proof }));
        Self { line, stage: Stage::Greeting, outputs: VecDeque::new() }
    }

    /// Bytes came from the application. Not to be called once they are passed on.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if matches!(self.stage, Stage::Passing | Stage::Ended) {
            return;
        }
        self.line.advance(now);
        self.line.hear(bytes);
        while !matches!(self.stage, Stage::Passing | Stage::Ended) {
            match self.line.next_message() {
                Ok(Some(message)) => self.handle(message),
                Ok(None) => return,
                Err(error) => self.end(error.into()),
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match (self.stage, message) {
            (Stage::Greeting, Message::Park { keep_alive, wanted }) => {
                self.stage = Stage::Parked;
                self.line.park(keep_alive);
                self.outputs.push_back(AgentOutput::Parked { wanted });
            }
            (Stage::Greeting, Message::Refuse { reason, retry_after }) => {
                self.end(Ending::Refused { reason, retry_after });
            }
            (Stage::Parked, Message::Ping) => {}
            (Stage::Parked, Message::Demand(number)) => self.outputs.push_back(AgentOutput::Demanded(number)),
            (Stage::Parked, Message::Start) => {
                self.stage = Stage::Starting;
                self.line.only_speak();
                self.outputs.push_back(AgentOutput::Start);
            }
            (Stage::Parked, Message::GoingAway) => self.end(Ending::PeerLeaves),
            (_, message) => self.end(message.unexpected().into()),
        }
    }

    /// The member is connected, as [`AgentOutput::Start`] asked. Does nothing at any other time.
    pub fn handle_started(&mut self, now: Instant) {
        if self.stage != Stage::Starting {
            return;
        }
        self.line.advance(now);
        self.line.say(&Message::Started);
        self.stage = Stage::Passing;
        let rest = self.line.end();
        self.outputs.push_back(AgentOutput::Pass(rest));
    }

    /// The member cannot be connected. Does nothing at any other time.
    pub fn handle_start_failed(&mut self, now: Instant, phase: StartPhase, error: &str) {
        if self.stage != Stage::Starting {
            return;
        }
        self.line.advance(now);
        let failure = StartFailure { phase, error: short(error) };
        self.line.say(&Message::Failed(failure.clone()));
        self.end(Ending::StartFailed(failure));
    }

    /// The agent ends, or retires this socket: a message tells the application. Does nothing once bytes are passed on.
    pub fn leave(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Passing | Stage::Ended) {
            return;
        }
        self.line.advance(now);
        self.line.say(&Message::GoingAway);
        self.end(Ending::Left);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.line.advance(now);
        if let Err(ending) = self.line.handle_timeout() {
            self.end(ending);
        }
    }

    fn end(&mut self, ending: Ending) {
        self.stage = Stage::Ended;
        self.line.end();
        self.outputs.push_back(AgentOutput::Close(ending));
    }

    /// What has to be done next.
    pub fn poll_output(&mut self) -> Option<AgentOutput> {
        self.outputs.pop_front()
    }

    /// Bytes for the application.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.line.poll_transmit()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.line.poll_timeout()
    }
}
