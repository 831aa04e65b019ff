//! What the header says that an output of the core looks like: written here once more, beside the library's own.

use cmap::{CheckOut, Connection};
use cmap_core::pool::{Action, CheckOutError, CheckOutErrorKind, CheckOutId, Event, Handle, Output, Pool, WaitLimit};

use crate::pool::Seen;

/// An output, as it has to come through the header; `pool` is as it is at that moment.
pub(crate) fn seen(output: &Output<u64>, pool: &mut Pool<u64>) -> Seen {
    match output {
        Output::Action(action) => of_action(action, pool),
        Output::Event(event) => of_event(event),
    }
}

/// A delivery that a call has returned.
pub(crate) fn delivered(check_out: CheckOutId, connection: Handle, socket: u64) -> Seen {
    Seen { check_out: out(check_out), socket, ..at(4, connection) }
}

fn of_action(action: &Action<u64>, pool: &mut Pool<u64>) -> Seen {
    match action {
        Action::Connect { connection } => {
            let origin = pool.origin_of(*connection).map(out).unwrap_or_default();
            Seen { check_out: origin, ..at(1, *connection) }
        }
        Action::Check { connection } => {
            // Nothing is told of a connection that was closed meanwhile.
            pool.socket(*connection).map_or(Seen::NOTHING, |socket| Seen { socket: *socket, ..at(2, *connection) })
        }
        Action::Refresh { connection, socket, timeout } => {
            Seen { socket: *socket, nanos: timeout.as_nanos() as u64, ..at(3, *connection) }
        }
        Action::Deliver { check_out, connection, socket } => delivered(*check_out, *connection, *socket),
        Action::Fail { check_out, error } => {
            let retryable = if error.is_retryable() { 4 } else { 0 };
            let number = error.connection.map_or(0, |connection| connection.get());
            Seen { check_out: out(*check_out), number, flags: retryable, ..failed(5, error) }
        }
        Action::Close { connection, socket, reason } => {
            Seen { socket: *socket, reason: *reason as u32 + 1, ..at(6, *connection) }
        }
        Action::Interrupt { connection } => at(7, *connection),
        Action::WarmedUp { .. } => unreachable!("the topology tells of it"),
    }
}

fn of_event(event: &Event) -> Seen {
    match event {
        Event::PoolCreated { options } => {
            let options: std::collections::BTreeMap<_, _> = options.set_by_user().collect();
            Seen { text: serde_json::to_string(&options).unwrap(), ..of(101) }
        }
        Event::PoolReady => of(102),
        Event::PoolCleared { service_id, interrupt_in_use_connections } => Seen {
            service: service_id.map(|id| id.0).unwrap_or_default(),
            flags: u32::from(service_id.is_some()) + 2 * u32::from(*interrupt_in_use_connections),
            ..of(103)
        },
        Event::PoolClosed => of(104),
        Event::ConnectionCreated { connection_id } => Seen { number: connection_id.get(), ..of(105) },
        Event::ConnectionReady { connection_id, duration } => {
            Seen { number: connection_id.get(), nanos: duration.as_nanos() as u64, ..of(106) }
        }
        Event::ConnectionClosed { connection_id, reason, error } => Seen {
            number: connection_id.get(),
            reason: *reason as u32 + 1,
            text: error.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..of(107)
        },
        Event::ConnectionCheckOutStarted { check_out } => Seen { check_out: out(*check_out), ..of(108) },
        Event::ConnectionCheckOutFailed { check_out, error, .. } => {
            Seen { check_out: out(*check_out), ..failed(109, error) }
        }
        Event::ConnectionCheckedOut { check_out, connection_id, duration } => Seen {
            check_out: out(*check_out),
            number: connection_id.get(),
            nanos: duration.as_nanos() as u64,
            ..of(110)
        },
        Event::ConnectionCheckedIn { connection_id } => Seen { number: connection_id.get(), ..of(111) },
        event => unreachable!("the header has no number for {event:?}"),
    }
}

fn failed(kind: u32, error: &CheckOutError) -> Seen {
    let reason = match &error.kind {
        CheckOutErrorKind::PoolClosed => 1,
        CheckOutErrorKind::PoolCleared { .. } => 2,
        CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout) => 3,
        CheckOutErrorKind::Timeout(WaitLimit::Deadline) => 4,
        CheckOutErrorKind::Establish(_) => 5,
        CheckOutErrorKind::Cancelled => 6,
        CheckOutErrorKind::WaitQueueFull { .. } => 7,
        kind => unreachable!("the header has no number for {kind:?}"),
    };
    Seen { reason, nanos: error.waited.as_nanos() as u64, text: error.to_string(), ..of(kind) }
}

fn of(kind: u32) -> Seen {
    Seen { kind, ..Seen::NOTHING }
}

fn at(kind: u32, connection: Handle) -> Seen {
    Seen { connection: Connection { opaque: connection.to_bits() }, number: connection.id().get(), ..of(kind) }
}

fn out(check_out: CheckOutId) -> CheckOut {
    CheckOut { opaque: check_out.to_bits() }
}
