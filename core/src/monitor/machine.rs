//! The monitor itself: when it checks, what a check leads to, and its measurements of round-trip times.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::link::{Answer, Failure, Link};
use super::stream_pace::{self, StreamPace};
use super::{
    Action, Call, Finding, HeartbeatEvent, MIN_HEARTBEAT_FREQUENCY, MonitorOptions, Output, Role, RoundTripTimes,
    ServerDescription, ServerType, Socket, Timeout, TimeoutReason,
};
use crate::address::ServerAddress;
use crate::connection::{ClientMetadata, Fault};
use crate::pool::Cause;
use crate::time::Instant;
use crate::topology_version::TopologyVersion;

/// The monitor of one server, as a machine without I/O.
///
/// Every call is legal in every state; reports about a socket that was closed are ignored.
#[derive(Debug)]
pub struct Monitor {
    address: Arc<ServerAddress>,
    options: MonitorOptions,
    now: Instant,
    /// The number of sockets opened so far.
    sockets: u64,
    /// The socket of the checks. It outlives a check that succeeded.
    link: Option<Link>,
    check: Check,
    round_trip: Option<RoundTrip>,
    round_trip_times: RoundTripTimes,
    /// Whether the server was known after its last check: then a lost connection is replaced at once (MON-9).
    is_known: bool,
    /// When a lost connection was last replaced at once.
    last_retry: Option<Instant>,
    stream_pace: StreamPace,
    outputs: VecDeque<Output>,
}

/// The checks: waiting for the next one, under way, or over for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Waiting; the next check begins then.
    Waiting { last_end: Instant, next: Instant },
    /// Under way. An awaited check began when the reply before it came.
    Running { since: Instant, awaited: bool },
    /// Closed.
    Closed,
}

/// Measuring round-trip times while the server streams (MON-10).
#[derive(Debug)]
struct RoundTrip {
    link: Option<Link>,
    /// When to measure next; `None` during a measurement.
    next: Option<Instant>,
}

impl Monitor {
    /// A monitor, which checks its server at once.
    pub fn new(now: Instant, address: Arc<ServerAddress>, mut options: MonitorOptions) -> Self {
        options.heartbeat_frequency = options.heartbeat_frequency.max(MIN_HEARTBEAT_FREQUENCY);
        let mut monitor = Self {
            address,
            now,
            sockets: 0,
            link: None,
            check: Check::Waiting { last_end: now, next: now },
            round_trip: None,
            round_trip_times: RoundTripTimes::default(),
            is_known: false,
            last_retry: None,
            stream_pace: StreamPace::new(options.heartbeat_frequency),
            options,
            outputs: VecDeque::new(),
        };
        monitor.begin_check();
        monitor
    }

    // Calls that the server asks for.

    /// Makes a call that the server has asked for.
    pub fn handle_call(&mut self, now: Instant, call: Call) {
        match call {
            Call::MarkUnknown => self.mark_unknown(),
            Call::RequestCheck => self.request_check(now),
            Call::CancelCheck => self.cancel_check(now),
        }
    }

    /// The server needs a check: the next one begins now, or half a second after the last one ended. A check that is
    /// under way will do (MON-3, X-9).
    pub fn request_check(&mut self, now: Instant) {
        self.advance(now);
        if let Check::Waiting { last_end, next } = &mut self.check {
            *next = (*next).min(self.now.max(*last_end + MIN_HEARTBEAT_FREQUENCY));
            if *next <= self.now {
                self.begin_check();
            }
        }
    }

    /// Cancels the check that is under way, since an application found the server gone, and closes the monitor's socket, idle or
    /// not. The next check begins after heartbeatFrequencyMS, or when one is requested (MON-12).
    pub fn cancel_check(&mut self, now: Instant) {
        self.advance(now);
        self.is_known = false;
        if self.end_check_in_failure(&Cause::new("the check was cancelled: an operation found the server gone")) {
            self.wait();
        } else {
            // The server is gone for this connection, too: the next check opens another.
            self.close_link();
        }
    }

    /// An application's error has made the server unknown: a check that fails now is not repeated at once (MON-9), and the
    /// round-trip times begin anew (SDAM-22).
    pub fn mark_unknown(&mut self) {
        self.is_known = false;
        self.round_trip_times.begin_anew();
    }

    /// Call this in a process that was forked (FORK-2): cancels the check under way, closes the parent's sockets,
    /// forgets the measurements made through them, and checks the server anew.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.advance(now);
        if self.is_closed() {
            return;
        }
        self.is_known = false;
        self.last_retry = None;
        self.stream_pace = StreamPace::new(self.options.heartbeat_frequency);
        self.end_check_in_failure(&Cause::new("the check was cancelled: the process was forked"));
        self.close_link();
        self.stop_measuring();
        self.round_trip_times.reset();
        self.begin_check();
    }

    /// Names the client so in the first hellos of sockets yet to be opened (HS-14).
    pub fn set_metadata(&mut self, metadata: ClientMetadata) {
        Arc::make_mut(&mut self.options.connection).metadata = metadata;
    }

    /// Ends the monitor: cancels the check under way, and closes its sockets.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        self.end_check_in_failure(&Cause::new("the check was cancelled: the client was closed"));
        self.close_link();
        self.stop_measuring();
        self.check = Check::Closed;
    }

    /// Whether the monitor was closed.
    pub fn is_closed(&self) -> bool {
        self.check == Check::Closed
    }

    /// The round-trip times measured since the last failed check.
    pub fn round_trip_times(&self) -> &RoundTripTimes {
        &self.round_trip_times
    }

    // Sockets.

    /// A socket is open: TCP or Unix, and TLS.
    pub fn handle_connected(&mut self, now: Instant, socket: Socket) {
        self.advance(now);
        let Some(link) = find(&mut self.link, &mut self.round_trip, socket) else { return };
        match link.greet(self.now, &self.options) {
            Ok(true) => self.outputs.push_back(Output::Action(Action::Send(socket))),
            Ok(false) => {}
            Err(failure) => self.fail(socket.role, failure),
        }
    }

    /// Appends to `out` the bytes to send through a socket, as [`Action::Send`] asked.
    pub fn write_to(&mut self, socket: Socket, out: &mut Vec<u8>) {
        if let Some(link) = find(&mut self.link, &mut self.round_trip, socket) {
            link.write_to(out);
        }
    }

    /// Bytes came through a socket.
    pub fn handle_bytes(&mut self, now: Instant, socket: Socket, mut bytes: &[u8]) {
        self.advance(now);
        while !bytes.is_empty()
            && let Some(link) = find(&mut self.link, &mut self.round_trip, socket)
        {
            match link.read(self.now, &mut bytes) {
                Ok(None) => return,
                Ok(Some(answer)) => match socket.role {
                    Role::Check => self.succeed(answer),
                    Role::RoundTrip => self.measured(&answer),
                },
                Err(failure) => self.fail(socket.role, failure),
            }
        }
    }

    /// A socket could not be opened, broke, or was closed by the server: the side at fault, and the error. The monitor
    /// keeps its own time limits; [`Fault::Timeout`] is for those of the operating system.
    pub fn handle_failed(&mut self, now: Instant, socket: Socket, fault: Fault, cause: Cause) {
        self.advance(now);
        if find(&mut self.link, &mut self.round_trip, socket).is_some() {
            self.fail(socket.role, Failure { fault, cause });
        }
    }

    /// Time has passed: begins what is due, and ends what has lasted too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let overdue = |link: &Option<Link>| link.as_ref().filter(|link| is_due(link.deadline)).map(Link::overdue);
        let check_overdue = overdue(&self.link);
        let measurement_overdue = self.round_trip.as_ref().and_then(|round_trip| overdue(&round_trip.link));
        if let Some(failure) = check_overdue {
            self.fail(Role::Check, failure);
        }
        if let Some(failure) = measurement_overdue {
            self.fail(Role::RoundTrip, failure);
        }
        if matches!(self.check, Check::Waiting { next, .. } if next <= self.now) {
            self.begin_check();
        }
        if self.round_trip.as_ref().is_some_and(|round_trip| round_trip.next.is_some_and(|next| next <= self.now)) {
            self.measure();
        }
    }

    // Outputs.

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why; `None` if nothing depends on time.
    #[must_use = "without it the driver does not know when to come back"]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        if !self.outputs.is_empty() {
            return Some(Timeout { at: self.now, reason: TimeoutReason::Outputs });
        }
        let heartbeat = match self.check {
            Check::Waiting { next, .. } => Some(next),
            Check::Running { .. } | Check::Closed => None,
        };
        let measurement = self.round_trip.as_ref().and_then(|round_trip| round_trip.next);
        let measured = self.round_trip.as_ref().and_then(|round_trip| round_trip.link.as_ref());
        let reads = [self.link.as_ref(), measured].map(|link| link.and_then(|link| link.deadline));
        let heartbeats = [heartbeat, measurement].into_iter().flatten();
        let heartbeats = heartbeats.map(|at| Timeout { at, reason: TimeoutReason::Heartbeat });
        let reads = reads.into_iter().flatten().map(|at| Timeout { at, reason: TimeoutReason::Read });
        heartbeats.chain(reads).min_by_key(|timeout| timeout.at)
    }

    // Checks.

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Asks through the socket that is open, or opens one: its first hello is the check (MON-4).
    fn begin_check(&mut self) {
        if let Some(link) = &mut self.link {
            let asked = link.ask(self.now, None, &self.options);
            self.start_heartbeat(false);
            match (asked, &self.link) {
                (Ok(()), Some(link)) => self.outputs.push_back(Output::Action(Action::Send(link.socket))),
                (Ok(()), None) => {}
                (Err(failure), _) => self.fail(Role::Check, failure),
            }
        } else {
            let socket = self.next_socket(Role::Check);
            self.link = Some(Link::new(self.now, socket, &self.options));
            self.start_heartbeat(false);
            self.outputs.push_back(Output::Action(Action::Connect(socket)));
        }
    }

    fn start_heartbeat(&mut self, awaited: bool) {
        self.check = Check::Running { since: self.now, awaited };
        if let Some(link) = &self.link {
            self.outputs.push_back(Output::Event(HeartbeatEvent::Started { connection: link.name(), awaited }));
        }
    }

    fn succeed(&mut self, answer: Answer) {
        let (Check::Running { awaited, .. }, Some(link)) = (self.check, &self.link) else { return };
        let connection = link.name();
        if !awaited {
            self.round_trip_times.add(answer.duration);
        }
        let reply = Arc::from(answer.reply.as_bytes());
        let event = HeartbeatEvent::Succeeded { connection, duration: answer.duration, reply, awaited };
        self.outputs.push_back(Output::Event(event));
        let mut description = ServerDescription::of_reply(Arc::clone(&self.address), &answer.reply);
        self.is_known = description.server_type != ServerType::Unknown;
        if self.is_known {
            description.round_trip_time = self.round_trip_times.average();
            description.min_round_trip_time = self.round_trip_times.min();
        } else {
            self.round_trip_times.begin_anew();
        }
        description.last_update_time = Some(self.now);
        let topology_version = description.topology_version;
        if awaited {
            self.stream_pace.observe_awaited(self.now, topology_version, answer.duration);
        } else {
            self.stream_pace.observe(self.now, topology_version);
        }
        let streams = self.options.streams
            && self.stream_pace.allows_streaming()
            && stream_pace::comes_in_time(&description, &self.options);
        self.outputs.push_back(Output::Found(Finding::Description(Box::new(description))));
        if streams && answer.more_to_come {
            if let Some(link) = &mut self.link {
                link.await_next(self.now, &self.options);
            }
            self.start_heartbeat(true);
        } else if streams && topology_version.is_some() {
            self.stream(topology_version);
        } else {
            if answer.more_to_come {
                // The server would go on sending.
                self.close_link();
            }
            self.stop_measuring();
            self.wait_for(self.stream_pace.pause());
        }
    }

    /// Asks the server to answer after a change, and to go on answering (MON-7). No time passes in between.
    fn stream(&mut self, topology_version: Option<TopologyVersion>) {
        let Some(link) = &mut self.link else { return };
        let (socket, asked) = (link.socket, link.ask(self.now, topology_version, &self.options));
        self.start_heartbeat(true);
        match asked {
            Ok(()) => {
                self.outputs.push_back(Output::Action(Action::Send(socket)));
                if self.round_trip.is_none() {
                    self.round_trip = Some(RoundTrip { link: None, next: None });
                    self.measure();
                }
            }
            Err(failure) => self.fail(Role::Check, failure),
        }
    }

    fn fail(&mut self, role: Role, failure: Failure) {
        match role {
            Role::Check => self.fail_check(failure),
            // An error of a measurement tells nothing that the checks do not find themselves (MON-10).
            Role::RoundTrip => {
                if let Some(round_trip) = &mut self.round_trip {
                    round_trip.next = Some(self.now + self.options.heartbeat_frequency);
                    let link = round_trip.link.take();
                    self.close_socket(link.as_ref());
                }
            }
        }
    }

    fn fail_check(&mut self, failure: Failure) {
        if !self.end_check_in_failure(&failure.cause) {
            // The socket was lost between two checks: the next one opens another.
            return self.close_link();
        }
        let retry = self.is_known && failure.is_network();
        self.is_known = false;
        let Failure { fault, cause } = failure;
        self.outputs.push_back(Output::Found(Finding::Failure { fault, cause }));
        if !retry {
            self.wait();
        } else if self.last_retry.is_some_and(|last| self.now.saturating_since(last) < MIN_HEARTBEAT_FREQUENCY) {
            self.wait_for(MIN_HEARTBEAT_FREQUENCY);
        } else {
            self.last_retry = Some(self.now);
            self.begin_check();
        }
    }

    /// Ends the check that is under way without success, and discards everything that depends on earlier checks.
    /// Returns whether there was one.
    fn end_check_in_failure(&mut self, cause: &Cause) -> bool {
        let (Check::Running { since, awaited }, Some(link)) = (self.check, &self.link) else { return false };
        let (connection, duration) = (link.name(), self.now.saturating_since(since));
        self.close_link();
        let failure = cause.clone();
        let event = HeartbeatEvent::Failed { connection, duration, failure, awaited };
        self.outputs.push_back(Output::Event(event));
        self.stop_measuring();
        self.round_trip_times.reset();
        true
    }

    /// The next check comes heartbeatFrequencyMS after the end of this one (MON-2).
    fn wait(&mut self) {
        self.wait_for(self.options.heartbeat_frequency);
    }

    /// The next check comes `time` after the end of this one.
    fn wait_for(&mut self, time: Duration) {
        self.check = Check::Waiting { last_end: self.now, next: self.now + time };
    }

    // Measurements.

    fn measure(&mut self) {
        let Some(mut round_trip) = self.round_trip.take() else { return };
        round_trip.next = None;
        let asked = match &mut round_trip.link {
            Some(link) => link.ask(self.now, None, &self.options).map(|()| Action::Send(link.socket)),
            None => {
                let socket = self.next_socket(Role::RoundTrip);
                round_trip.link = Some(Link::new(self.now, socket, &self.options));
                Ok(Action::Connect(socket))
            }
        };
        self.round_trip = Some(round_trip);
        match asked {
            Ok(action) => self.outputs.push_back(Output::Action(action)),
            Err(failure) => self.fail(Role::RoundTrip, failure),
        }
    }

    fn measured(&mut self, answer: &Answer) {
        self.round_trip_times.add(answer.duration);
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.next = Some(self.now + self.options.heartbeat_frequency);
        }
    }

    fn stop_measuring(&mut self) {
        if let Some(round_trip) = self.round_trip.take() {
            self.close_socket(round_trip.link.as_ref());
        }
    }

    // Sockets.

    fn next_socket(&mut self, role: Role) -> Socket {
        self.sockets = self.sockets.wrapping_add(1);
        Socket { role, number: self.sockets }
    }

    fn close_link(&mut self) {
        let link = self.link.take();
        self.close_socket(link.as_ref());
    }

    fn close_socket(&mut self, link: Option<&Link>) {
        if let Some(link) = link {
            self.outputs.push_back(Output::Action(Action::Close(link.socket)));
        }
    }
}

/// The link of a socket that was not closed.
fn find<'a>(
    check: &'a mut Option<Link>,
    round_trip: &'a mut Option<RoundTrip>,
    socket: Socket,
) -> Option<&'a mut Link> {
    let link = match socket.role {
        Role::Check => check.as_mut(),
        Role::RoundTrip => round_trip.as_mut().and_then(|round_trip| round_trip.link.as_mut()),
    };
    link.filter(|link| link.socket == socket)
}
