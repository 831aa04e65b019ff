//! What a page knows: a picture in few words. Times are nanoseconds since its beginning.

use std::time::Duration;

use cmap_core::pool::{ConnectionState, Counts};
use cmap_core::time::Instant;
use cmap_core::trace::{Interval, Trace, Wait, WaitEnd};
use serde::Serialize;

use super::super::explanation::{NO_HOLDER, end, headline, lacks_holders, name, told, told_once};
use super::super::picture::{MarkKind, Picture, PoolPicture, Span, lanes, name_of};
use super::super::rounding::rounded;

/// Most spans that a page shows: the last ones.
const SPANS: usize = 100_000;

/// A check-out that got its connection sooner is counted and not listed, unless none waited longer.
const BRIEF: Duration = Duration::from_millis(1);

/// All of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data<'a> {
    producer: &'a str,
    trigger: &'a str,
    behaviour: u32,
    unix_millis: Option<u64>,
    calls: u64,
    /// The time of the machine at which the picture begins.
    origin: u64,
    length: u64,
    /// What came before this is left out.
    shown_from: u64,
    pools: Vec<PoolData<'a>>,
    waits: Vec<WaitData<'a>>,
    /// With those that are not shown.
    all_waits: usize,
    all_failures: usize,
    /// Those that are not listed because they are brief.
    brief_waits: usize,
    /// A sentence about holders that are missing.
    no_holder: Option<&'static str>,
}

#[derive(Serialize)]
struct PoolData<'a> {
    name: &'a str,
    slots: u32,
    spans: Vec<SpanData<'a>>,
    pauses: Vec<(u64, u64, String)>,
    marks: Vec<(u64, &'static str, String)>,
    /// The time, then: in use, available, pending, waiting.
    counts: Vec<[u64; 5]>,
}

/// The slot, the connection, the state, from, to; then what may be missing: the holder, and why it was closed.
#[derive(Serialize)]
struct SpanData<'a>(u32, u64, &'static str, u64, u64, Option<&'a str>, Option<&'a str>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitData<'a> {
    /// The number of its call, or what stands for it.
    id: String,
    by: Option<&'a str>,
    began: u64,
    ended: u64,
    lane: usize,
    outcome: &'static str,
    end: String,
    headline: String,
    cause: Option<&'static str>,
    explanation: Option<String>,
    /// The pool and the slot of the connection that it got.
    led_to: Option<(usize, u32)>,
    intervals: Vec<IntervalData>,
    /// When, and what; before the picture begins, too.
    occurrences: Vec<(i64, String)>,
}

/// The limit, from, to, and what it was, unless that is said already.
#[derive(Serialize)]
struct IntervalData(&'static str, u64, u64, Option<String>);

impl<'a> Data<'a> {
    pub(super) fn of(trace: &'a Trace, picture: &'a Picture) -> Self {
        let shown_from = shown_from(picture);
        let clock = Clock(picture.began);
        let is_failed = |wait: &&Wait| matches!(wait.end, WaitEnd::Failed { .. });
        let shown = listed(picture);
        Self {
            producer: &trace.header.producer,
            trigger: &trace.header.trigger,
            behaviour: trace.header.behaviour,
            unix_millis: trace.header.unix_millis,
            calls: picture.calls,
            origin: picture.began.as_nanos(),
            length: clock.nanos(picture.ended),
            shown_from: clock.nanos(shown_from),
            pools: picture.pools.iter().map(|pool| pool_data(pool, clock, shown_from)).collect(),
            brief_waits: if shown.iter().any(|wait| is_brief(wait)) { 0 } else { brief(picture) },
            no_holder: shown.iter().any(|wait| lacks_holders(wait)).then_some(NO_HOLDER),
            waits: wait_data(picture, &shown, clock),
            all_waits: picture.waits.len(),
            all_failures: picture.waits.iter().filter(is_failed).count(),
        }
    }
}

/// Nanoseconds since the beginning of the picture.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn nanos(self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.0.as_nanos())
    }

    /// Nanoseconds from the origin of the page, negative where `at` is earlier.
    fn signed(self, at: Instant) -> i64 {
        at.as_nanos().wrapping_sub(self.0.as_nanos()).cast_signed()
    }
}

/// The time from which on there are not too many spans.
fn shown_from(picture: &Picture) -> Instant {
    let mut ends: Vec<Instant> = picture.pools.iter().flat_map(|pool| &pool.spans).map(|span| span.to).collect();
    ends.sort_unstable();
    let surplus = ends.len().saturating_sub(SPANS);
    surplus.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(picture.began)
}

fn pool_data(pool: &PoolPicture, clock: Clock, from: Instant) -> PoolData<'_> {
    // Of what ended before, nothing; the last count before it is the count then.
    let known = pool.counts.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
    PoolData {
        name: &pool.name,
        slots: pool.spans.iter().map(|span| span.slot + 1).max().unwrap_or(0),
        spans: pool.spans.iter().filter(|span| span.to >= from).map(|span| span_data(span, clock)).collect(),
        pauses: pool.pauses.iter().map(|it| (clock.nanos(it.from), clock.nanos(it.to), rounded(&it.cause))).collect(),
        marks: pool.marks.iter().map(|it| (clock.nanos(it.at), kind(it.kind), rounded(&it.text))).collect(),
        counts: pool.counts.iter().skip(known).map(|(at, counts)| count_data(clock.nanos(*at), counts)).collect(),
    }
}

fn span_data(span: &Span, clock: Clock) -> SpanData<'_> {
    let closing = span.closing.as_ref().map(|closing| closing.reason.as_str());
    let holder = name(span.holder.as_deref()).filter(|_| span.state == ConnectionState::InUse);
    let (from, to) = (clock.nanos(span.from), clock.nanos(span.to));
    SpanData(span.slot, span.connection.id().get(), name_of(span.state), from, to, holder, closing)
}

fn kind(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Cleared => "cleared",
        MarkKind::Found => "found",
        MarkKind::Lost => "lost",
    }
}

fn count_data(at: u64, counts: &Counts) -> [u64; 5] {
    [at, counts.in_use.into(), counts.available.into(), counts.pending.into(), counts.waiting.into()]
}

fn is_brief(wait: &Wait) -> bool {
    matches!(wait.end, WaitEnd::Delivered { .. }) && wait.duration() < BRIEF
}

fn brief(picture: &Picture) -> usize {
    picture.waits.iter().filter(|wait| is_brief(wait)).count()
}

/// The waits that are explained, in the order of their beginnings, without the brief ones if there are others.
fn listed(picture: &Picture) -> Vec<&Wait> {
    let explained: Vec<&Wait> = picture.explained.iter().filter_map(|&at| picture.waits.get(at)).collect();
    let listed: Vec<&Wait> = explained.iter().copied().filter(|wait| !is_brief(wait)).collect();
    if listed.is_empty() { explained } else { listed }
}

fn wait_data<'a>(picture: &'a Picture, shown: &[&'a Wait], clock: Clock) -> Vec<WaitData<'a>> {
    let mut before = 0_u32;
    let mut id = |call: Option<u64>| {
        before += u32::from(call.is_none());
        call.map_or_else(|| format!("before-{before}"), |call| call.to_string())
    };
    let lanes = lanes(shown.iter().copied());
    let waits = shown.iter().zip(lanes);
    waits
        .map(|(&wait, lane)| WaitData {
            id: id(wait.call),
            by: name(wait.holder.as_deref()),
            began: clock.nanos(wait.began),
            ended: clock.nanos(wait.ended.max(wait.began)),
            lane,
            outcome: outcome(&wait.end),
            end: end(wait),
            headline: headline(wait),
            cause: wait.cause().map(|cause| cause.limit.name()),
            explanation: wait.cause().map(told),
            led_to: led_to(picture, wait),
            occurrences: wait
                .occurrences
                .iter()
                .map(|it| (clock.signed(it.at), rounded(&it.what.to_string())))
                .collect(),
            intervals: interval_data(wait, clock),
        })
        .collect()
}

fn led_to(picture: &Picture, wait: &Wait) -> Option<(usize, u32)> {
    let (pool, span) = picture.use_after(wait)?;
    Some((pool, picture.pools.get(pool)?.spans.get(span)?.slot))
}

fn interval_data(wait: &Wait, clock: Clock) -> Vec<IntervalData> {
    let data = |(interval, text): (&Interval, _)| {
        IntervalData(interval.limit.name(), clock.nanos(interval.from), clock.nanos(interval.to), text)
    };
    wait.intervals.iter().zip(told_once(wait)).map(data).collect()
}

fn outcome(end: &WaitEnd) -> &'static str {
    match end {
        WaitEnd::Delivered { .. } => "got a connection",
        WaitEnd::Failed { .. } => "failed",
        WaitEnd::Cancelled => "gave up",
        WaitEnd::Open => "open",
    }
}
