//! This machine as a ground: a thread for each task, and sockets that block it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use super::sockets::{LocalSite, Stream};
use super::{Ground, Place, Site, Socket, Work};

/// This machine.
pub(super) struct Threads;

impl Ground for Threads {
    fn site(&self) -> io::Result<Box<dyn Site>> {
        Ok(Box::new(LocalSite::tcp()?))
    }

    fn unix_site(&self) -> io::Result<Box<dyn Site>> {
        Ok(Box::new(LocalSite::unix()?))
    }

    fn full_site(&self) -> io::Result<Box<dyn Site>> {
        Ok(Box::new(LocalSite::full()?))
    }

    fn connect(&self, place: &Place) -> Work<io::Result<Arc<dyn Socket>>> {
        let place = place.clone();
        Box::pin(async move { Ok(Arc::new(Stream::connect(&place)?) as Arc<dyn Socket>) })
    }

    fn spawn(&self, task: Work) {
        thread::spawn(|| block_on(task));
    }

    fn age(&self) -> Duration {
        age()
    }

    fn unix_time(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "a server behind real sockets has a real clock")]
        let now = SystemTime::now();
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap()
    }

    fn sleep_until(&self, age: Duration) -> Work {
        Box::pin(Sleep(age))
    }

    fn pause(&self) -> Work {
        let mut has_yielded = false;
        Box::pin(std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// The time since the first look at the clock.
fn age() -> Duration {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a server behind real sockets has a real clock")]
    let now = Instant::now();
    now.saturating_duration_since(*ORIGIN.get_or_init(|| now))
}

thread_local! {
    /// When the task of this thread looks again, though nobody wakes it.
    static NEXT_LOOK: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Waits for a time, in the task of a thread.
struct Sleep(Duration);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if age() >= self.0 {
            return Poll::Ready(());
        }
        let next = NEXT_LOOK.get().map_or(self.0, |next| next.min(self.0));
        NEXT_LOOK.set(Some(next));
        Poll::Pending
    }
}

/// Runs a task on this thread to its end.
fn block_on(mut task: Work) {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        NEXT_LOOK.set(None);
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        match NEXT_LOOK.get() {
            Some(at) => thread::park_timeout(at.saturating_sub(age())),
            None => thread::park(),
        }
    }
}
