//! One socket, from its dialling to its end: dialled, parked, started, spliced.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cmap_core::ErrorChain;
use cmap_core::reverse::{AgentOutput, AgentSide, Ending};
use cmap_core::time::Instant;
use cmap_runtime::Runtime;
use futures_io::{AsyncRead, AsyncWrite};

use crate::dial::{DialError, ToApplication, ToMember};
use crate::link::Link;
use crate::notice::Notice;
use crate::splice::splice;
use crate::tunnels::{SocketEnd, SocketId};

/// How long the last words to an application may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is read at a time while a socket is parked: a few short messages.
const READ: usize = 2 * 1024;

/// Dials an application, and lives one socket's life. `leave` tells it to go away, which one in use does not hear.
pub(crate) async fn run<R: Runtime>(link: &Link<R>, id: SocketId, leave: &Notice) -> SocketEnd {
    let (stream, binding) = match or_leave(link.dial_application(), leave).await {
        Some(Ok(dialled)) => dialled,
        Some(Err(error)) => {
            link.tell_unreachable(&error);
            return SocketEnd::Failed;
        }
        None => return SocketEnd::Over,
    };
    let side = AgentSide::new(&link.greeting(), &binding, link.clock().now());
    let (outgoing, is_flushed) = (Vec::new(), true);
    let (timer, member, is_parked) = (None, Member::NotWanted, false);
    let socket = Socket { link, id, leave, stream, side, is_parked, outgoing, is_flushed, timer, member };
    socket.live().await
}

/// The output of `future`, unless `leave` says so before.
async fn or_leave<T>(future: impl Future<Output = T>, leave: &Notice) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| match leave.poll_take(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx).map(Some),
    })
    .await
}

struct Socket<'a, R: Runtime> {
    link: &'a Link<R>,
    id: SocketId,
    leave: &'a Notice,
    stream: ToApplication<R>,
    side: AgentSide,
    /// The application has taken it in.
    is_parked: bool,
    /// Bytes that the application has not been sent.
    outgoing: Vec<u8>,
    is_flushed: bool,
    timer: Option<(Instant, Boxed<'a, ()>)>,
    member: Member<'a, ToMember<R>>,
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The connection to the member.
enum Member<'a, S> {
    NotWanted,
    Connecting(Boxed<'a, Result<S, DialError>>),
    Connected(S),
}

/// What happens to a socket that passes no bytes on yet.
enum Event {
    Received(usize),
    /// The application has ended its stream, or the connection is lost.
    Lost(Option<io::Error>),
    MemberConnected,
    MemberFailed(DialError),
    ToldToLeave,
    Due,
}

impl<R: Runtime> Socket<'_, R> {
    async fn live(mut self) -> SocketEnd {
        let mut buffer = [0; READ];
        loop {
            while let Some(output) = self.side.poll_output() {
                match output {
                    AgentOutput::Parked { wanted } => {
                        self.is_parked = true;
                        self.link.handle_parked(self.id, wanted);
                    }
                    AgentOutput::Demanded(number) => self.link.handle_demand(number),
                    AgentOutput::Start => self.connect_member(),
                    AgentOutput::Pass(first) => return self.pass(first).await,
                    AgentOutput::Close(ending) => return self.close(ending).await,
                }
            }
            self.outgoing.extend(self.side.poll_transmit().into_iter().flatten());
            let event = std::future::poll_fn(|cx| self.poll_event(cx, &mut buffer)).await;
            let now = self.link.clock().now();
            match event {
                Event::Received(read) => self.side.handle_bytes(now, &buffer[..read]),
                Event::MemberConnected => self.side.handle_started(now),
                Event::MemberFailed(error) => {
                    self.link.tell_member_unreachable(&error);
                    self.side.handle_start_failed(now, error.start_phase(), &ErrorChain(&error).to_string());
                }
                Event::ToldToLeave => self.side.leave(now),
                Event::Due => self.side.handle_timeout(now),
                Event::Lost(error) => {
                    match self.is_parked {
                        true => self.link.tell_lost(self.id, error.as_ref()),
                        false => self.link.tell_unparked(error.as_ref()),
                    }
                    return SocketEnd::Failed;
                }
            }
        }
    }

    fn connect_member(&mut self) {
        self.link.handle_start(self.id);
        self.member = Member::Connecting(Box::pin(self.link.connect_member()));
    }

    fn poll_event(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Event> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Event::Lost(Some(error)));
        }
        if let Member::Connecting(connecting) = &mut self.member
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            return Poll::Ready(match connected {
                Ok(stream) => {
                    self.member = Member::Connected(stream);
                    Event::MemberConnected
                }
                Err(error) => Event::MemberFailed(error),
            });
        }
        // A socket that the application has started is not told to leave any more.
        if matches!(self.member, Member::NotWanted) && self.leave.poll_take(cx).is_ready() {
            return Poll::Ready(Event::ToldToLeave);
        }
        if self.poll_due(cx).is_ready() {
            return Poll::Ready(Event::Due);
        }
        // Last: an application that sends as fast as it is read holds up nothing else.
        Poll::Ready(match ready!(Pin::new(&mut self.stream).poll_read(cx, buffer)) {
            Ok(0) => Event::Lost(None),
            Ok(read) => Event::Received(read),
            Err(error) => Event::Lost(Some(error)),
        })
    }

    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.side.poll_timeout() else { return Poll::Pending };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != due) {
            self.timer = Some((due, Box::pin(self.link.clock().sleep_until(due))));
        }
        let Some((_, timer)) = &mut self.timer else { return Poll::Pending };
        timer.as_mut().poll(cx).map(|()| self.timer = None)
    }

    /// Sends what the application has to be sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outgoing))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.outgoing.drain(..written)),
            }
            self.is_flushed = false;
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    async fn send(&mut self) -> io::Result<()> {
        self.outgoing.extend(self.side.poll_transmit().into_iter().flatten());
        let clock = self.link.clock().clone();
        let sent = clock.within(FAREWELL, std::future::poll_fn(|cx| self.poll_send(cx))).await;
        sent.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn pass(mut self, first: Vec<u8>) -> SocketEnd {
        if let Err(error) = self.send().await {
            self.link.tell_lost(self.id, Some(&error));
            return SocketEnd::Failed;
        }
        let Member::Connected(member) = self.member else { return SocketEnd::Failed };
        let spliced = splice(self.link.clock(), self.stream, member, first).await;
        self.link.tell_passed(self.id, spliced.passed, spliced.result.as_ref().err());
        if spliced.is_unanswered() { SocketEnd::Failed } else { SocketEnd::Over }
    }

    /// Says the last words, and ends TLS.
    async fn close(mut self, ending: Ending) -> SocketEnd {
        self.link.tell_ending(self.id, &ending);
        if self.send().await.is_ok() {
            let clock = self.link.clock();
            let closed = clock.within(FAREWELL, std::future::poll_fn(|cx| Pin::new(&mut self.stream).poll_close(cx)));
            // The socket is closed in any case.
            let _ = closed.await;
        }
        match ending {
            Ending::Refused { retry_after, .. } => SocketEnd::Refused { retry_after },
            Ending::Left | Ending::StartFailed(_) => SocketEnd::Over,
            Ending::PeerLeaves | Ending::NoGreeting | Ending::Silent(_) | Ending::Protocol(_) | _ => SocketEnd::Failed,
        }
    }
}
