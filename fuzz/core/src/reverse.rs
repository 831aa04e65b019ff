//! A script of what happens to both sides of a connection that the database's side opens, and of a stranger between them.
//!
//! Two sides that speak the protocol never misunderstand each other, whatever happens in which order; with bytes of a stranger between
//! them a side may end, once. What is passed on is what was sent, from the first byte to the last.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{
    AgentOutput, AgentSide, ApplicationOutput, ApplicationSide, BootId, ChannelBinding, Ending, Greeting, MAX_MESSAGE,
    Refusal, StartPhase, Token, Tokens,
};
use cmap_core::time::Instant;

/// What an application sends over a connection.
const QUESTION: &[u8] = b"\x04\x00\x00 a question that begins like a ping";

/// Carries out the script.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    let mut data = data.iter().copied();
    while let Some(step) = data.next() {
        let number = data.next().unwrap_or_default();
        world.step(step, number, &mut data);
        world.look();
    }
    world.settle();
}

/// Both sides, and the bytes between them.
struct World {
    now: Instant,
    tokens: Tokens,
    agent: AgentSide,
    application: ApplicationSide,
    to_agent: Vec<u8>,
    to_application: Vec<u8>,
    at_agent: End,
    at_application: End,
    /// A stranger's bytes came between.
    is_disturbed: bool,
    /// What came to the member.
    asked: Vec<u8>,
}

/// What has become of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Passing,
    Closed,
}

fn binding() -> ChannelBinding {
    ChannelBinding([9; 32])
}

impl World {
    fn new() -> Self {
        let (now, member) = (Instant::ORIGIN, ServerAddress::tcp("db.example", 27017));
        let token = Token::new("token", &[7; 32]).ok();
        let mut tokens = Tokens::new();
        if let Some(token) = token.clone() {
            tokens.add(token, [member.clone()]);
        }
        let greeting = Greeting { member, boot: BootId { started: 1, random: 2 }, token };
        Self {
            now,
            tokens,
            agent: AgentSide::new(&greeting, &binding(), now),
            application: ApplicationSide::new(now),
            to_agent: Vec::new(),
            to_application: Vec::new(),
            at_agent: End::Open,
            at_application: End::Open,
            is_disturbed: false,
            asked: Vec::new(),
        }
    }

    fn step(&mut self, step: u8, number: u8, data: &mut impl Iterator<Item = u8>) {
        let (now, size) = (self.now, usize::from(number) + 1);
        match step % 11 {
            0 => self.deliver_to_application(size),
            1 => self.deliver_to_agent(size),
            2 => {
                self.now = now + Duration::from_millis(u64::from(number) * 500);
                self.agent.handle_timeout(self.now);
                self.application.handle_timeout(self.now);
            }
            3 => self.application.park(now, Duration::from_millis(u64::from(number) * 100), number.into()),
            4 => drop(self.application.start(now)),
            5 => drop(self.application.demand(now, number.into())),
            6 => self.agent.handle_started(now),
            7 => self.agent.handle_start_failed(now, StartPhase::Connect, "refused"),
            8 if number.is_multiple_of(2) => self.agent.leave(now),
            8 => self.application.leave(now),
            9 => self.application.refuse(now, Refusal::Full, Duration::from_secs(1)),
            _ => {
                self.is_disturbed = true;
                let bytes: Vec<u8> = data.take(size.min(MAX_MESSAGE)).collect();
                if number.is_multiple_of(2) { &mut self.to_agent } else { &mut self.to_application }.extend(bytes);
            }
        }
    }

    fn deliver_to_application(&mut self, size: usize) {
        let bytes: Vec<u8> = self.to_application.drain(..size.min(self.to_application.len())).collect();
        if self.at_application == End::Open {
            self.application.handle_bytes(self.now, &bytes);
        }
    }

    fn deliver_to_agent(&mut self, size: usize) {
        let bytes: Vec<u8> = self.to_agent.drain(..size.min(self.to_agent.len())).collect();
        match self.at_agent {
            End::Open => self.agent.handle_bytes(self.now, &bytes),
            End::Passing => self.asked.extend(bytes),
            End::Closed => {}
        }
    }

    /// Takes what both sides have to do.
    fn look(&mut self) {
        while let Some(output) = self.agent.poll_output() {
            assert_eq!(self.at_agent, End::Open, "{output:?} after the end");
            match output {
                AgentOutput::Parked { .. } | AgentOutput::Demanded(_) | AgentOutput::Start => {}
                AgentOutput::Pass(rest) => {
                    self.at_agent = End::Passing;
                    self.asked = rest;
                }
                AgentOutput::Close(ending) => {
                    self.at_agent = End::Closed;
                    self.judge(&ending);
                }
            }
        }
        self.to_application.extend(self.agent.poll_transmit().unwrap_or_default());
        while let Some(output) = self.application.poll_output() {
            assert_eq!(self.at_application, End::Open, "{output:?} after the end");
            match output {
                ApplicationOutput::Greeted(hello) => {
                    let proven = self.tokens.verify(&hello, &binding());
                    assert!(self.is_disturbed || proven.is_ok(), "{proven:?}");
                }
                ApplicationOutput::Started(_) => self.at_application = End::Passing,
                ApplicationOutput::Close(ending) => {
                    self.at_application = End::Closed;
                    self.judge(&ending);
                }
            }
        }
        self.to_agent.extend(self.application.poll_transmit().unwrap_or_default());
    }

    fn judge(&self, ending: &Ending) {
        let is_misunderstanding = matches!(ending, Ending::Protocol(_));
        assert!(self.is_disturbed || !is_misunderstanding, "{ending}");
    }

    /// Everything arrives; an application that has a connection asks its question.
    fn settle(&mut self) {
        for _ in 0..8 {
            self.deliver_to_application(usize::MAX);
            self.deliver_to_agent(usize::MAX);
            self.look();
        }
        if self.is_disturbed || self.at_application != End::Passing {
            return;
        }
        assert_eq!(self.at_agent, End::Passing, "an application has a connection of which its agent knows nothing");
        self.to_agent.extend_from_slice(QUESTION);
        self.deliver_to_agent(usize::MAX);
        assert_eq!(self.asked, QUESTION, "the member reads what the application has not sent");
    }
}
