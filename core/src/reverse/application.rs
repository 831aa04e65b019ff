//! The application's side of a socket: it judges the greeting, parks the socket, and starts it when a connection is wanted.
//!
//! | stage | ends by |
//! |---|---|
//! | waiting for HELLO | HELLO: judging. Ten seconds: ended |
//! | judging | [`park`](ApplicationSide::park): parked. [`refuse`](ApplicationSide::refuse): ended |
//! | parked | [`start`](ApplicationSide::start): starting. GOING_AWAY of either side, or silence: ended |
//! | starting | STARTED: passing. FAILED, GOING_AWAY, or silence: ended |
//! | passing | the socket is the connection's |
//! | ended | its driver closes the socket, once everything is sent |

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::Ending;
use super::line::Line;
use super::message::{Hello, Message, ProtocolError, Refusal};
use crate::time::Instant;

/// How long an agent that cannot be understood is asked to stay away.
const RETRY_AFTER_CONFUSION: Duration = Duration::from_secs(60);

/// One socket, at the application.
#[derive(Clone, Debug)]
pub struct ApplicationSide {
    line: Line,
    stage: Stage,
    outputs: VecDeque<ApplicationOutput>,
}

/// What an application has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationOutput {
    /// An agent greets: check its proof, and [`park`](ApplicationSide::park) the socket or [`refuse`](ApplicationSide::refuse) it.
    Greeted(Hello),
    /// The member is connected: the socket is a connection to it. These bytes have come from it already.
    Started(Vec<u8>),
    /// Close the socket, once everything is sent.
    Close(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Judging,
    Parked,
    Starting,
    Passing,
    Ended,
}

impl ApplicationSide {
    /// A socket whose TLS handshake is over. It waits for the greeting.
    pub fn new(now: Instant) -> Self {
        Self { line: Line::new(now), stage: Stage::Waiting, outputs: VecDeque::new() }
    }

    /// Bytes came from the agent. Not to be called once the socket is a connection.
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
                Err(error) => self.misunderstand(error),
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match (self.stage, message) {
            (Stage::Waiting, Message::Hello(hello)) => {
                self.stage = Stage::Judging;
                self.outputs.push_back(ApplicationOutput::Greeted(hello));
            }
            (Stage::Parked | Stage::Starting, Message::Ping) => {}
            (Stage::Starting, Message::Started) => {
                self.stage = Stage::Passing;
                let received = self.line.end();
                self.outputs.push_back(ApplicationOutput::Started(received));
            }
            (Stage::Starting, Message::Failed(failure)) => self.end(Ending::StartFailed(failure)),
            (Stage::Judging | Stage::Parked | Stage::Starting, Message::GoingAway) => self.end(Ending::PeerLeaves),
            (_, message) => self.misunderstand(message.unexpected()),
        }
    }

    /// Parks the socket of an agent that has [greeted](ApplicationOutput::Greeted). `wanted` is how many sockets each agent is to have
    /// parked; `keep_alive`, the longest silence of a side without a ping, is at least a second. Does nothing at any other time.
    pub fn park(&mut self, now: Instant, keep_alive: Duration, wanted: u16) {
        if self.stage != Stage::Judging {
            return;
        }
        self.line.advance(now);
        self.stage = Stage::Parked;
        self.line.say(&Message::Park { keep_alive, wanted });
        self.line.park(keep_alive);
    }

    /// Sends an agent away. Does nothing once the socket is parked.
    pub fn refuse(&mut self, now: Instant, reason: Refusal, retry_after: Duration) {
        if !matches!(self.stage, Stage::Waiting | Stage::Judging) {
            return;
        }
        self.line.advance(now);
        self.line.say(&Message::Refuse { reason, retry_after });
        self.end(Ending::Refused { reason, retry_after });
    }

    /// Asks the agent to connect to its member. Returns whether the socket was parked.
    pub fn start(&mut self, now: Instant) -> bool {
        let is_parked = self.stage == Stage::Parked;
        if is_parked {
            self.line.advance(now);
            self.line.say(&Message::Start);
            self.line.only_listen();
            self.stage = Stage::Starting;
        }
        is_parked
    }

    /// Asks the agent for more sockets, in addition to the one that takes the place of each that is started. Returns whether the
    /// socket was parked.
    pub fn demand(&mut self, now: Instant, number: u16) -> bool {
        let is_parked = self.stage == Stage::Parked;
        if is_parked {
            self.line.advance(now);
            self.line.say(&Message::Demand(number));
        }
        is_parked
    }

    /// The application ends, or has no use for this socket: a message tells an agent whose socket is parked. Does nothing once the socket is
    /// a connection.
    pub fn leave(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Passing | Stage::Ended) {
            return;
        }
        self.line.advance(now);
        // While it starts, the agent could take a message for a byte of the connection.
        if self.stage == Stage::Parked {
            self.line.say(&Message::GoingAway);
        }
        self.end(Ending::Left);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.line.advance(now);
        if let Err(ending) = self.line.handle_timeout() {
            self.end(ending);
        }
    }

    /// Tells an agent of another version so, if it cannot be greeted.
    fn misunderstand(&mut self, error: ProtocolError) {
        if let (ProtocolError::Version { .. }, Stage::Waiting) = (&error, &self.stage) {
            self.line.say(&Message::Refuse { reason: Refusal::Version, retry_after: RETRY_AFTER_CONFUSION });
        }
        self.end(error.into());
    }

    fn end(&mut self, ending: Ending) {
        self.stage = Stage::Ended;
        self.line.end();
        // Nobody is to judge the greeting of a socket that has ended already.
        self.outputs.clear();
        self.outputs.push_back(ApplicationOutput::Close(ending));
    }

    /// What has to be done next.
    pub fn poll_output(&mut self) -> Option<ApplicationOutput> {
        self.outputs.pop_front()
    }

    /// Bytes for the agent.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.line.poll_transmit()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.line.poll_timeout()
    }
}
