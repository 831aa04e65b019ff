//! The checks that are under way: each whose begin had an event has one for its end, also where its server leaves meanwhile
//! (MON-13). The machine hears nothing more of a server that has left, and its monitor ends only afterwards.

use std::collections::BTreeMap;

use cmap_core::monitor::{HeartbeatEvent, MonitorConnection};
use cmap_core::pool::Cause;
use cmap_core::server::{ServerEvent, ServerId};
use cmap_core::time::Instant;
use cmap_core::topology::Input;

use super::state::State;
use crate::events::Event;
use crate::runtime::Runtime;

#[derive(Default)]
pub(super) struct Heartbeats(BTreeMap<ServerId, Heartbeat>);

/// A check that is under way.
struct Heartbeat {
    connection: MonitorConnection,
    since: Instant,
    awaited: bool,
}

impl Heartbeats {
    /// A check of a server began or ended.
    fn note(&mut self, now: Instant, server: ServerId, event: &HeartbeatEvent) {
        if let HeartbeatEvent::Started { connection, awaited } = *event {
            self.0.insert(server, Heartbeat { connection, since: now, awaited });
        } else {
            self.0.remove(&server);
        }
    }

    /// The end of a check that nobody waits for any more, because its server leaves.
    pub(super) fn end(&mut self, now: Instant, server: ServerId) -> Option<HeartbeatEvent> {
        self.0.remove(&server).map(|Heartbeat { connection, since, awaited }| HeartbeatEvent::Failed {
            connection,
            duration: now.saturating_since(since),
            failure: Cause::new("the check was cancelled: the server has left"),
            awaited,
        })
    }
}

impl<R: Runtime> State<R> {
    /// A server's monitor began or ended a check.
    pub(super) fn handle_heartbeat(&mut self, now: Instant, server: ServerId, event: HeartbeatEvent) {
        // Nobody is told of those of a server that has left.
        if self.machine.server(server).is_some_and(|server| !server.has_left()) {
            self.heartbeats.note(now, server, &event);
        }
        self.machine.call(now, Input::Heartbeat(server, event), None);
    }

    /// Tells of a server, and first of the end of its check if it leaves.
    pub(super) fn tell_of_server(&mut self, now: Instant, server: ServerId, event: ServerEvent) {
        if matches!(event, ServerEvent::ServerClosed)
            && let Some(failed) = self.heartbeats.end(now, server)
        {
            self.tell(server, Event::Server(ServerEvent::Heartbeat(failed)));
        }
        self.tell(server, Event::Server(event));
    }
}
