//! A socket that lets other tasks run, however fast its peer sends.
//!
//! A peer that sends as fast as it is read keeps its socket ready, and a task that reads until there is nothing more
//! never gives up its turn: on an executor that does not preempt tasks, no other task runs, no other socket is served,
//! and no time limit passes. So the task yields once after some reads in a row that did not have to wait. The budget
//! lies below TLS, where bytes count whether or not they hold data.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::runtime::Runtime;

/// The number of reads in a row after which a task yields.
const READS: u32 = 16;

/// The number of bytes read in a row after which a task yields.
const BYTES: usize = 64 * 1024;

/// A runtime's socket with a budget for reads: after 16 of them, or 64 KiB, without a wait in between, one of them makes other tasks go
/// first.
#[derive(Debug)]
pub struct BudgetedStream<S> {
    stream: S,
    spent: Spent,
    /// [`Runtime::wake_after_others`].
    wake_after_others: fn(&mut S, &mut Context<'_>),
}

/// The reads and bytes since the task last had to wait, or yielded.
#[derive(Debug, Default)]
struct Spent {
    reads: u32,
    bytes: usize,
}

impl<S> BudgetedStream<S> {
    /// A socket of `R`.
    pub fn new<R: Runtime<Stream = S>>(stream: S) -> Self {
        Self { stream, spent: Spent::default(), wake_after_others: R::wake_after_others }
    }

    /// The socket itself, for reads that never wait.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// [`Runtime::poll_readable`].
    pub(crate) fn poll_readable<R: Runtime<Stream = S>>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let readable = R::poll_readable(&mut self.stream, cx);
        if readable.is_pending() {
            self.spent = Spent::default();
        }
        readable
    }
}

impl Spent {
    fn is_everything(&self) -> bool {
        self.reads >= READS || self.bytes >= BYTES
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BudgetedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.spent.is_everything() {
            this.spent = Spent::default();
            (this.wake_after_others)(&mut this.stream, cx);
            return Poll::Pending;
        }
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        match &read {
            Poll::Ready(Ok(count)) => {
                this.spent.reads += 1;
                this.spent.bytes = this.spent.bytes.saturating_add(*count);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => this.spent = Spent::default(),
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BudgetedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    /// A socket from which this many bytes can be read at once, again and again, unless it is silent.
    pub(crate) struct Flood {
        bytes: usize,
        is_silent: bool,
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl AsyncRead for Flood {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            if self.is_silent { Poll::Pending } else { Poll::Ready(Ok(self.bytes.min(buffer.len()))) }
        }
    }

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A flood that is read with a budget, on an executor that wakes tasks at once.
    pub(crate) fn flood(bytes: usize) -> BudgetedStream<Flood> {
        let stream = Flood { bytes, is_silent: false };
        BudgetedStream { stream, spent: Spent::default(), wake_after_others: |_, cx| cx.waker().wake_by_ref() }
    }

    /// The number of reads until one has to wait.
    fn reads(stream: &mut BudgetedStream<Flood>, wakes: &Arc<Wakes>) -> usize {
        let waker = Waker::from(Arc::clone(wakes));
        let mut buffer = vec![0; 2 * BYTES];
        std::iter::repeat_with(|| Pin::new(&mut *stream).poll_read(&mut Context::from_waker(&waker), &mut buffer))
            .take_while(Poll::is_ready)
            .count()
    }

    #[test]
    fn a_task_yields_after_sixteen_reads_or_64_kib_and_goes_on() {
        for (bytes, expected) in [(1, 16), (4096, 16), (4097, 16), (16 * 1024, 4), (BYTES - 1, 2), (2 * BYTES, 1)] {
            let (mut stream, wakes) = (flood(bytes), Arc::default());

            for turn in 1..4 {
                assert_eq!(reads(&mut stream, &wakes), expected, "{bytes} bytes at once");
                assert_eq!(wakes.0.load(Ordering::Relaxed), turn, "it is woken for the next turn");
            }
        }
    }

    #[test]
    fn a_read_that_has_to_wait_is_as_good_as_a_yield() {
        let (mut stream, wakes) = (flood(1), Arc::default());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..15 {
            assert!(Pin::new(&mut stream).poll_read(&mut cx, &mut [0]).is_ready());
        }

        stream.stream.is_silent = true;
        assert_eq!(reads(&mut stream, &wakes), 0);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "the socket wakes it");
        stream.stream.is_silent = false;

        assert_eq!(reads(&mut stream, &wakes), 16);
    }
}
