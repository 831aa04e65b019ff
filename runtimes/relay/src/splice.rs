//! Passes bytes on between two streams, in both directions.
//!
//! Each direction has one buffer and reads only when it is empty, so a side that does not read holds up the one that writes, and
//! nothing else. The end of one side's bytes is passed on as such, and the other direction goes on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cmap_runtime::{Clock, Runtime};
use futures_io::{AsyncRead, AsyncWrite};

use crate::dial::{ToApplication, ToMember};

/// The bytes of a direction that are kept at most: a TLS record.
pub(crate) const BUFFER: usize = 16 * 1024;

/// How long one side may go on without a byte after the other has ended.
const HALF_CLOSED_LIMIT: Duration = Duration::from_secs(60);

/// How many bytes were passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) to_member: u64,
    pub(crate) to_application: u64,
}

/// How a splice ended.
#[derive(Debug)]
pub(crate) struct Spliced {
    pub(crate) passed: Passed,
    /// The side that was the first of which there was nothing more to read.
    pub(crate) first_to_end: Option<Side>,
    /// An error if a side was lost, or was silent for too long after the other had ended.
    pub(crate) result: io::Result<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Application,
    Member,
}

impl Spliced {
    /// Whether the application has given the connection up before the member had answered anything.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.first_to_end == Some(Side::Application) && self.passed.to_application == 0
    }
}

/// Passes bytes on until both sides have ended, or one is lost. `first` goes to the member before all others. A side that sends as fast
/// as it is read leaves other tasks their turn, by the budget of its stream.
pub(crate) async fn splice<R: Runtime>(
    clock: &Clock<R>,
    application: ToApplication<R>,
    member: ToMember<R>,
    first: Vec<u8>,
) -> Spliced {
    let mut splice = Splice::new(application, member, first);
    loop {
        // Only one side that goes on alone is watched.
        let before = splice.passed();
        let until = splice.is_half_closed().then(|| clock.now() + HALF_CLOSED_LIMIT);
        let mut timer = until.map(|until| Box::pin(clock.sleep_until(until)));
        let step = std::future::poll_fn(|cx| {
            let was_half_closed = splice.is_half_closed();
            match splice.poll(cx) {
                Poll::Ready(result) => return Poll::Ready(Step::Ended(result)),
                Poll::Pending if splice.is_half_closed() != was_half_closed => return Poll::Ready(Step::HalfClosed),
                Poll::Pending => {}
            }
            match &mut timer {
                Some(timer) => timer.as_mut().poll(cx).map(|()| Step::Silent),
                None => Poll::Pending,
            }
        });
        match step.await {
            Step::Ended(result) => return splice.into_spliced(result),
            Step::Silent if splice.passed() == before => {
                return splice.into_spliced(Err(io::ErrorKind::TimedOut.into()));
            }
            Step::Silent | Step::HalfClosed => {}
        }
    }
}

/// What happens to a splice.
enum Step {
    Ended(io::Result<()>),
    /// One side has ended now.
    HalfClosed,
    /// The limit has passed.
    Silent,
}

struct Splice<A, M> {
    application: A,
    member: M,
    to_member: Direction,
    to_application: Direction,
    first_to_end: Option<Side>,
}

impl<A: AsyncRead + AsyncWrite + Unpin, M: AsyncRead + AsyncWrite + Unpin> Splice<A, M> {
    fn new(application: A, member: M, first: Vec<u8>) -> Self {
        let (to_member, to_application) = (Direction::new(first), Direction::new(Vec::new()));
        Self { application, member, to_member, to_application, first_to_end: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to_member = self.to_member.poll(cx, &mut self.application, &mut self.member);
        if self.to_member.is_read {
            self.first_to_end.get_or_insert(Side::Application);
        }
        let to_member = to_member?;
        let to_application = self.to_application.poll(cx, &mut self.member, &mut self.application);
        if self.to_application.is_read {
            self.first_to_end.get_or_insert(Side::Member);
        }
        let to_application = to_application?;
        if to_member.is_ready() && to_application.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn is_half_closed(&self) -> bool {
        self.to_member.has_ended() || self.to_application.has_ended()
    }

    fn into_spliced(self, result: io::Result<()>) -> Spliced {
        Spliced { passed: self.passed(), first_to_end: self.first_to_end, result }
    }

    fn passed(&self) -> Passed {
        Passed { to_member: self.to_member.passed, to_application: self.to_application.passed }
    }
}

/// Bytes that go one way.
struct Direction {
    buffer: Vec<u8>,
    /// Where the bytes in it begin that have to be written, and where they end.
    start: usize,
    end: usize,
    is_flushed: bool,
    /// There is nothing more to read: the side has ended, or is lost.
    is_read: bool,
    stage: Stage,
    passed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// There is no more to read, and the writer has to know.
    Closing,
    Ended,
}

impl Direction {
    fn new(first: Vec<u8>) -> Self {
        let end = first.len();
        let mut buffer = first;
        buffer.resize(end.max(BUFFER), 0);
        Self { buffer, start: 0, end, is_flushed: true, is_read: false, stage: Stage::Open, passed: 0 }
    }

    fn has_ended(&self) -> bool {
        self.stage != Stage::Open
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            match self.stage {
                Stage::Open if self.start < self.end => {
                    let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.buffer[self.start..self.end]))?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.start += written;
                    self.passed += written as u64;
                    self.is_flushed = false;
                }
                Stage::Open => {
                    let read = Pin::new(&mut *from).poll_read(cx, &mut self.buffer);
                    self.is_read = matches!(read, Poll::Ready(Ok(0) | Err(_)));
                    match read {
                        Poll::Ready(Ok(0)) => self.stage = Stage::Closing,
                        Poll::Ready(Ok(read)) => (self.start, self.end) = (0, read),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            if !self.is_flushed {
                                ready!(Pin::new(&mut *to).poll_flush(cx))?;
                                self.is_flushed = true;
                            }
                            return Poll::Pending;
                        }
                    }
                }
                Stage::Closing => {
                    ready!(Pin::new(&mut *to).poll_close(cx))?;
                    self.stage = Stage::Ended;
                }
                Stage::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}
