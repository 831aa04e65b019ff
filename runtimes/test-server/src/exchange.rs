//! One request and its replies, in stages.
//!
//! ```text
//! Fresh --fail point: delay--> Blocked --hello: await news--> Awaited --> reply --stream--> Fresh
//!                                     --getMore: await data--> AwaitedData --> reply
//!                                     --read: member too far behind--> Behind --> reply
//!                                     --$where: sleep--> Slept --write: other members--> Replicating --> reply
//! ```
//!
//! Stages are left out where there is nothing to wait for. A request that waits keeps its bytes and is read anew
//! afterwards, so that nothing is copied for requests that do not wait.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::wire::{CompressorId, Decoder, Incoming, Limits, TopologyVersion};

use super::client::{Done, Line, Stage, Waiting};
use super::fail_command::Fate;
use super::failure::fail;
use super::hello;
use super::replies::Replies;
use super::request::{AnswerForm, AnswerKind, Arguments, Body, Request};
use super::service::{Reply, Service};
use super::write_concern::Progress as Replication;
use super::{ClientId, MAX_QUEUED, PATIENCE, ServerOutput};
use crate::store::{CommandFailure, code};

/// The shortest time between two streamed replies, whatever the client asks for.
const LEAST_AWAIT: Duration = Duration::from_millis(1);

/// The parts that carry out the requests of all clients.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) service: Service,
    pub(super) outputs: VecDeque<ServerOutput>,
    /// The clients that wait, and until when.
    pub(super) due: BTreeSet<(Instant, ClientId)>,
    /// The clients whose getMore waits for documents, and some that no longer do.
    pub(super) awaiting_data: BTreeSet<ClientId>,
    decoder: Decoder,
    replies: Replies,
}

/// The result of a request.
#[must_use]
pub(super) enum Progress {
    /// It was answered, or needs no answer, or waits.
    Done,
    /// The client broke the protocol, or a fail point hangs up.
    HangUp,
}

impl Exchange {
    pub(super) fn new(service: Service) -> Self {
        Self {
            service,
            outputs: VecDeque::new(),
            due: BTreeSet::new(),
            awaiting_data: BTreeSet::new(),
            decoder: Decoder::new(),
            replies: Replies::default(),
        }
    }

    /// Takes the request in `frame` from `stage` on, through as many stages as it can pass now.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        line: &mut Line,
        frame: &[u8],
        last_reply: Option<i32>,
        stage: Stage,
    ) -> Progress {
        let mut decoder = std::mem::take(&mut self.decoder);
        let progress = match decoder.decode(frame, &Limits::DEFAULT) {
            Ok(incoming) => self.carry_out(now, line, frame, &incoming, last_reply, stage),
            Err(_) => Progress::HangUp,
        };
        self.decoder = decoder;
        progress
    }

    fn carry_out(
        &mut self,
        now: Instant,
        line: &mut Line,
        frame: &[u8],
        incoming: &Incoming<'_>,
        mut last_reply: Option<i32>,
        mut stage: Stage,
    ) -> Progress {
        if last_reply.is_none() && matches!(stage, Stage::Fresh) && !self.admit(frame, incoming) {
            return Progress::HangUp;
        }
        let body = match Body::of(incoming) {
            Some(Ok(body)) => body,
            Some(Err((answer, failure))) => return self.refuse(now, line, answer, failure),
            None => return Progress::HangUp,
        };
        let request = match body.request() {
            Ok(request) => request,
            Err(failure) => return self.refuse(now, line, body.form(), failure),
        };
        let answer = request.answer;
        loop {
            let (mut awaits_data_until, mut behind_until) = (None, None);
            let (effect, has_waited) = match stage {
                Stage::Fresh => {
                    let effect = self.service.fail_points.hit(&line.identity, &request);
                    if !effect.delay.is_zero() {
                        let until = Some(now + effect.delay);
                        return self.wait(line, until, frame, last_reply, Stage::Blocked(effect));
                    }
                    (effect, false)
                }
                Stage::Blocked(effect) => (effect, false),
                Stage::Awaited(effect) => (effect, true),
                Stage::AwaitedData { effect, until } => {
                    awaits_data_until = Some(until);
                    (effect, false)
                }
                Stage::Behind { effect, until } => {
                    behind_until = Some(until);
                    (effect, false)
                }
                Stage::Slept { done, until } => {
                    if let Some(goal) = &done.goal
                        && self.service.is_interrupted(goal)
                    {
                        let reply = self.service.interruption(now, &request);
                        self.send(line, answer, request.name, &reply, false);
                        return Progress::Done;
                    }
                    if until > now {
                        return self.wait(line, Some(until), frame, last_reply, Stage::Slept { done, until });
                    }
                    return self.finish(now, line, frame, last_reply, &request, *done);
                }
                Stage::Replicating(done) => return self.finish(now, line, frame, last_reply, &request, *done),
            };
            let is_carried_out = match effect.fate {
                Fate::CloseConnection => return Progress::HangUp,
                Fate::Error { .. } => false,
                Fate::Proceed => true,
            };
            let mut streams = false;
            if is_carried_out && request.is_hello() {
                let wait = match self.wait_for_news(&request, last_reply.and(line.told)) {
                    Ok(wait) => wait,
                    Err(failure) => return self.refuse(now, line, answer, failure),
                };
                streams = wait.is_some() && matches!(answer.kind, AnswerKind::Messages { .. });
                if let Some(wait) = wait.filter(|wait| !has_waited && !wait.is_zero()) {
                    return self.wait(line, Some(now + wait), frame, last_reply, Stage::Awaited(effect));
                }
            }
            if is_carried_out && self.service.must_wait_to_read(&request) {
                let until = behind_until.unwrap_or_else(|| time_limit(&request).map(|limit| now + limit));
                if until.is_some_and(|until| until <= now) {
                    let failure = fail(code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit");
                    return self.refuse(now, line, answer, failure);
                }
                return self.wait(line, until, frame, last_reply, Stage::Behind { effect, until });
            }
            let reply = self.service.answer(now, &mut line.identity, &request, &effect);
            // Taken here in any case, so that neither meets another client's command.
            let slept = std::mem::take(&mut self.service.slept);
            let goal = self.service.goal.take();
            if line.identity.has_ended {
                return Progress::HangUp;
            }
            if is_carried_out && let Some(wait) = self.service.wait_for_data(&request, &reply) {
                let until = awaits_data_until.unwrap_or(now + wait);
                if until > now {
                    self.awaiting_data.insert(line.id);
                    return self.wait(line, Some(until), frame, last_reply, Stage::AwaitedData { effect, until });
                }
            }
            if !slept.is_zero() {
                let until = now + slept;
                let stage = Stage::Slept { done: Box::new(Done { reply, goal }), until };
                return self.wait(line, Some(until), frame, last_reply, stage);
            }
            if goal.is_some() {
                return self.finish(now, line, frame, last_reply, &request, Done { reply, goal });
            }
            streams |= may_go_on(line, &request, &reply) && self.service.work < PATIENCE;
            streams &= !reply.is_error;
            let answer = AnswerForm { response_to: last_reply.unwrap_or(answer.response_to), ..answer };
            let number = self.send(line, answer, request.name, &reply, streams);
            if request.is_hello() {
                line.told = Some(self.service.topology_version());
            }
            if !streams {
                return Progress::Done;
            }
            (last_reply, stage) = (Some(number), Stage::Fresh);
        }
    }

    /// How long a hello waits for news: `None` if it does not ask for any, zero if there are some. `told` is what the last reply of a
    /// stream has told.
    fn wait_for_news(
        &self,
        request: &Request<'_>,
        told: Option<TopologyVersion>,
    ) -> Result<Option<Duration>, CommandFailure> {
        let Some(news) = hello::wait_for_news(request)? else { return Ok(None) };
        match told {
            // A fail point may have held the request since.
            Some(told) if told != self.service.topology_version() => Ok(Some(Duration::ZERO)),
            Some(_) => Ok(Some(news.wait.max(LEAST_AWAIT))),
            None => Ok(Some(if news.are_there(self.service.topology_version())? { Duration::ZERO } else { news.wait })),
        }
    }

    /// Counts a request that has just come. A request compressed by a compressor that the server does not offer is
    /// refused.
    fn admit(&mut self, frame: &[u8], incoming: &Incoming<'_>) -> bool {
        let traffic = &mut self.service.traffic;
        traffic.requests += 1;
        match incoming.compressor {
            Some(id) => {
                traffic.count_decompressed(id, frame.len(), incoming.content.header().length);
                id == CompressorId::Noop || self.service.config.compressors.contains(&id)
            }
            None => true,
        }
    }

    /// Sends the reply to a write once enough members have it, and another one if that cannot be.
    fn finish(
        &mut self,
        now: Instant,
        line: &mut Line,
        frame: &[u8],
        last_reply: Option<i32>,
        request: &Request<'_>,
        done: Done,
    ) -> Progress {
        let Done { mut reply, goal } = done;
        if let Some(goal) = goal {
            match self.service.progress_of(&goal, now) {
                Replication::Pending => {
                    let until = goal.limit.map(|limit| limit.at);
                    let stage = Stage::Replicating(Box::new(Done { reply, goal: Some(goal) }));
                    return self.wait(line, until, frame, last_reply, stage);
                }
                Replication::Reached => {}
                Replication::Failed(code, error) => {
                    self.service.add_write_concern_error(request, &mut reply, code, &error);
                }
            }
        }
        self.send(line, request.answer, request.name, &reply, false);
        Progress::Done
    }

    fn wait(
        &mut self,
        line: &mut Line,
        until: Option<Instant>,
        frame: &[u8],
        last_reply: Option<i32>,
        stage: Stage,
    ) -> Progress {
        line.waiting = Some(Waiting { until, frame: frame.to_vec(), last_reply, stage });
        self.due.extend(until.map(|until| (until, line.id)));
        Progress::Done
    }

    /// Answers a message that is not a request.
    fn refuse(&mut self, now: Instant, line: &mut Line, answer: AnswerForm, failure: CommandFailure) -> Progress {
        let reply = self.service.reply(now, Err(failure));
        self.send(line, answer, "", &reply, false);
        Progress::Done
    }

    /// Sends a reply if one is wanted, and returns its number.
    fn send(&mut self, line: &mut Line, answer: AnswerForm, command: &str, reply: &Reply, more_to_come: bool) -> i32 {
        if answer.kind == AnswerKind::Silence {
            return 0;
        }
        let (bytes, number) = self.replies.encode(&mut self.service.traffic, answer, command, reply, more_to_come);
        line.queued += bytes.len();
        self.outputs.push_back(ServerOutput::Send { client: line.id, bytes });
        number
    }
}

/// How long a command may take, if it says so.
fn time_limit(request: &Request<'_>) -> Option<Duration> {
    let limit = request.arguments.integer("maxTimeMS").ok()??;
    u64::try_from(limit).ok().filter(|limit| *limit > 0).map(Duration::from_millis)
}

/// Whether a cursor's next batch follows unasked, because the client allows that (MSG-9). A client that does not read
/// has to ask again.
fn may_go_on(line: &Line, request: &Request<'_>, reply: &Reply) -> bool {
    let is_allowed = matches!(request.answer.kind, AnswerKind::Messages { .. }) && line.queued < MAX_QUEUED;
    is_allowed && request.name == "getMore" && has_more(reply)
}

/// Whether a reply has documents of a cursor that may have others.
fn has_more(reply: &Reply) -> bool {
    let Some(cursor) = Arguments(&reply.body).document("cursor").ok().flatten() else { return false };
    let is_open = cursor.integer("id").is_ok_and(|id| id.is_some_and(|id| id != 0));
    let mut batch = cursor.array("nextBatch").ok().flatten().into_iter().flatten();
    is_open && batch.next().is_some()
}
