//! Holders of connections and waiters, as users see them: the machine's state, and the notes of who asked.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::ClientOptions;
use cmap_core::pool::{self, CheckOutError, Handle, HeldBy, PoolState, Statistics, WaitBound};
use cmap_core::server::{ServerId, ServerType};
use cmap_core::time::Instant;

use super::Driver;
use super::state::State;
use crate::runtime::Runtime;
use crate::socket::Socket;
#[cfg(feature = "metrics")]
use crate::watch::PoolFigures;
use crate::watch::{
    ClientStatus, CommandInUse, Holder, Label, LabelId, NotedCommand, Place, ServerLine, Tag, WaitingCheckOut,
    WaitsFor, Who, shown,
};

impl<R: Runtime> Driver<R> {
    /// Whether it is noted who asks.
    #[inline]
    pub(crate) fn watches_holders(&self) -> bool {
        self.settings.labels.is_some()
    }

    /// The span of a check-out that begins to wait, where it is noted who asks.
    #[cfg(feature = "tracing")]
    pub(crate) fn span_of(&self, tag: Tag) -> Option<tracing::Span> {
        if !self.watches_holders() {
            return None;
        }
        let (label, place) = self.lock().who(tag);
        let span = crate::spans::of_check_out(label.as_deref(), place);
        (!span.is_disabled()).then_some(span)
    }

    /// The number of a label; none where nothing is noted.
    pub(crate) fn label(&self, text: &str) -> LabelId {
        self.settings.labels.as_ref().map_or(LabelId::NONE, |labels| labels.id(text))
    }

    /// A label for many check-outs.
    pub(crate) fn new_label(&self, text: &str) -> Label {
        Label::new(self.label(text), self.settings.number)
    }

    /// The number of a label that was made for a client, if it was this one.
    #[inline]
    pub(crate) fn own_label(&self, label: Label) -> LabelId {
        label.id_at(self.settings.number)
    }

    /// A command is about to be sent.
    pub(crate) fn note_command(&self, connection: Handle, name: &str) {
        let began = self.clock.now();
        let mut state = self.lock();
        let Some(name) = state.watch.as_ref().map(|watch| watch.command(name)) else { return };
        if let Some(activity) = state.activity(connection) {
            activity.command = Some(NotedCommand { name, began, ended: None });
        }
    }

    /// The last command has ended.
    pub(crate) fn note_end_of_command(&self, connection: Handle) {
        let now = self.clock.now();
        if let Some(command) = self.lock().activity(connection).and_then(|activity| activity.command.as_mut()) {
            command.ended = Some(now);
        }
    }

    /// Who holds a connection, the longest use first.
    pub(crate) fn in_use(&self) -> Vec<Holder> {
        let now = self.clock.now();
        self.lock().holders(now)
    }

    /// The check-outs that wait: for a server first, then those of each server in their order.
    pub(crate) fn waiting(&self) -> Vec<WaitingCheckOut> {
        let now = self.clock.now();
        self.lock().waiting_check_outs(now)
    }

    /// All of it at one moment.
    pub(crate) fn status(&self, options: &ClientOptions) -> ClientStatus {
        let now = self.clock.now();
        let state = self.lock();
        ClientStatus {
            uptime: now.saturating_since(Instant::ORIGIN),
            options: options.set_by_user().map(|(name, value)| (name, shown(&value))).collect(),
            servers: self.server_lines(&state),
            durations: state.machine.statistics(now).durations,
            in_use: state.holders(now),
            waiting: state.waiting_check_outs(now),
            folded_labels: state.watch.as_ref().map_or(0, |watch| watch.folded_labels()),
        }
    }

    /// What all pools have done until now.
    pub(crate) fn statistics(&self) -> Statistics {
        let now = self.clock.now();
        self.lock().machine.statistics(now)
    }

    /// What the pools of each server have done until now: its own, and those of further users.
    #[cfg(feature = "metrics")]
    pub(crate) fn pool_figures(&self) -> Vec<PoolFigures> {
        let now = self.clock.now();
        let state = self.lock();
        let figures = state.shown_pools().map(|(id, pool)| {
            let (min_pool_size, max_pool_size) = pool.sizes();
            let (address, user) = (state.address_of(id), self.user_of(&state, id));
            PoolFigures { id, address, user, statistics: pool.statistics(now), max_pool_size, min_pool_size }
        });
        figures.collect()
    }

    /// How many check-outs wait for a server.
    #[cfg(feature = "metrics")]
    pub(crate) fn selecting(&self) -> usize {
        self.lock().machine.selecting()
    }

    fn server_lines(&self, state: &State<R>) -> Vec<ServerLine> {
        let line = |(id, pool): (ServerId, &pool::Pool<_>)| {
            let server_type =
                state.machine.server(state.machine.member_of(id)).map(|server| server.description().server_type);
            ServerLine {
                address: state.address_of(id),
                user: self.user_of(state, id),
                server_type: server_type.unwrap_or(ServerType::Unknown),
                state: pool.state(),
                stats: pool.stats(),
            }
        };
        state.shown_pools().map(line).collect()
    }

    /// The user of a pool, where it is not that of the options.
    fn user_of(&self, state: &State<R>, pool: ServerId) -> Option<Arc<str>> {
        state.machine.identity_of_pool(pool).map(|identity| self.settings.name_of(identity))
    }

    /// How often a label was given that there was no room for.
    pub(crate) fn folded_labels(&self) -> u64 {
        self.settings.labels.as_ref().map_or(0, |labels| labels.folded())
    }
}

impl<R: Runtime> State<R> {
    pub(super) fn holders(&self, now: Instant) -> Vec<Holder> {
        let mut holders = Vec::new();
        for (id, pool) in self.machine.pools() {
            holders.extend(pool.connections_in_use().map(|held| self.holder(now, id, &held)));
        }
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.held_for));
        holders
    }

    fn waiting_check_outs(&self, now: Instant) -> Vec<WaitingCheckOut> {
        let told = |tag: Tag, since: Instant, waits_for| {
            let (label, place) = self.who(tag);
            WaitingCheckOut { waited: now.saturating_since(since), waits_for, label, place }
        };
        let mut waiting = Vec::new();
        for (selection, since) in self.machine.waiting_for_servers() {
            let tag = self.watch.as_ref().map(|watch| watch.tag_of_selection(selection)).unwrap_or_default();
            waiting.push(told(tag, since, WaitsFor::Server));
        }
        for (id, pool) in self.machine.pools() {
            let mut pending: Vec<_> = pool.establishing().collect();
            pending.iter_mut().for_each(|establishing| self.complete(id, establishing));
            for waiter in pool.waiting_check_outs() {
                let own = |establishing: &&pool::Establishing| waiter.establishing == Some(establishing.connection);
                let establishing = pending.iter().find(own).copied();
                let address = self.address_of(id);
                waiting.push(told(
                    self.tag(waiter.check_out),
                    waiter.since,
                    WaitsFor::Connection { address, establishing },
                ));
            }
        }
        waiting
    }

    /// The server of a pool.
    pub(super) fn address_of(&self, pool: ServerId) -> Arc<ServerAddress> {
        let server = self.machine.server(pool);
        Arc::clone(server.map_or(&self.first_seed, |server| &server.description().address))
    }

    /// The pools of servers that belong to the deployment, and those of users who do; each server's own one first.
    fn shown_pools(&self) -> impl Iterator<Item = (ServerId, &pool::Pool<Box<Socket<R::Stream>>>)> {
        let belongs = |id: ServerId, pool: &pool::Pool<Box<Socket<R::Stream>>>| match self.machine.identity_of_pool(id)
        {
            Some(_) => pool.state() != PoolState::Closed,
            None => self.machine.server(id).is_some_and(|server| !server.has_left()),
        };
        let mut pools: Vec<_> = self.machine.pools().filter(|&(id, pool)| belongs(id, pool)).collect();
        pools.sort_by_key(|&(id, _)| (self.machine.member_of(id), id));
        pools.into_iter()
    }

    fn tag(&self, check_out: pool::CheckOutId) -> Tag {
        self.watch.as_ref().map(|watch| watch.tag(check_out)).unwrap_or_default()
    }

    fn who(&self, tag: Tag) -> (Option<Arc<str>>, Option<Place>) {
        (self.watch.as_ref().and_then(|watch| watch.label_text(tag.label)), tag.place.map(Place::from))
    }

    pub(super) fn holder(&self, now: Instant, server: ServerId, held: &pool::InUse) -> Holder {
        let (label, place) = self.who(self.tag(held.check_out));
        let activity = self.activities.get(&(server, held.connection.id()));
        // One before its delivery was an earlier holder's.
        let command = activity.and_then(|activity| activity.command).filter(|command| command.began >= held.since);
        Holder {
            address: self.address_of(server),
            connection_id: held.connection.id(),
            server_connection_id: activity.and_then(|activity| activity.server_connection_id),
            held_for: now.saturating_since(held.since),
            purpose: held.purpose,
            label,
            place,
            command: command.and_then(|command| {
                Some(CommandInUse {
                    name: self.watch.as_ref()?.command_text(command.name)?,
                    began: now.saturating_since(command.began),
                    ended: command.ended.map(|ended| now.saturating_since(ended)),
                })
            }),
        }
    }

    /// Adds what the machine does not know of an establishment.
    fn complete(&self, server: ServerId, establishing: &mut pool::Establishing) {
        let activity = self.activities.get(&(server, establishing.connection));
        establishing.phase = activity.and_then(|activity| activity.abort.phase());
    }

    /// Adds to an error what the machine does not know: who holds the connections, and what establishments are at.
    pub(super) fn explain(&mut self, now: Instant, server: ServerId, error: &mut Arc<CheckOutError>) {
        match error.bound_by {
            Some(WaitBound::MaxPoolSize { .. }) if self.watch.is_some() => {
                Arc::make_mut(error).held_by = self.held_by(now, server);
            }
            Some(WaitBound::Establishment(_) | WaitBound::MaxConnecting { .. }) => {
                if let Some(WaitBound::Establishment(own) | WaitBound::MaxConnecting { longest: own, .. }) =
                    &mut Arc::make_mut(error).bound_by
                {
                    self.complete(server, own);
                }
            }
            _ => {}
        }
    }

    /// Who holds a server's connections, by label and place, the longest use first. Many check-outs can end at once: the
    /// answer is kept for those that do.
    fn held_by(&mut self, now: Instant, id: ServerId) -> Arc<[HeldBy]> {
        let (Some(watch), Some(server)) = (&self.watch, self.machine.server(id)) else { return Arc::default() };
        let stats = server.pool().stats();
        let moment = (id, now, stats.checked_out, stats.checked_in);
        if let Some((at, held_by)) = &watch.held_by
            && *at == moment
        {
            return Arc::clone(held_by);
        }
        let mut groups: Vec<(Tag, u32, Duration)> = Vec::new();
        for held in server.pool().connections_in_use() {
            let (tag, time) = (watch.tag(held.check_out), now.saturating_since(held.since));
            match groups.iter_mut().find(|(own, ..)| *own == tag) {
                Some((_, connections, longest)) => (*connections, *longest) = (*connections + 1, time.max(*longest)),
                None => groups.push((tag, 1, time)),
            }
        }
        groups.sort_by_key(|(.., longest)| std::cmp::Reverse(*longest));
        let told = |(tag, connections, longest): (Tag, u32, Duration)| {
            let (label, place) = self.who(tag);
            HeldBy { holder: Who { label: label.as_deref(), place }.to_string().into(), connections, longest }
        };
        let held_by: Arc<[HeldBy]> = groups.into_iter().map(told).collect();
        if let Some(watch) = &mut self.watch {
            watch.held_by = Some((moment, Arc::clone(&held_by)));
        }
        held_by
    }
}
