//! Watches a replay for what the picture shows.

use std::collections::BTreeMap;

use cmap_core::monitor::Finding;
use cmap_core::pool::{self, Action, ConnectionState, Counts, Handle, Kept, Pool, PoolState};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{Input, Output, Topology};
use cmap_core::trace::{Divergence, Replay, Step, Trace};

use super::super::rounding::time;
use super::connections::Slots;
use super::holders::Holders;
use super::{Closing, Mark, MarkKind, Pause, Picture, PoolPicture, Span};

/// Repeats all calls. The picture has no waits yet.
pub(super) fn observe(trace: &Trace) -> Result<Picture, Box<Divergence>> {
    let began = trace.segments.first().map_or(Instant::ORIGIN, |first| first.snapshot.now());
    let mut observer = Observer::new(trace, began);
    if let Some(mut replay) = Replay::new(trace) {
        observer.look(replay.machine(), None);
        while let Some(step) = replay.step()? {
            observer.take(&step, replay.machine());
        }
    }
    Ok(observer.end())
}

struct Observer<'a> {
    trace: &'a Trace,
    picture: Picture,
    watched: Vec<Watched>,
    places: BTreeMap<ServerId, usize>,
    holders: Holders,
    /// The last span of each connection that was closed.
    closed: BTreeMap<Handle, (usize, usize)>,
    now: Instant,
}

/// What is known of a pool from the call before.
#[derive(Default)]
struct Watched {
    slots: Slots,
    counts: Option<Counts>,
    cleared: Option<u64>,
    paused: Option<(Instant, String)>,
    /// The last clear, by its place among the marks.
    clear: Option<usize>,
}

impl<'a> Observer<'a> {
    fn new(trace: &'a Trace, began: Instant) -> Self {
        Self {
            trace,
            picture: Picture::empty(began),
            watched: Vec::new(),
            places: BTreeMap::new(),
            holders: Holders::default(),
            closed: BTreeMap::new(),
            now: began,
        }
    }

    fn take(&mut self, step: &Step<'_>, machine: &Topology<()>) {
        self.picture.calls += 1;
        self.holders.take(step);
        self.look(machine, Some(step.input));
        if let Input::Check(server, finding) = step.input {
            self.mark_finding(*server, finding);
        }
        for output in &step.outputs {
            if let Output::Pool { output: pool::Output::Action(Action::Close { connection, reason, .. }), .. } = output
            {
                self.name_reason(*connection, reason.to_string());
            }
        }
    }

    /// Compares the state with the one before.
    fn look(&mut self, machine: &Topology<()>, input: Option<&Input>) {
        self.now = self.now.max(machine.now());
        let mut is_there = vec![false; self.watched.len()];
        for (id, pool) in machine.pools() {
            let place = self.place(id, pool);
            is_there.get_mut(place).into_iter().for_each(|it| *it = true);
            self.look_at_clears(place, pool, input);
            self.look_at_connections(place, Some(pool), input);
            self.look_at_state(place, Some(pool));
        }
        let gone: Vec<usize> = (0..is_there.len()).filter(|&place| is_there.get(place) == Some(&false)).collect();
        for place in gone {
            self.look_at_connections(place, None, input);
            self.look_at_state(place, None);
        }
    }

    fn place(&mut self, id: ServerId, pool: &Pool<()>) -> usize {
        *self.places.entry(id).or_insert_with(|| {
            let address = pool.address().to_string();
            let others = self.picture.pools.iter().filter(|it| it.name.split(' ').next() == Some(&address)).count();
            let name = if others == 0 { address } else { format!("{address} ({})", others + 1) };
            let (spans, pauses, marks, counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            self.picture.pools.push(PoolPicture { name, spans, pauses, marks, counts });
            self.watched.push(Watched::default());
            self.watched.len() - 1
        })
    }

    fn look_at_clears(&mut self, place: usize, pool: &Pool<()>, input: Option<&Input>) {
        let cleared = pool.stats().cleared;
        let (now, Some(watched), Some(picture)) =
            (self.now, self.watched.get_mut(place), self.picture.pools.get_mut(place))
        else {
            return;
        };
        if watched.cleared.replace(cleared).is_some_and(|before| before < cleared) {
            watched.clear = Some(picture.marks.len());
            let text = input.map_or_else(String::new, cause_of);
            picture.marks.push(Mark { at: now, kind: MarkKind::Cleared, text });
        }
    }

    fn look_at_connections(&mut self, place: usize, pool: Option<&Pool<()>>, input: Option<&Input>) {
        let (now, Some(watched), Some(picture)) =
            (self.now, self.watched.get_mut(place), self.picture.pools.get_mut(place))
        else {
            return;
        };
        for (ended, from) in watched.slots.look(pool, now) {
            let closing = (!watched.slots.goes_on(&ended))
                .then(|| Closing { reason: closed_by(&ended, input), clear: watched.clear_at(picture, now) });
            if closing.is_some() {
                self.closed.insert(ended.connection, (place, picture.spans.len()));
            }
            let holder = ended.check_out.and_then(|check_out| self.holders.of(self.trace, check_out));
            picture.spans.push(span(&ended, from, now, holder, closing));
        }
        let counts = pool.map(Pool::counts).unwrap_or_default();
        if watched.counts.replace(counts) != Some(counts) {
            match picture.counts.last_mut() {
                Some((at, last)) if *at == now => *last = counts,
                _ => picture.counts.push((now, counts)),
            }
        }
    }

    fn look_at_state(&mut self, place: usize, pool: Option<&Pool<()>>) {
        let (now, Some(watched), Some(picture)) =
            (self.now, self.watched.get_mut(place), self.picture.pools.get_mut(place))
        else {
            return;
        };
        let paused = pool.filter(|pool| pool.state() == PoolState::Paused).and_then(Pool::pause);
        let is_same = paused.map(|(since, _)| since) == watched.paused.as_ref().map(|(since, _)| *since);
        if !is_same {
            let began = self.picture.began;
            let before =
                core::mem::replace(&mut watched.paused, paused.map(|(since, cause)| (since, cause.to_string())));
            picture.pauses.extend(before.map(|(since, cause)| Pause { from: since.max(began), to: now, cause }));
        }
    }

    fn mark_finding(&mut self, server: ServerId, finding: &Finding) {
        let Some(picture) = self.places.get(&server).and_then(|&place| self.picture.pools.get_mut(place)) else {
            return;
        };
        let (kind, text) = match finding {
            Finding::Description(description) => {
                let took =
                    description.round_trip_time.map(|took| format!(", round trip {}", time(took))).unwrap_or_default();
                (MarkKind::Found, format!("{}{took}", description.server_type))
            }
            Finding::Failure { cause, .. } => (MarkKind::Lost, cause.to_string()),
        };
        picture.marks.push(Mark { at: self.now, kind, text });
    }

    /// The reason comes with an output, which may be polled later.
    fn name_reason(&mut self, connection: Handle, reason: String) {
        let Some((place, span)) = self.closed.remove(&connection) else { return };
        let Some(picture) = self.picture.pools.get_mut(place) else { return };
        let Some(span) = picture.spans.get_mut(span) else { return };
        let last_clear = picture.marks.iter().enumerate().rev();
        let mut clears = last_clear.filter(|(_, mark)| mark.kind == MarkKind::Cleared && mark.at <= span.to);
        let clear = if reason == "stale" { clears.next().map(|(at, _)| at) } else { None };
        span.closing = Some(Closing { reason, clear });
    }

    fn end(mut self) -> Picture {
        self.now = self.now.max(self.trace.header.written_at);
        let now = self.now;
        for (picture, watched) in self.picture.pools.iter_mut().zip(&mut self.watched) {
            for (kept, from) in watched.slots.rest() {
                let holder = kept.check_out.and_then(|check_out| self.holders.of(self.trace, check_out));
                picture.spans.push(span(&kept, from, now, holder, None));
            }
            let began = self.picture.began;
            let paused = watched.paused.take();
            picture.pauses.extend(paused.map(|(since, cause)| Pause { from: since.max(began), to: now, cause }));
        }
        self.picture.ended = now;
        self.picture
    }
}

impl Watched {
    /// The clear that was made at this moment.
    fn clear_at(&self, picture: &PoolPicture, now: Instant) -> Option<usize> {
        self.clear.filter(|&clear| picture.marks.get(clear).is_some_and(|mark| mark.at == now))
    }
}

fn span(kept: &Kept, from: Instant, to: Instant, holder: Option<String>, closing: Option<Closing>) -> Span {
    let Kept { slot, connection, state, check_out, .. } = *kept;
    Span { slot, connection, state, from, to, check_out, holder, closing }
}

/// Why a connection was closed, where no output says so.
fn closed_by(ended: &Kept, input: Option<&Input>) -> String {
    match input {
        Some(Input::EstablishFailed(connection, error)) if *connection == ended.connection => error.to_string(),
        _ if ended.state == ConnectionState::Pending => "interrupted".to_owned(),
        _ => "closed".to_owned(),
    }
}

/// What made a call clear a pool.
fn cause_of(input: &Input) -> String {
    if let Input::EstablishFailed(connection, error) = input {
        format!("connection {}: {error}", connection.id())
    } else if let Input::OperationFailed(connection, error) | Input::RefreshFailed(connection, error) = input {
        format!("connection {}: {}", connection.id(), error.cause)
    } else if let Input::Check(_, Finding::Failure { cause, .. }) = input {
        format!("check: {cause}")
    } else if let Input::Clear(clear) = input {
        clear.cause.to_string()
    } else {
        String::new()
    }
}
