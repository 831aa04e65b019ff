//! Connections that the database's side opens: an agent and an application, joined by a wire of bytes.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{
    AgentOutput, AgentSide, ApplicationOutput, ApplicationSide, BootId, ChannelBinding, Ending, GREETING_LIMIT,
    Greeting, Hello, MAX_MESSAGE, ProofError, ProtocolError, Refusal, StartFailure, StartPhase, Token, TokenError,
    Tokens,
};
use cmap_core::time::Instant;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const BOOT: BootId = BootId { started: 1_700_000_000_000, random: 7 };
const BINDING: ChannelBinding = ChannelBinding([5; 32]);

fn member() -> ServerAddress {
    ServerAddress::tcp("db1.example", 27017)
}

fn token(name: &str) -> Token {
    Token::new(name, b"a secret that is long enough").unwrap()
}

fn greeting(token: Option<Token>) -> Greeting {
    Greeting { member: member(), boot: BOOT, token }
}

/// Both sides, and what each has to do.
struct Pair {
    now: Instant,
    agent: AgentSide,
    application: ApplicationSide,
    agents: Vec<AgentOutput>,
    applications: Vec<ApplicationOutput>,
}

impl Pair {
    fn new() -> Self {
        let now = Instant::ORIGIN;
        let agent = AgentSide::new(&greeting(Some(token("agent-1"))), &BINDING, now);
        let application = ApplicationSide::new(now);
        Self { now, agent, application, agents: Vec::new(), applications: Vec::new() }
    }

    /// A pair whose socket is parked, with its outputs so far taken.
    fn parked() -> Self {
        let mut pair = Self::new();
        pair.exchange();
        pair.application.park(pair.now, KEEP_ALIVE, 3);
        pair.exchange();
        pair.agents.clear();
        pair.applications.clear();
        pair
    }

    fn starting() -> Self {
        let mut pair = Self::parked();
        assert!(pair.application.start(pair.now));
        pair.exchange();
        pair.agents.clear();
        pair
    }

    /// Carries bytes until neither side has any.
    fn exchange(&mut self) {
        loop {
            let (to_application, to_agent) = (self.agent.poll_transmit(), self.application.poll_transmit());
            if to_application.is_none() && to_agent.is_none() {
                break;
            }
            self.application.handle_bytes(self.now, &to_application.unwrap_or_default());
            self.agent.handle_bytes(self.now, &to_agent.unwrap_or_default());
        }
        self.agents.extend(std::iter::from_fn(|| self.agent.poll_output()));
        self.applications.extend(std::iter::from_fn(|| self.application.poll_output()));
    }

    /// Lets time pass, with both sides doing what is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.agent.poll_timeout().into_iter().chain(self.application.poll_timeout()).min() {
            if next > end {
                break;
            }
            self.now = next;
            self.agent.handle_timeout(next);
            self.application.handle_timeout(next);
            self.exchange();
        }
        self.now = end;
    }
}

#[test]
fn a_socket_is_parked_started_and_then_passes_bytes() {
    let mut pair = Pair::new();

    pair.exchange();
    let [ApplicationOutput::Greeted(hello)] = pair.applications.as_slice() else { panic!("{:?}", pair.applications) };
    assert_eq!((&hello.member, hello.boot), (&member(), BOOT));

    pair.application.park(pair.now, KEEP_ALIVE, 3);
    pair.exchange();
    assert_eq!(pair.agents, [AgentOutput::Parked { wanted: 3 }]);

    assert!(pair.application.start(pair.now));
    pair.exchange();
    assert_eq!(pair.agents[1..], [AgentOutput::Start]);

    pair.agent.handle_started(pair.now);
    let mut sent = pair.agent.poll_transmit().unwrap();
    sent.extend_from_slice(b"from the member");
    pair.application.handle_bytes(pair.now, &sent);
    assert_eq!(pair.agent.poll_output(), Some(AgentOutput::Pass(Vec::new())));
    assert_eq!(pair.application.poll_output(), Some(ApplicationOutput::Started(b"from the member".to_vec())));
    assert_eq!((pair.agent.poll_timeout(), pair.application.poll_timeout()), (None, None));
}

#[test]
fn a_socket_that_is_not_parked_cannot_be_started() {
    let mut pair = Pair::new();
    pair.exchange();

    assert!(!pair.application.start(pair.now));
    assert!(!pair.application.demand(pair.now, 1));
}

#[test]
fn an_application_refuses_an_agent() {
    let mut pair = Pair::new();
    pair.exchange();

    pair.application.refuse(pair.now, Refusal::Unauthorized, 30 * SECOND);
    pair.exchange();

    let ending = Ending::Refused { reason: Refusal::Unauthorized, retry_after: 30 * SECOND };
    assert_eq!(pair.agents, [AgentOutput::Close(ending.clone())]);
    assert_eq!(pair.applications[1..], [ApplicationOutput::Close(ending.clone())]);
    assert!(ending.to_string().contains("check its token or certificate"), "{ending}");
}

#[test]
fn an_application_asks_for_more_sockets_before_it_starts_one() {
    let mut pair = Pair::parked();

    assert!(pair.application.demand(pair.now, 2));
    assert!(pair.application.start(pair.now));
    assert!(!pair.application.demand(pair.now, 2));
    pair.exchange();

    assert_eq!(pair.agents, [AgentOutput::Demanded(2), AgentOutput::Start]);
}

#[test]
fn an_application_that_has_said_start_says_nothing_before_started_x_117() {
    let mut pair = Pair::starting();

    pair.pass(10 * KEEP_ALIVE);

    assert_eq!(pair.application.poll_transmit(), None);
    assert_eq!((pair.agents.as_slice(), pair.applications.as_slice()), ([].as_slice(), [].as_slice()));
    pair.application.leave(pair.now);
    assert_eq!(pair.application.poll_transmit(), None);
}

#[test]
fn a_member_that_cannot_be_reached_is_said_so_without_control_characters_x_117() {
    let mut pair = Pair::starting();

    pair.agent.handle_start_failed(pair.now, StartPhase::Connect, &format!("refused\n{}", "x".repeat(2000)));
    pair.exchange();

    let [ApplicationOutput::Close(Ending::StartFailed(StartFailure { phase, error }))] = pair.applications.as_slice()
    else {
        panic!("{:?}", pair.applications)
    };
    assert_eq!(*phase, StartPhase::Connect);
    assert!(error.starts_with(r"refused\nxxx") && error.len() <= 520, "{error}");
}

#[test]
fn each_side_tells_the_other_that_it_is_going_away() {
    let mut pair = Pair::parked();
    pair.agent.leave(pair.now);
    pair.exchange();
    assert_eq!(pair.applications, [ApplicationOutput::Close(Ending::PeerLeaves)]);
    assert_eq!(pair.agents, [AgentOutput::Close(Ending::Left)]);

    let mut pair = Pair::parked();
    pair.application.leave(pair.now);
    pair.exchange();
    assert_eq!(pair.agents, [AgentOutput::Close(Ending::PeerLeaves)]);
    assert_eq!(pair.applications, [ApplicationOutput::Close(Ending::Left)]);
}

#[test]
fn an_agent_that_greets_and_leaves_at_once_is_not_judged_x_117() {
    let mut pair = Pair::new();
    pair.agent.leave(pair.now);

    pair.application.handle_bytes(pair.now, &pair.agent.poll_transmit().unwrap());

    assert_eq!(pair.application.poll_output(), Some(ApplicationOutput::Close(Ending::PeerLeaves)));
    assert_eq!(pair.application.poll_output(), None);
}

#[test]
fn parked_sockets_live_by_their_pings_x_119() {
    let mut pair = Pair::parked();

    pair.pass(Duration::from_secs(3600));

    assert_eq!((pair.agents.len(), pair.applications.len()), (0, 0));
    assert!(pair.application.start(pair.now));
}

#[test]
fn a_silent_peer_is_given_up_after_three_intervals_x_119() {
    let mut pair = Pair::parked();
    let mut pings = 0;

    while let Some(next) = pair.application.poll_timeout() {
        pair.now = next;
        pair.application.handle_timeout(next);
        // They are lost.
        pings += usize::from(pair.application.poll_transmit().is_some());
    }

    assert_eq!(pair.now, Instant::ORIGIN + 3 * KEEP_ALIVE);
    assert_eq!(pings, 2);
    let ending = Ending::Silent(3 * KEEP_ALIVE);
    assert_eq!(pair.application.poll_output(), Some(ApplicationOutput::Close(ending)));
}

#[test]
fn a_keep_alive_of_nothing_is_one_of_a_second_x_119() {
    let mut pair = Pair::new();
    pair.exchange();

    pair.application.park(pair.now, Duration::ZERO, 1);
    pair.exchange();

    assert_eq!(pair.application.poll_timeout(), Some(pair.now + SECOND));
    assert_eq!(pair.agent.poll_timeout(), Some(pair.now + SECOND));
}

#[test]
fn a_peer_that_does_not_greet_within_ten_seconds_is_given_up_x_117() {
    let mut application = ApplicationSide::new(Instant::ORIGIN);
    let at = application.poll_timeout().unwrap();

    application.handle_timeout(at);

    assert_eq!(at, Instant::ORIGIN + GREETING_LIMIT);
    assert_eq!(application.poll_output(), Some(ApplicationOutput::Close(Ending::NoGreeting)));
}

#[test]
fn an_agent_of_another_version_is_told_so() {
    let mut pair = Pair::new();
    let mut hello = pair.agent.poll_transmit().unwrap();
    hello[3] = 2;

    pair.application.handle_bytes(pair.now, &hello);
    pair.exchange();

    assert_eq!(pair.applications, [ApplicationOutput::Close(Ending::Protocol(ProtocolError::Version { version: 2 }))]);
    let [AgentOutput::Close(Ending::Refused { reason, .. })] = pair.agents.as_slice() else {
        panic!("{:?}", pair.agents)
    };
    assert_eq!(*reason, Refusal::Version);
}

#[test]
fn a_member_whose_name_would_forge_a_line_of_the_log_ends_the_socket_x_117() {
    for name in ["x\n2026-01-01 all is well", "\u{1b}[2J", &"x".repeat(300)] {
        let mut greeting = greeting(None);
        greeting.member = ServerAddress::tcp(name, 1);
        let mut application = ApplicationSide::new(Instant::ORIGIN);
        let mut agent = AgentSide::new(&greeting, &BINDING, Instant::ORIGIN);

        application.handle_bytes(Instant::ORIGIN, &agent.poll_transmit().unwrap());

        let ending = application.poll_output();
        assert!(
            matches!(ending, Some(ApplicationOutput::Close(Ending::Protocol(ProtocolError::Malformed { .. })))),
            "{ending:?}"
        );
    }
}

#[test]
fn a_message_that_makes_no_sense_ends_the_socket_x_117() {
    let too_long = [4, 0xff, 0xff];
    let unknown = [77, 0, 0];
    let started = [7, 0, 0];
    let cut = [5, 0, 1, 9];
    let cases: [(&[u8], ProtocolError); 4] = [
        (&too_long, ProtocolError::TooLong { kind: 4, length: 0xffff }),
        (&unknown, ProtocolError::Unexpected { kind: 77 }),
        (&started, ProtocolError::Unexpected { kind: 7 }),
        (&cut, ProtocolError::Malformed { kind: 5, field: "number" }),
    ];
    for (bytes, error) in cases {
        let mut pair = Pair::parked();

        pair.application.handle_bytes(pair.now, bytes);

        let ending = Ending::Protocol(error);
        assert_eq!(pair.application.poll_output(), Some(ApplicationOutput::Close(ending)));
        assert_eq!(pair.application.poll_output(), None);
    }
}

fn hello(token: Option<&Token>, member: ServerAddress, boot: BootId) -> Hello {
    let proof = token.map(|token| token.prove(&BINDING, &member, boot));
    Hello { member, boot, proof }
}

fn tokens() -> Tokens {
    let mut tokens = Tokens::new();
    tokens.add(token("agent-1"), [member()]);
    tokens
}

#[test]
fn a_proof_holds_for_its_member_its_run_and_its_connection_x_118() {
    let own = token("agent-1");
    let genuine = hello(Some(&own), member(), BOOT);
    assert_eq!(tokens().verify(&genuine, &BINDING), Ok(()));

    let wrong = || ProofError::WrongSecret { member: member(), token: "agent-1".to_owned() };
    let of_another_run = Hello { boot: BootId { random: 8, ..BOOT }, ..genuine.clone() };
    assert_eq!(tokens().verify(&of_another_run, &BINDING), Err(wrong()));
    assert_eq!(tokens().verify(&genuine, &ChannelBinding([6; 32])), Err(wrong()));
    let other_secret = Token::new("agent-1", b"another secret, also long").unwrap();
    assert_eq!(tokens().verify(&hello(Some(&other_secret), member(), BOOT), &BINDING), Err(wrong()));
}

#[test]
fn a_token_speaks_for_its_members_alone_x_118() {
    let own = token("agent-1");
    let other = ServerAddress::tcp("db2.example", 27017);

    let claimed = tokens().verify(&hello(Some(&own), other.clone(), BOOT), &BINDING).unwrap_err();

    assert_eq!(claimed, ProofError::OtherMember { member: other.clone(), token: "agent-1".to_owned() });
    let moved = Hello { member: other, ..hello(Some(&own), member(), BOOT) };
    assert!(matches!(tokens().verify(&moved, &BINDING), Err(ProofError::WrongSecret { .. })));
}

#[test]
fn a_token_that_is_not_known_or_not_there_proves_nothing_x_118() {
    let stranger = tokens().verify(&hello(Some(&token("nobody")), member(), BOOT), &BINDING);
    let nothing = tokens().verify(&hello(None, member(), BOOT), &BINDING);

    assert_eq!(stranger, Err(ProofError::UnknownToken { member: member(), token: "nobody".to_owned() }));
    assert_eq!(nothing, Err(ProofError::Missing { member: member() }));
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    assert_eq!(Token::new("a", b"short").unwrap_err(), TokenError::Secret(5));
    assert_eq!(Token::new("", &[1; 32]).unwrap_err(), TokenError::Name(0));
    assert_eq!(Token::new(&"n".repeat(65), &[1; 32]).unwrap_err(), TokenError::Name(65));
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?} {BINDING:?} {:?}", token("agent-1"), tokens());

    assert!(text.contains("agent-1") && !text.contains("115, 101, 99"), "{text}");
}

#[test]
fn the_later_run_of_an_agent_counts_x_119() {
    let later = BootId { started: BOOT.started + 1, random: 0 };

    assert!(later > BOOT);
    assert!(BootId { random: 8, ..BOOT } > BOOT);
}

proptest! {
    #[test]
    fn messages_may_come_in_any_pieces(cuts in prop::collection::vec(1_usize..40, 1..60)) {
        let mut pair = Pair::new();
        let mut cuts = cuts.into_iter().cycle();
        let sent = pair.agent.poll_transmit().unwrap();
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            pair.application.handle_bytes(pair.now, piece);
            rest = behind;
        }

        pair.exchange();

        prop_assert!(matches!(pair.applications.as_slice(), [ApplicationOutput::Greeted(_)]));
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..3 * MAX_MESSAGE), stage in 0..3, cut in 1_usize..200) {
        let mut pair = match stage {
            0 => Pair::new(),
            1 => Pair::parked(),
            _ => Pair::starting(),
        };
        for piece in bytes.chunks(cut) {
            pair.application.handle_bytes(pair.now, piece);
            pair.agent.handle_bytes(pair.now, piece);
        }

        let outputs: Vec<_> = std::iter::from_fn(|| pair.application.poll_output()).collect();
        let endings = outputs.iter().filter(|output| matches!(output, ApplicationOutput::Close(_))).count();
        prop_assert!(endings <= 1);
        prop_assert!(endings == 0 || matches!(outputs.last(), Some(ApplicationOutput::Close(_))));
        let outputs: Vec<_> = std::iter::from_fn(|| pair.agent.poll_output()).collect();
        let endings = outputs.iter().filter(|output| matches!(output, AgentOutput::Close(_))).count();
        prop_assert!(endings <= 1);
    }
}
