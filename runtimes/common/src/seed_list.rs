//! Looking up the seed list of a `mongodb+srv` connection string, before a client is made.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use cmap_core::options::{ClientOptions, ConnectionStringError, SrvOptions};
use cmap_core::pool::Cause;
use cmap_core::random::Random;
use cmap_core::topology::seed_list::{Resolved, SeedList};

use crate::error::{ClientError, RuntimeGone};
use crate::names::Names;
use crate::runtime::Runtime;

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
    let (request, home, names) = (seed_list.request(), runtime.clone(), names.clone());
    let answers = at_home(runtime, async move {
        (names.srv(&home, &request.srv_name).await, names.txt(&home, &request.txt_name).await)
    });
    let (srv, txt) = answers.await.ok_or(RuntimeGone)?;
    if let (Ok(records), Some(filter)) = (&srv, filter) {
        seed_list.check_allowed(records, |host| filter(host))?;
    }
    let cause = |error: io::Error| Cause::of(&error);
    let mut seed = [0; 8];
    // Without random numbers the first hosts would be chosen each time, which is no reason to fail.
    let _ = runtime.fill_random(&mut seed);
    let mut random = Random::new(u64::from_le_bytes(seed));
    Ok(seed_list.resolve(options, srv.map_err(cause), txt.map_err(cause), &mut random)?)
}

/// The outcome of `work`, which runs in a task of the runtime, because only those sleep and connect; `None` if the runtime ends
/// before.
async fn at_home<R: Runtime, T: Send + 'static>(
    runtime: &R,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let slot = Arc::new(Slot { state: Mutex::new(State::Working), waker: AtomicWaker::new() });
    let end = End(Arc::clone(&slot));
    runtime.spawn(async move {
        let outcome = work.await;
        end.set(Some(outcome));
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

#[cfg(all(test, feature = "srv"))]
mod tests {
    use super::*;

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
