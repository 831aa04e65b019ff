//! One connection as the pool keeps it: the stream, its protocol machine, and the buffers between them.
//!
//! An idle connection keeps [`KEPT`] bytes of a buffer at most, and no coder. What a use needs beyond that is borrowed from the
//! client's pooled buffers, and given back as soon as possible: that of a command when it is sent, that of a reply's message when
//! the reply was copied, and the copy when the next command begins or the connection is checked in.

pub(crate) mod abort;
pub(crate) mod buffer_pool;
pub(crate) mod cursor_duty;
pub mod net;
pub(crate) mod read_budget;
pub(crate) mod transport;
pub(crate) mod yield_now;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bson::RawDocument;
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, Connection, ProtocolError};
use cmap_core::options::{Credential, Secret};
use cmap_core::wire::{Field, KEPT, Lender, Sequence};
use futures_io::{AsyncRead, AsyncWrite};
use zeroize::Zeroize;

use self::buffer_pool::SharedBufferPool;
use self::cursor_duty::CursorDuty;
use crate::error::CommandErrorKind;
use crate::runtime::Runtime;
use crate::socket::abort::Abort;
use crate::socket::transport::Transport;
use crate::watch::Tag;

/// The number of bytes that are read at once.
const READ: usize = 16 * 1024;

/// What a message may have beyond the documents that a command names: header, `$db`, the server API, `maxTimeMS`.
const OVERHEAD: usize = 1024;

/// A document without fields.
const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

pub(crate) struct Socket<S> {
    /// The server's.
    pub(crate) address: Arc<ServerAddress>,
    stream: Transport<S>,
    protocol: Connection,
    pub(crate) abort: Arc<Abort>,
    input: Input,
    output: Vec<u8>,
    /// Whether the last command was sent as a whole.
    is_sent: bool,
    /// The last reply.
    reply: Vec<u8>,
    /// What is to be done if the command under way is given up.
    pub(crate) cursor_duty: Option<Box<CursorDuty>>,
    /// Who holds the connection, or held it last, where that is noted: here the check-in finds it without a search.
    pub(crate) tag: Tag,
    /// The credential that it was established with, and keeps.
    pub(crate) credential: Option<Arc<Credential>>,
    /// The access token that it has logged in with (OIDC-3).
    pub(crate) token: Option<Secret>,
}

/// What was read: `unread` of `bytes` is still to be looked at.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    unread: std::ops::Range<usize>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(crate) fn new(
        address: Arc<ServerAddress>,
        stream: Transport<S>,
        protocol: Connection,
        abort: Arc<Abort>,
    ) -> Self {
        Self {
            address,
            stream,
            protocol,
            abort,
            input: Input::default(),
            output: Vec::new(),
            is_sent: false,
            reply: EMPTY.into(),
            cursor_duty: None,
            tag: Tag::default(),
            credential: None,
            token: None,
        }
    }

    /// Puts `command` into the buffer; nothing is sent yet.
    pub(crate) fn prepare(
        &mut self,
        command: &Command<'_>,
        mut buffers: &SharedBufferPool,
    ) -> Result<(), CommandErrorKind> {
        self.forget_reply(buffers);
        self.output.clear();
        self.is_sent = false;
        let fields: usize = command.fields.iter().map(Field::length).sum();
        let sequences: usize = command.sequences.iter().map(Sequence::length).sum();
        let length = command.body.as_bytes().len() + fields + sequences + OVERHEAD;
        buffers.lend(&mut self.output, length);
        if sequences > 0 {
            // Growing by itself, it would have room for two.
            self.output.reserve_exact(length);
        }
        self.protocol.borrow_compressor(&mut buffers);
        let prepared = self.protocol.send(&mut self.output, command);
        self.protocol.give_back(&mut buffers);
        prepared.map_err(|error| {
            buffers.take_back(&mut self.output);
            CommandErrorKind::NotSent(error)
        })
    }

    /// Sends what was prepared.
    pub(crate) async fn send(&mut self, mut buffers: &SharedBufferPool) -> io::Result<()> {
        write_all(&mut self.stream, &self.output).await?;
        self.is_sent = true;
        buffers.take_back(&mut self.output);
        Ok(())
    }

    /// Overwrites what was sent last, which had a secret in it.
    pub(crate) fn wipe_output(&mut self) {
        self.output.zeroize();
    }

    /// Whether the last command was sent as a whole.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Reads until the reply is whole; it is left in [`reply`](Self::reply). `replies` is called when it begins.
    pub(crate) async fn receive<R: Runtime<Stream = S>>(
        &mut self,
        buffers: &SharedBufferPool,
        replies: impl FnOnce(),
    ) -> Result<(), CommandErrorKind> {
        if self.input.unread.is_empty() {
            self.await_readable::<R>().await.map_err(CommandErrorKind::Network)?;
        }
        replies();
        while !self.take_reply(buffers).map_err(CommandErrorKind::Protocol)? {
            self.input.fill(&mut self.stream).await.map_err(CommandErrorKind::Network)?;
        }
        Ok(())
    }

    /// Waits until the reactor says that the socket can be read. The reply is not there yet, as a rule: where every read asks
    /// the system, this saves the one that finds nothing.
    async fn await_readable<R: Runtime<Stream = S>>(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.stream.poll_readable::<R>(cx)).await
    }

    /// The last reply; an empty document, if there is none.
    pub(crate) fn reply(&self) -> Result<&RawDocument, CommandErrorKind> {
        // The protocol has checked it.
        RawDocument::from_bytes(&self.reply).map_err(|_| CommandErrorKind::Protocol(ProtocolError::Errored))
    }

    /// Whether the next command may be sent: the last reply was read, and nothing came behind it. Bytes that nobody asked for
    /// could be taken for the next reply. Those that the kernel still holds do not show here.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.protocol.is_idle() && self.input.unread.is_empty() && !self.stream.has_something_to_read()
    }

    pub(crate) fn protocol(&self) -> &Connection {
        &self.protocol
    }

    /// Whether the last reply takes so much that an idle connection must [give it back](Self::give_back).
    #[inline]
    pub(crate) fn has_large_reply(&self) -> bool {
        self.reply.capacity() > KEPT
    }

    /// Gives back what the last reply takes, if it is large. A small one may stay.
    pub(crate) fn give_back(&mut self, mut buffers: &SharedBufferPool) {
        buffers.take_back(&mut self.reply);
    }

    fn forget_reply(&mut self, buffers: &SharedBufferPool) {
        self.give_back(buffers);
        self.reply.clear();
        self.reply.extend_from_slice(&EMPTY);
    }

    fn take_reply(&mut self, mut buffers: &SharedBufferPool) -> Result<bool, ProtocolError> {
        let Some(mut unread) = self.input.bytes.get(self.input.unread.clone()) else { return Ok(false) };
        let reply = self.protocol.read_borrowing(&mut unread, &mut buffers)?;
        let found = reply.is_some();
        if let Some(reply) = reply {
            let bytes = reply.body.as_bytes();
            self.reply.clear();
            buffers.lend(&mut self.reply, bytes.len());
            self.reply.extend_from_slice(bytes);
            self.protocol.give_back(&mut buffers);
        }
        self.input.unread.start = self.input.unread.end - unread.len();
        Ok(found)
    }

    /// Whether the peer still listens, as far as can be seen without waiting: it has neither hung up nor said anything
    /// that nobody asked for.
    pub(crate) fn is_alive<R: Runtime<Stream = S>>(&mut self) -> bool {
        self.stream.read_now::<R>(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
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
