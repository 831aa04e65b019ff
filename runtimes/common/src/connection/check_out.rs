//! The future of a check-out. Dropping it at any moment leaves the client as if it had never asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cmap_core::pool::{AffinityKey, CheckOutRequest, IdentityId};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, ServerSelector};

use crate::connection::Connection;
use crate::driver::{Answer, Begun, Driver, Narrowed};
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::time::Limit;
use crate::watch::{Label, Tag};

/// Waits for a connection. [`check_out`](crate::Connections::check_out) of a client or a pool makes it. The check-out starts when the
/// future is first polled, and so does its time.
///
/// The client's runtime wakes the caller when time is up. If that runtime stands still, as a current-thread runtime that nobody
/// drives, nothing wakes a caller of another one; the next poll notices that time is up.
#[must_use = "nothing is asked for before the future is awaited"]
pub struct CheckOut<'a, R: Runtime> {
    driver: &'a Arc<Driver<R>>,
    stage: Stage,
    /// What is wanted of the server, unless any that takes writes will do.
    wanted: Option<Box<Wanted>>,
    /// Who asks.
    tag: Tag,
}

/// Plain data, so that its end drops nothing.
#[derive(Clone, Copy)]
enum Stage {
    /// Nothing has been asked for yet. The limit counts from the first poll.
    New(Limit),
    /// It waits at this place.
    Waiting(usize),
    Done,
}

#[derive(Default)]
struct Wanted {
    criteria: Criteria,
    /// The rest of the request; its deadline is set when it is made.
    request: CheckOutRequest,
    /// What the user left of it, where the user chooses among suitable servers.
    narrowed: Option<Narrowed>,
    /// When it began to wait, where a long wait calls for a file.
    #[cfg(feature = "trace")]
    waits_since: Option<Instant>,
    /// Open from the beginning of the wait to its end.
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

impl<'a, R: Runtime> CheckOut<'a, R> {
    /// For as long as the options allow.
    #[inline]
    #[track_caller]
    pub(crate) fn new(driver: &'a Arc<Driver<R>>) -> Self {
        Self::within(driver, driver.settings.check_out_limit).by_caller()
    }

    #[inline]
    pub(crate) fn within(driver: &'a Arc<Driver<R>>, limit: Limit) -> Self {
        if driver.settings.server_filter.is_some() {
            return Self::of(driver, Criteria::default(), limit);
        }
        Self { driver, stage: Stage::New(limit), wanted: None, tag: Tag::default() }
    }

    /// Asks for the connection that `key` had last; what that means is up to the option
    /// [`affinity`](cmap_core::options::PoolOptions::affinity), without which the check-out fails. Call it before the future is
    /// polled; it has no effect afterwards.
    pub fn affinity(mut self, key: AffinityKey) -> Self {
        self.wanted().request.affinity = Some(key);
        self
    }

    #[inline(never)]
    pub(crate) fn of(driver: &'a Arc<Driver<R>>, criteria: Criteria, limit: Limit) -> Self {
        let wanted = Some(Box::new(Wanted { criteria, ..Wanted::default() }));
        Self { driver, stage: Stage::New(limit), wanted, tag: Tag::default() }
    }

    /// Notes the caller of this as who checks out.
    #[inline]
    #[track_caller]
    pub(crate) fn by_caller(self) -> Self {
        self.tagged(Tag::here())
    }

    #[inline]
    pub(crate) fn tagged(mut self, tag: Tag) -> Self {
        self.tag = tag;
        self
    }

    /// Says what the connection is for, in a few words: `"checkout page"`. [`Client::in_use`](crate::Connections::in_use) and errors
    /// of other check-outs name it. Without [`Builder::watch_holders`](crate::Builder::watch_holders) it is ignored. A client knows
    /// 128 labels of 64 bytes; all beyond count as other labels, so that a label should say what is done and not for whom.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.tag.label = self.driver.label(label.as_ref());
        self
    }

    /// As [`label`](Self::label), by a label that was [made before](crate::Connections::label): for check-outs that are many. One of
    /// another client counts as none.
    #[inline]
    pub fn labelled(mut self, label: Label) -> Self {
        self.tag.label = self.driver.own_label(label);
        self
    }

    /// Checks out as this identity of the client, and not with the credential of the options. To be called before the first poll.
    pub fn identity(mut self, identity: IdentityId) -> Self {
        self.wanted().request.identity = Some(identity);
        self
    }

    /// What is wanted, to be asked for in detail.
    fn wanted(&mut self) -> &mut Wanted {
        self.wanted.get_or_insert_with(Box::default)
    }
}

impl<R: Runtime> Future for CheckOut<'_, R> {
    type Output = Result<Connection<R>, CheckOutError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let own = self.get_mut();
        match own.stage {
            Stage::New(limit) => own.ask(limit, cx),
            Stage::Waiting(place) => own.poll_waiting(place, cx),
            // One that is polled after its end has no further result.
            Stage::Done => Poll::Pending,
        }
    }
}

impl<R: Runtime> CheckOut<'_, R> {
    /// Asks for a connection, at first for any to a server that takes writes.
    #[inline(never)]
    fn ask(&mut self, limit: Limit, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let driver = self.driver;
        let now = driver.clock.now();
        let deadline = match limit {
            Limit::None => None,
            Limit::Within(limit) => Some(now + limit),
            Limit::Until(deadline) => driver.clock.instant_of(deadline),
        };
        if self.wanted.is_some() {
            return self.ask_for_wanted(now, deadline, cx);
        }
        let mut request = CheckOutRequest::default();
        request.deadline = deadline;
        let begun = driver.check_out(now, Criteria::WRITABLE, request, self.tag, cx);
        self.go_on(begun, cx)
    }

    /// Asks for what the caller wants of server, identity or affinity.
    #[inline(never)]
    fn ask_for_wanted(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        cx: &Context<'_>,
    ) -> Poll<<Self as Future>::Output> {
        let (driver, tag) = (self.driver, self.tag);
        let wanted = self.wanted();
        let mut request = wanted.request;
        request.deadline = deadline;
        if request.affinity.is_some() && !driver.has_affinity() {
            return self.end(Err(CheckOutError::NoAffinity));
        }
        // Nothing is chosen for an operation that keeps to its server (PIN-1).
        let is_pinned = matches!(wanted.criteria.selector, ServerSelector::Pinned(_));
        wanted.narrowed =
            (driver.settings.server_filter.is_some() && !is_pinned).then(|| driver.narrow(&wanted.criteria));
        let criteria = wanted.narrowed.as_ref().map_or(&wanted.criteria, |narrowed| &narrowed.criteria);
        let begun = driver.check_out(now, criteria, request, tag, cx);
        self.go_on(begun, cx)
    }

    #[inline(always)]
    fn go_on(&mut self, begun: Begun<R::Stream>, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        match begun {
            Begun::Answered(answer) => self.end(answer),
            Begun::Waits(place) => {
                self.stage = Stage::Waiting(place);
                #[cfg(feature = "tracing")]
                if let Some(span) = self.driver.span_of(self.tag) {
                    self.wanted().span = Some(span);
                }
                #[cfg(feature = "trace")]
                if let Some(now) = self.driver.begin_wait() {
                    self.note_wait(now);
                }
                // The servers may have changed since the user has chosen among them.
                if self.wanted.as_ref().is_some_and(|wanted| wanted.narrowed.is_some()) {
                    return self.poll_waiting(place, cx);
                }
                Poll::Pending
            }
        }
    }

    #[cfg(feature = "trace")]
    #[cold]
    fn note_wait(&mut self, now: Instant) {
        self.wanted().waits_since = Some(now);
    }

    /// Looks for the answer. Where the user chooses among suitable servers, and these have changed, the user chooses anew.
    fn poll_waiting(&mut self, place: usize, cx: &Context<'_>) -> Poll<<Self as Future>::Output> {
        let driver = self.driver;
        loop {
            if let Poll::Ready(answer) = driver.poll_check_out(place, cx) {
                #[cfg(feature = "trace")]
                if answer.is_ok()
                    && let Some(since) = self.wanted.as_ref().and_then(|wanted| wanted.waits_since)
                {
                    driver.end_wait(since);
                }
                return self.end(answer);
            }
            let Some(Wanted { criteria, narrowed: Some(narrowed), .. }) = self.wanted.as_deref_mut() else {
                return Poll::Pending;
            };
            if driver.is_up_to_date(narrowed) {
                return Poll::Pending;
            }
            *narrowed = driver.narrow(criteria);
            driver.change_criteria(place, narrowed);
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

    #[inline(always)]
    fn end(&mut self, answer: Answer<R::Stream>) -> Poll<<Self as Future>::Output> {
        self.stage = Stage::Done;
        #[cfg(feature = "tracing")]
        self.end_span(&answer);
        let selector = self.wanted.take().map(|wanted| wanted.criteria.selector);
        // `map` costs a warm check-out nine instructions more.
        Poll::Ready(match answer {
            Ok(delivery) => Ok(Connection::new(Arc::clone(self.driver), delivery, self.tag, selector)),
            Err(error) => Err(error),
        })
    }
}

impl<R: Runtime> Drop for CheckOut<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if let Stage::Waiting(place) = self.stage {
            self.driver.cancel_check_out(place);
        }
    }
}
