//! Looking up the seed list of a `mongodb+srv` connection string, before a client is made.
//!
//! The SRV and the TXT records are asked for together, within connectTimeoutMS and timeoutMS. Dropping the future ends the lookup.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use cmap_core::options::{ClientOptions, ConnectionStringError, SrvOptions};
use cmap_core::pool::Cause;
use cmap_core::random::Random;
use cmap_core::topology::seed_list::{Resolved, SeedList};

use crate::error::{ClientError, RuntimeGone};
use crate::names::Names;
use crate::runtime::Runtime;
use crate::socket::abort::{Abort, AbortReason};
use crate::time::{CONNECT_TIMEOUT, Clock, without_zero};

/// An application's choice among the hosts of SRV records (DNS-20).
pub(crate) type HostFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Whether nobody but its owner has hosts below the domain of `srvAllowedHostsSuffix`, as far as this build knows (DNS-20).
///
/// # Errors
/// It is a public suffix, such as `co.uk`: SRV records could lead to anybody's host there.
pub(crate) fn check_public_suffix(options: &SrvOptions) -> Result<(), ConnectionStringError> {
    #[cfg(feature = "srv")]
    if let Some(domain) = options.allowed_domain()?
        && psl::suffix(domain.as_bytes()).is_some_and(|suffix| suffix.as_bytes() == domain.as_bytes())
    {
        let expected = "a domain of your own: below a public suffix everybody can have hosts".into();
        return Err(ConnectionStringError::Value { option: "srvAllowedHostsSuffix", expected });
    }
    let _ = options;
    Ok(())
}

/// `options` with the hosts and the defaults that DNS has for them, if `filter` allows all of these hosts.
pub(crate) async fn resolve<R: Runtime>(
    runtime: &R,
    names: &Names,
    filter: Option<&HostFilter>,
    seed_list: &SeedList,
    options: ClientOptions,
) -> Result<Resolved, ClientError> {
    let (request, clock, names) = (seed_list.request(), Clock::new(runtime.clone()), names.clone());
    let bound = Bound::of(&options);
    let until = clock.deadline(bound.map(|bound| bound.limit));
    let answers = at_home(runtime, async move {
        let home = clock.runtime();
        let srv = clock.before(until, names.srv(home, &request.srv_name));
        // Each has the time for itself, so that the error names the one that did not answer.
        let txt = clock.before(until, names.txt(home, &request.txt_name));
        both(in_time(srv, bound), in_time(txt, bound)).await
    });
    let answers = answers.await.ok_or(RuntimeGone)?;
    if let (Ok((records, _)), Some(filter)) = (&answers, filter) {
        seed_list.check_allowed(records, |host| filter(host))?;
    }
    let cause = |error: io::Error| Cause::of(&error);
    let (srv, txt) = match answers {
        Ok((srv, txt)) => (Ok(srv), txt.map_err(cause)),
        Err(error) => (Err(cause(error)), Ok(Vec::new())),
    };
    let mut seed = [0; 8];
    // Without random numbers the first hosts would be chosen each time, which is no reason to fail.
    let _ = runtime.fill_random(&mut seed);
    let mut random = Random::new(u64::from_le_bytes(seed));
    Ok(seed_list.resolve(options, srv, txt, &mut random)?)
}

/// The option that bounds a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    option: &'static str,
    limit: Duration,
}

impl Bound {
    /// The shorter one of connectTimeoutMS and timeoutMS.
    fn of(options: &ClientOptions) -> Option<Self> {
        let bound = |option, limit| without_zero(limit).map(|limit| Self { option, limit });
        let connect_timeout = options.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let bounds = [bound("connectTimeoutMS", Some(connect_timeout)), bound("timeoutMS", options.timeout)];
        bounds.into_iter().flatten().min_by_key(|bound| bound.limit)
    }

    fn error(self) -> io::Error {
        let Self { option, limit } = self;
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}; {option} allows more"))
    }
}

/// The answer to a lookup; an error if it did not come in time.
async fn in_time<T>(answer: impl Future<Output = Option<io::Result<T>>>, bound: Option<Bound>) -> io::Result<T> {
    answer.await.unwrap_or_else(|| Err(bound.map_or_else(|| io::ErrorKind::TimedOut.into(), Bound::error)))
}

/// Both answers. The second one does not matter, and is not waited for, where the first is an error.
async fn both<A, B>(
    first: impl Future<Output = io::Result<A>>,
    second: impl Future<Output = io::Result<B>>,
) -> io::Result<(A, io::Result<B>)> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_answer, mut second_answer) = (None, None);
    poll_fn(|cx| {
        if first_answer.is_none()
            && let Poll::Ready(answer) = first.as_mut().poll(cx)
        {
            first_answer = Some(answer?);
        }
        if second_answer.is_none()
            && let Poll::Ready(answer) = second.as_mut().poll(cx)
        {
            second_answer = Some(answer);
        }
        match (first_answer.take(), second_answer.take()) {
            (Some(first), Some(second)) => Poll::Ready(Ok((first, second))),
            answers => {
                (first_answer, second_answer) = answers;
                Poll::Pending
            }
        }
    })
    .await
}

/// The outcome of `work`, which runs in a task of the runtime, because only those sleep and connect; `None` if the runtime ends
/// before. The task ends with the future.
async fn at_home<R: Runtime, T: Send + 'static>(
    runtime: &R,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let slot = Arc::new(Slot { state: Mutex::new(State::Working), waker: AtomicWaker::new() });
    let (end, task) = (End(Arc::clone(&slot)), Task(Arc::default()));
    let abort = Arc::clone(&task.0);
    runtime.spawn(async move {
        let outcome = abort.during(work).await;
        end.set(outcome.ok());
    });
    poll_fn(|cx| {
        slot.waker.register(cx.waker());
        match &mut *slot.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Working => Poll::Pending,
            State::Ended(outcome) => Poll::Ready(outcome.take()),
        }
    })
    .await
}

/// The task that somebody waits for. Dropping it ends it.
struct Task(Arc<Abort>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort(AbortReason::Closed).into_iter().for_each(std::task::Waker::wake);
    }
}

struct Slot<T> {
    state: Mutex<State<T>>,
    waker: AtomicWaker,
}

enum State<T> {
    Working,
    /// With an outcome, unless the task was dropped.
    Ended(Option<T>),
}

/// Held by the task. When it is dropped, the work has ended.
struct End<T>(Arc<Slot<T>>);

impl<T> End<T> {
    fn set(&self, outcome: Option<T>) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Working = *state {
            *state = State::Ended(outcome);
        }
        drop(state);
        self.0.waker.wake();
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    use super::*;

    fn bound(query: &str) -> Option<(&'static str, u128)> {
        let (options, _) = ClientOptions::parse(&format!("mongodb://host/?{query}")).unwrap();
        Bound::of(&options).map(|bound| (bound.option, bound.limit.as_millis()))
    }

    #[test]
    fn the_shorter_time_bounds_a_lookup_and_zero_sets_none() {
        assert_eq!(bound(""), Some(("connectTimeoutMS", 10_000)));
        assert_eq!(bound("connectTimeoutMS=20&timeoutMS=30"), Some(("connectTimeoutMS", 20)));
        assert_eq!(bound("connectTimeoutMS=0&timeoutMS=30"), Some(("timeoutMS", 30)));
        assert_eq!(bound("connectTimeoutMS=0&timeoutMS=0"), None);
    }

    #[test]
    fn without_srv_records_nobody_waits_for_the_txt_record() {
        let refused = ready(Err::<(), _>(io::Error::other("refused")));

        let answers = pin!(both(refused, pending::<io::Result<()>>())).poll(&mut Context::from_waker(Waker::noop()));

        let Poll::Ready(Err(error)) = &answers else { panic!("{answers:?}") };
        assert_eq!(error.to_string(), "refused");
    }

    #[cfg(feature = "srv")]
    #[test]
    fn a_public_suffix_is_nobodys_domain_dns_20() {
        let check = |suffix: &str| {
            let (options, _) =
                ClientOptions::parse(&format!("mongodb+srv://a.b.c/?srvAllowedHostsSuffix={suffix}")).unwrap();
            check_public_suffix(&options.srv).map_err(|error| error.to_string())
        };

        for suffix in [".example.com", "10gen.cc", "db.example.co.uk"] {
            assert_eq!(check(suffix), Ok(()), "{suffix}");
        }
        for suffix in ["co.uk", ".CO.UK", "com.br."] {
            assert!(check(suffix).unwrap_err().contains("set a domain of your own"), "{suffix}");
        }
    }
}
