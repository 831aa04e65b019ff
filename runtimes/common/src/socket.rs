//! One connection as the pool keeps it: the stream, its protocol machine, and the buffers between them.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bson::RawDocument;
use cmap_core::connection::{Command, Connection, ProtocolError};
use futures_io::{AsyncRead, AsyncWrite};

use crate::cutoff::Cutoff;
use crate::endpoint::Endpoint;
use crate::error::CommandErrorKind;
use crate::net::EitherStream;
use crate::runtime::Runtime;
use crate::tls::TlsStream;
use crate::turns::Turns;

/// So much is read at once.
const READ: usize = 16 * 1024;

/// How much of a buffer stays from a large message to the next.
const KEPT: usize = 256 * 1024;

/// A document without fields.
const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

/// A stream in the clear, or under TLS.
pub(crate) type Transport<S> = EitherStream<S, Box<TlsStream<S>>>;

pub(crate) struct Socket<S> {
    stream: Transport<S>,
    protocol: Connection,
    pub(crate) cutoff: Arc<Cutoff>,
    input: Input,
    output: Vec<u8>,
    /// The last reply.
    reply: Vec<u8>,
    turns: Turns,
}

/// What was read: `unread` of `bytes` is still to be looked at.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    unread: std::ops::Range<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(crate) fn new(stream: Transport<S>, protocol: Connection, cutoff: Arc<Cutoff>) -> Self {
        Self {
            stream,
            protocol,
            cutoff,
            input: Input::default(),
            output: Vec::new(),
            reply: EMPTY.into(),
            turns: Turns::default(),
        }
    }

    /// Puts `command` into the buffer; nothing is sent yet.
    pub(crate) fn prepare(&mut self, command: &Command<'_>) -> Result<(), CommandErrorKind> {
        self.output.clear();
        self.output.shrink_to(KEPT);
        self.reply.clear();
        self.reply.shrink_to(KEPT);
        self.reply.extend_from_slice(&EMPTY);
        self.protocol.send(&mut self.output, command).map_err(CommandErrorKind::NotSent)
    }

    /// Sends what was prepared.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        write_all(&mut self.stream, &self.output).await
    }

    /// Reads until the reply is whole; it is left in [`reply`](Self::reply).
    pub(crate) async fn receive<R>(&mut self, endpoint: &Endpoint<R>) -> Result<(), CommandErrorKind>
    where
        R: Runtime<Stream = S>,
    {
        if self.input.unread.is_empty() {
            self.await_reply(endpoint).await.map_err(CommandErrorKind::Network)?;
        }
        while !self.take_reply().map_err(CommandErrorKind::Protocol)? {
            self.input.fill(&mut self.stream).await.map_err(CommandErrorKind::Network)?;
        }
        Ok(())
    }

    /// Lets others run where the reply is likely to be there then, or else waits until the socket has something to say.
    async fn await_reply<R: Runtime<Stream = S>>(&mut self, endpoint: &Endpoint<R>) -> io::Result<()> {
        let (stream, input) = (&mut self.stream, &mut self.input);
        let (now, is_alone) = (|| endpoint.now(), || endpoint.has_one_command());
        if self.turns.pass(now, is_alone, || input.fill_now::<R>(stream)).await? {
            return Ok(());
        }
        poll_fn(|cx| match stream {
            EitherStream::Left(stream) => R::poll_readable(stream, cx),
            EitherStream::Right(stream) => stream.poll_readable(cx, R::poll_readable),
        })
        .await
    }

    /// The last reply; an empty document, if there is none.
    pub(crate) fn reply(&self) -> Result<&RawDocument, CommandErrorKind> {
        // The protocol has checked it.
        RawDocument::from_bytes(&self.reply).map_err(|_| CommandErrorKind::Protocol(ProtocolError::Broken))
    }

    /// Whether the next command may be sent: the last reply was read, and nothing came behind it. Bytes that nobody asked for
    /// could be taken for the next reply. Those that the kernel still holds do not show here.
    pub(crate) fn is_between_commands(&self) -> bool {
        let has_more = match &self.stream {
            EitherStream::Left(_) => false,
            EitherStream::Right(stream) => stream.has_something_to_read(),
        };
        self.protocol.is_idle() && self.input.unread.is_empty() && !has_more
    }

    pub(crate) fn protocol(&self) -> &Connection {
        &self.protocol
    }

    fn take_reply(&mut self) -> Result<bool, ProtocolError> {
        let Some(mut unread) = self.input.bytes.get(self.input.unread.clone()) else { return Ok(false) };
        let reply = self.protocol.read(&mut unread)?;
        if let Some(reply) = &reply {
            self.reply.clear();
            self.reply.extend_from_slice(reply.body.as_bytes());
        }
        let found = reply.is_some();
        self.input.unread.start = self.input.unread.end - unread.len();
        Ok(found)
    }

    /// Whether the peer still listens, as far as can be seen without waiting: it has neither hung up nor said anything
    /// that nobody asked for.
    pub(crate) fn is_alive<R: Runtime<Stream = S>>(&mut self) -> bool {
        read_now::<R>(&mut self.stream, &mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Closes the socket, as politely as is possible without waiting.
    pub(crate) fn close(mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        // Whether the peer hears it is the peer's business.
        let _ = Pin::new(&mut self.stream).poll_close(&mut nobody);
    }
}

impl Input {
    /// Reads once, when everything was looked at.
    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        self.bytes.resize(READ, 0);
        let count = read(stream, &mut self.bytes).await?;
        self.unread = 0..count;
        Ok(())
    }

    /// The same without waiting; returns whether there was something to read.
    fn fill_now<R: Runtime>(&mut self, stream: &mut Transport<R::Stream>) -> io::Result<bool> {
        self.bytes.resize(READ, 0);
        match read_now::<R>(stream, &mut self.bytes) {
            Ok(0) => Err(hung_up()),
            Ok(count) => {
                self.unread = 0..count;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Reads what is there to read, without waiting.
fn read_now<R: Runtime>(stream: &mut Transport<R::Stream>, buffer: &mut [u8]) -> io::Result<usize> {
    match stream {
        EitherStream::Left(stream) => R::read_now(stream, buffer),
        EitherStream::Right(stream) => stream.read_now(buffer, R::read_now),
    }
}

/// Reads at least one byte.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> io::Result<usize> {
    match poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buffer)).await? {
        0 => Err(hung_up()),
        count => Ok(count),
    }
}

pub(crate) fn hung_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up")
}

/// Writes and flushes all of `bytes`.
pub(crate) async fn write_all(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    poll_fn(|cx| {
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await
}
