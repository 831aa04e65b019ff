//! A picture as a trace for Perfetto (<https://ui.perfetto.dev>), in its binary format, `TrackEvent`.
//!
//! Each pool is a process: a track of what happened to it, its counts, and a track for each slot. Those who wait are a process of
//! their own, with as many lanes as wait at once. Arrows lead from a wait to the connection that it got, and from a clear to the
//! connections that it closed.

mod packet;
mod protobuf;

use std::io::{self, Write};

use cmap_core::pool::{ConnectionState, Counts};
use cmap_core::time::Instant;
use cmap_core::trace::{Trace, Wait};

use self::packet::{Event, Kind, Track};
use self::protobuf::Message;
use super::explanation::{end, headline, name, told};
use super::picture::{MarkKind, Picture, PoolPicture, Span, lanes, name_of};

/// Writes the whole file.
pub(super) fn write(trace: &Trace, picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    let mut drawing = Drawing::default();
    if let Some(millis) = trace.header.unix_millis {
        drawing.packets.push(packet::clocks(trace.header.written_at, millis));
    }
    drawing.draw_waits(picture);
    for (place, pool) in picture.pools.iter().enumerate() {
        drawing.draw_pool(picture, place, pool);
    }
    // Each track's events are in their order already, and stay so. An arrow's beginning was drawn before its end.
    drawing.events.sort_by_key(Event::at);
    let packets = drawing.packets.into_iter().chain(drawing.events.iter().map(Event::packet));
    packets.map(|packet| Message::default().message(1, &packet)).try_for_each(|it| out.write_all(it.as_bytes()))
}

#[derive(Default)]
struct Drawing {
    packets: Vec<Message>,
    events: Vec<Event>,
    tracks: u64,
}

/// A number of a pool over time, and its name.
type Counter = (&'static str, fn(&Counts) -> u32);

/// Arrows from clears have other numbers than those from waits.
const CLEAR: u64 = 1 << 63;

impl Drawing {
    fn process(&mut self, number: usize, name: &str) -> Track {
        self.tracks += 1;
        self.packets.push(packet::process(self.tracks, number as u64, name));
        self.tracks
    }

    fn track(&mut self, parent: Track, name: &str, rank: usize) -> Track {
        self.tracks += 1;
        self.packets.push(packet::track(self.tracks, parent, name, u32::try_from(rank).unwrap_or(u32::MAX)));
        self.tracks
    }

    fn slice(&mut self, track: Track, from: Instant, to: Instant, begin: impl FnOnce(Event) -> Event) {
        self.events.push(begin(Event::new(from, Kind::Begin, track)));
        self.events.push(Event::new(to.max(from), Kind::End, track));
    }

    // Those who wait.

    fn draw_waits(&mut self, picture: &Picture) {
        if picture.waits.is_empty() {
            return;
        }
        let process = self.process(1, "waiting check-outs");
        let mut tracks: Vec<Track> = Vec::new();
        for ((number, wait), lane) in (1..).zip(&picture.waits).zip(lanes(picture.waits.iter())) {
            if lane == tracks.len() {
                tracks.push(self.track(process, &format!("lane {}", lane + 1), lane));
            }
            let Some(&track) = tracks.get(lane) else { continue };
            self.draw_wait(track, wait, picture.use_after(wait).map(|_| number));
        }
    }

    fn draw_wait(&mut self, track: Track, wait: &Wait, flow: Option<u64>) {
        let call = wait.call.map(|call| call.to_string()).unwrap_or_default();
        let begin = Event::new(wait.began, Kind::Begin, track)
            .named("wait", name(wait.holder.as_deref()).unwrap_or("check-out"))
            .with("call", &call)
            .with("end", &end(wait))
            .with("explanation", &wait.cause().map(told).unwrap_or_default())
            .with("in short", &headline(wait));
        self.events.push(flow.into_iter().fold(begin, Event::begins_flow));
        for interval in &wait.intervals {
            let begin = |event: Event| event.named("limit", interval.limit.name()).with("explanation", &told(interval));
            self.slice(track, interval.from, interval.to, begin);
        }
        self.events.push(Event::new(wait.ended.max(wait.began), Kind::End, track));
    }

    // A pool.

    fn draw_pool(&mut self, picture: &Picture, place: usize, pool: &PoolPicture) {
        // The first process is that of those who wait.
        let process = self.process(place + 2, &pool.name);
        self.draw_state(process, place, pool);
        self.draw_counts(process, pool);
        let slots = pool.spans.iter().map(|span| span.slot).max().map_or(0, |slot| slot + 1);
        for slot in 0..slots {
            let track = self.track(process, &format!("slot {}", slot + 1), 6 + slot as usize);
            let spans = pool.spans.iter().enumerate().filter(|(_, span)| span.slot == slot);
            spans.for_each(|(number, span)| self.draw_span(picture, track, (place, number), span));
        }
    }

    fn draw_state(&mut self, process: Track, place: usize, pool: &PoolPicture) {
        let track = self.track(process, "state", 0);
        // Marks come before what else begins and ends at the same time: they are why.
        for (number, mark) in pool.marks.iter().enumerate() {
            let event = Event::new(mark.at, Kind::Instant, track);
            self.events.push(match mark.kind {
                MarkKind::Cleared => {
                    let closed = (0..).zip(&pool.spans).filter(|(_, span)| span.clear() == Some(number));
                    let event = event.named("clear", "cleared").with("cause", &mark.text);
                    closed.fold(event, |event, (span, _)| event.begins_flow(flow_of_clear(place, span)))
                }
                MarkKind::Found => event.named("check", "check succeeded").with("server", &mark.text),
                MarkKind::Lost => event.named("check", "check failed").with("cause", &mark.text),
            });
        }
        let track = self.track(process, "paused", 1);
        for pause in &pool.pauses {
            self.slice(track, pause.from, pause.to, |event| event.named("state", "paused").with("cause", &pause.cause));
        }
    }

    fn draw_counts(&mut self, process: Track, pool: &PoolPicture) {
        let counters: [Counter; 4] = [
            ("waiting", |counts| counts.waiting),
            ("in use", |counts| counts.in_use),
            ("available", |counts| counts.available),
            ("pending", |counts| counts.pending),
        ];
        for (rank, (name, count)) in (2..).zip(counters) {
            self.tracks += 1;
            let track = self.tracks;
            self.packets.push(packet::counter(track, process, name, rank));
            let mut last = None;
            for (at, counts) in &pool.counts {
                let count = count(counts);
                if last.replace(count) != Some(count) {
                    self.events.push(Event::new(*at, Kind::Counter, track).value(count));
                }
            }
        }
    }

    fn draw_span(&mut self, picture: &Picture, track: Track, (pool, number): (usize, usize), span: &Span) {
        let connection = span.connection.id().to_string();
        let holder = name(span.holder.as_deref()).filter(|_| span.state == ConnectionState::InUse);
        let name = holder.unwrap_or_else(|| name_of(span.state));
        let waited = span.check_out.and_then(|check_out| picture.wait_before(check_out));
        self.slice(track, span.from, span.to, |event| {
            let event = event.named(name_of(span.state), name).with("connection", &connection);
            waited.into_iter().fold(event, Event::ends_flow)
        });
        if let Some(closing) = &span.closing {
            let closed =
                Event::new(span.to, Kind::Instant, track).named("close", &format!("closed: {}", closing.reason));
            let closed = closed.with("connection", &connection);
            let flow = closing.clear.map(|_| flow_of_clear(pool, number as u64));
            self.events.push(flow.into_iter().fold(closed, Event::ends_flow));
        }
    }
}

fn flow_of_clear(pool: usize, span: u64) -> u64 {
    CLEAR | (pool as u64) << 40 | span
}
