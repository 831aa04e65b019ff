//! The future of a check-out. Dropping it at any moment leaves the client as if it had never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::pool::{AffinityKey, CheckOutRequest, IdentityId};
use cmap_core::topology::{Criteria, ServerSelector};

use crate::connection::Connection;
use crate::deadline::{Deadline, Limit};
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::topology::{Answer, Begun, Delivery, Narrowed, Topology, Unanswered, Unserved};
use crate::watch::{Label, Tag};

/// Waits for a connection. Made by [`Client::check_out`](crate::Client::check_out) and
/// [`Pool::check_out`](crate::Pool::check_out). The check-out starts when the future is first polled, and so does its time.
///
/// The client's runtime wakes the caller when time is up. If that runtime stands still, as a current-thread runtime that nobody
/// drives, nothing wakes a caller of another one; the next poll notices that time is up.
#[must_use = "nothing is asked for before the future is awaited"]
pub struct CheckOut<'a, R: Runtime> {
    topology: &'a Arc<Topology<R>>,
    stage: Stage,
    /// What is wanted of the server, unless any that takes writes will do.
    wanted: Option<Box<Wanted>>,
    /// Who asks.
    tag: Tag,
}

/// Plain data, so that the fast path drops nothing.
#[derive(Clone, Copy)]
enum Stage {
    /// For as long as the options allow.
    Asking,
    /// The longest wait.
    AskingWithin(Option<Duration>),
    /// The end of the wait.
    AskingUntil(Deadline),
    /// The same, for a server that is wanted.
    AskingFor(Limit),
    Waiting(usize),
    Done,
}

struct Wanted {
    criteria: Criteria,
    /// The rest of the request; its deadline is set when it is made.
    request: CheckOutRequest,
    /// What the user left of it, where the user chooses among suitable servers.
    narrowed: Option<Narrowed>,
    /// Open from the beginning of the wait to its end.
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    #[inline]
    #[track_caller]
    pub(crate) fn new(topology: &'a Arc<Topology<R>>) -> Self {
        Self { topology, stage: Stage::Asking, wanted: None, tag: Tag::here() }
    }

    pub(crate) fn within(topology: &'a Arc<Topology<R>>, limit: Limit) -> Self {
        if topology.has_server_filter() {
            return Self::of(topology, Criteria::default(), limit);
        }
        let stage = match limit {
            Limit::None => Stage::AskingWithin(None),
            Limit::Within(limit) => Stage::AskingWithin(Some(limit)),
            Limit::Until(deadline) => Stage::AskingUntil(deadline),
        };
        Self { topology, stage, wanted: None, tag: Tag::default() }
    }

    /// The same for the connection that `key` had last; what that means is up to the option
    /// [`affinity`](cmap_core::options::PoolOptions::affinity), without which the check-out fails. Call it before the future is
    /// polled; it has no effect afterwards.
    pub fn affinity(mut self, key: AffinityKey) -> Self {
        self.wanted().request.affinity = Some(key);
        self
    }

    #[inline(never)]
    pub(crate) fn of(topology: &'a Arc<Topology<R>>, criteria: Criteria, limit: Limit) -> Self {
        let wanted = Some(Box::new(Wanted::new(criteria)));
        Self { topology, stage: Stage::AskingFor(limit), wanted, tag: Tag::default() }
    }

    /// The same check-out, by the caller of this.
    #[track_caller]
    pub(crate) fn by_caller(mut self) -> Self {
        self.tag = Tag::here();
        self
    }

    /// Says what the connection is for, in a few words: `"checkout page"`. [`Client::in_use`](crate::Client::in_use) and errors
    /// of other check-outs name it. Without [`Builder::watch_holders`](crate::Builder::watch_holders) it is ignored. A client knows
    /// 128 labels of 64 bytes; all beyond count as other labels, so that a label should say what is done and not for whom.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.tag.label = self.topology.label(label.as_ref());
        self
    }
}

impl<R: Runtime> CheckOut<'_, R> {
    /// As [`label`](Self::label), by a label that was [made before](crate::Client::label): for check-outs that are many. One of
    /// another client counts as none.
    #[inline]
    pub fn labelled(mut self, label: Label) -> Self {
        self.tag.label = self.topology.own_label(label);
        self
    }
}

impl Wanted {
    fn new(criteria: Criteria) -> Self {
        Self {
            criteria,
            request: CheckOutRequest::default(),
            narrowed: None,
            #[cfg(feature = "tracing")]
            span: None,
        }
    }
}

impl<R: Runtime> CheckOut<'_, R> {
    /// As this identity of the client, and not with the credential of the options. To be called before the first poll.
    pub fn identity(mut self, identity: IdentityId) -> Self {
        self.wanted().request.identity = Some(identity);
        self
    }
}

impl<R: Runtime> Future for CheckOut<'_, R> {
    type Output = Result<Connection<R>, CheckOutError>;

    /// Each way has a function of its own, so that none has to save the registers of another.
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.get_mut();
        if !matches!(own.stage, Stage::Asking) {
            own.poll_again(cx)
        } else if own.topology.is_plain() {
            own.poll_plain(cx)
        } else {
            own.poll_noted(cx)
        }
    }
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    #[inline(never)]
    fn poll_plain(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.topology.check_out() {
            Ok(delivery) => {
                self.stage = Stage::Done;
                Poll::Ready(Ok(Connection::new(Arc::clone(self.topology), delivery)))
            }
            Err(unserved) => self.follow_first(unserved, cx),
        }
    }

    /// Out of line, as all that follows where no connection is available.
    #[inline(never)]
    fn follow_first(&mut self, unserved: Unserved<'a, R>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let unserved = match self.topology.wait_in_line(unserved, cx) {
            Ok(place) => {
                self.stage = Stage::Waiting(place);
                #[cfg(feature = "tracing")]
                self.begin_span();
                return Poll::Pending;
            }
            Err(unserved) => unserved,
        };
        self.begin_first(unserved.into(), cx)
    }

    /// The first poll where callers are noted.
    #[inline(never)]
    fn poll_noted(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.topology.check_out_noted(&self.tag) {
            // As `end`, without looking for what nobody has asked for yet.
            Ok(delivery) => {
                self.stage = Stage::Done;
                Poll::Ready(Ok(Connection::new_noted(Arc::clone(self.topology), delivery)))
            }
            Err(unanswered) => self.begin_first(unanswered, cx),
        }
    }

    #[inline(never)]
    fn begin_first(&mut self, unanswered: Unanswered<'a, R>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let asked = self.topology.begin_check_out(unanswered, self.tag);
        self.begin(asked, cx)
    }

    #[inline(never)]
    fn follow(&mut self, unanswered: Unanswered<'_, R>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.topology.follow_check_out(unanswered, cx) {
            Begun::Answered(answer) => self.end(answer),
            Begun::Waits(place) => {
                self.stage = Stage::Waiting(place);
                #[cfg(feature = "tracing")]
                self.begin_span();
                // The servers may have changed since the user has chosen among them.
                if self.is_narrowed() { self.poll_waiting(place, cx) } else { Poll::Pending }
            }
            Begun::Unasked => {
                self.wanted();
                self.poll_again(cx)
            }
        }
    }

    /// What is wanted, to be asked for in detail.
    fn wanted(&mut self) -> &mut Wanted {
        self.stage = match self.stage {
            Stage::Asking => Stage::AskingFor(self.topology.check_out_limit().map_or(Limit::None, Limit::Within)),
            Stage::AskingWithin(limit) => Stage::AskingFor(limit.map_or(Limit::None, Limit::Within)),
            Stage::AskingUntil(deadline) => Stage::AskingFor(Limit::Until(deadline)),
            stage @ (Stage::AskingFor(_) | Stage::Waiting(_) | Stage::Done) => stage,
        };
        self.wanted.get_or_insert_with(|| Box::new(Wanted::new(Criteria::default())))
    }

    #[inline(never)]
    fn poll_again(&mut self, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.stage {
            Stage::Waiting(place) if self.wanted.is_none() => self.poll_in_line(place, cx),
            Stage::Waiting(place) => self.poll_waiting(place, cx),
            Stage::AskingWithin(limit) => {
                let asked = self.topology.check_out_within(limit, self.tag);
                self.begin(asked, cx)
            }
            Stage::AskingUntil(deadline) => {
                let asked = self.topology.check_out_until(deadline, self.tag);
                self.begin(asked, cx)
            }
            Stage::AskingFor(limit) => self.ask_for(limit, cx),
            // One that is polled after its end has no further result.
            Stage::Asking | Stage::Done => Poll::Pending,
        }
    }

    fn ask_for(&mut self, limit: Limit, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let topology = self.topology;
        let Some(wanted) = &mut self.wanted else { return Poll::Pending };
        let now = topology.clock().now();
        let mut request = wanted.request;
        if request.affinity.is_some() && !topology.has_affinity() {
            return self.end(Err(CheckOutError::NoAffinity));
        }
        request.deadline = match limit {
            Limit::None => None,
            Limit::Within(limit) => Some(now + limit),
            Limit::Until(deadline) => topology.clock().instant_of(deadline),
        };
        // Nothing is chosen for an operation that keeps to its server (PIN-1).
        let is_pinned = matches!(wanted.criteria.selector, ServerSelector::Pinned(_));
        wanted.narrowed = (topology.has_server_filter() && !is_pinned).then(|| topology.narrow(&wanted.criteria));
        let criteria = wanted.narrowed.as_ref().map_or(&wanted.criteria, |narrowed| &narrowed.criteria);
        let asked = topology.check_out_for(criteria, now, request, self.tag);
        self.begin(asked, cx)
    }

    fn begin(
        &mut self,
        asked: Result<Delivery<R::Stream>, Unanswered<'_, R>>,
        cx: &Context<'_>,
    ) -> Poll<<Self as Future>::Output> {
        match asked {
            Ok(delivery) => self.end(Ok(delivery)),
            Err(unanswered) => self.follow(unanswered, cx),
        }
    }

    /// Looks for the answer, where nothing special was asked for.
    #[inline(always)]
    fn poll_in_line(&mut self, place: usize, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let Poll::Ready(answer) = self.topology.poll_check_out(place, cx) else { return Poll::Pending };
        self.stage = Stage::Done;
        Poll::Ready(match answer {
            Ok(delivery) => Ok(Connection::new(Arc::clone(self.topology), delivery).noted(self.tag)),
            Err(error) => Err(error),
        })
    }

    /// Looks for the answer. Where the user chooses among suitable servers, and these have changed, the user chooses anew.
    fn poll_waiting(&mut self, place: usize, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let topology = self.topology;
        loop {
            if let Poll::Ready(answer) = topology.poll_check_out(place, cx) {
                return self.end(answer);
            }
            let Some(Wanted { criteria, narrowed: Some(narrowed), .. }) = self.wanted.as_deref_mut() else {
                return Poll::Pending;
            };
            if topology.is_up_to_date(narrowed) {
                return Poll::Pending;
            }
            *narrowed = topology.narrow(criteria);
            topology.change_criteria(place, narrowed);
        }
    }

    #[cfg(feature = "tracing")]
    fn begin_span(&mut self) {
        if let Some(span) = self.topology.span_of(self.tag) {
            self.wanted.get_or_insert_with(|| Box::new(Wanted::new(Criteria::default()))).span = Some(span);
        }
    }

    #[cfg(feature = "tracing")]
    fn end_span(&self, answer: &Answer<R::Stream>) {
        let Some(span) = self.wanted.as_ref().and_then(|wanted| wanted.span.as_ref()) else { return };
        match answer {
            Ok(delivery) => span.record("driverConnectionId", delivery.connection.id().get()),
            Err(error) => span.record("failure", tracing::field::display(error)),
        };
    }

    fn is_narrowed(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.narrowed.is_some())
    }

    fn end(&mut self, answer: Answer<R::Stream>) -> Poll<<Self as Future>::Output> {
        self.stage = Stage::Done;
        #[cfg(feature = "tracing")]
        self.end_span(&answer);
        let selector = self.wanted.take().map(|wanted| wanted.criteria.selector);
        Poll::Ready(
            answer.map(|delivery| {
                Connection::new(Arc::clone(self.topology), delivery).noted(self.tag).selected_by(selector)
            }),
        )
    }
}

impl<R: Runtime> Drop for CheckOut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(place) = self.stage {
            self.topology.cancel_check_out(place);
        }
    }
}
