//! One connection: its task reads, in the clear or under TLS, and hands commands to the machine, unless it has to
//! misbehave.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use cmap_core::wire::{Content, Decoder, FrameReader, Limits};
use cmap_test_server::{ClientId, Peer};
use rustls::{ServerConfig, ServerConnection};

use super::certificates::client_subject;
use super::lies::{self, Liar};
use super::machine::Machine;
use super::misbehaviour::{Deed, Manners};
use crate::ground::{self, Bell, Socket};

/// A connection's bytes, without TLS on this side.
pub(super) struct Channel {
    socket: Arc<dyn Socket>,
    out: Mutex<Out>,
    liar: Option<Liar>,
    /// Rings when everything that was to be sent has been.
    sent: Bell,
}

/// The way out, which several tasks share: what one has begun to send, another may finish.
struct Out {
    tls: Option<ServerConnection>,
    unsent: Vec<u8>,
}

/// Serves the client behind `channel` to the end.
pub(super) async fn serve(channel: Arc<Channel>, manners: Manners, machine: &Machine) -> io::Result<()> {
    let mut client = None;
    let outcome = converse(&channel, manners, machine, &mut client).await;
    // The machine's share of the channel goes first: the last one closes the socket, perhaps by a reset.
    if let Some(client) = client {
        machine.handle_hang_up(client);
    }
    outcome
}

async fn converse(
    channel: &Arc<Channel>,
    manners: Manners,
    machine: &Machine,
    client: &mut Option<ClientId>,
) -> io::Result<()> {
    if let Some(deed) = manners.at_once() {
        return channel.at_once(deed).await;
    }
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let mut plain = Vec::new();
    while channel.read(&mut plain).await? {
        let mut bytes = plain.as_slice();
        while let Ok(Some(frame)) = frames.read(&mut bytes, &Limits::DEFAULT) {
            let Ok(incoming) = decoder.decode(frame, &Limits::DEFAULT) else { return Ok(()) };
            let deed = match &incoming.content {
                Content::Message(message) => manners.deed(message),
                Content::Query(_) | Content::Reply(_) => None,
            };
            match deed {
                Some((deed, reply)) => {
                    machine.wait_until_it_goes_on().await;
                    if channel.carry_out(deed, &reply).await?.is_break() {
                        return Ok(());
                    }
                }
                None => {
                    let client = *client.get_or_insert_with(|| machine.accept(Arc::clone(channel), channel.peer()));
                    machine.handle_bytes(client, frame).await;
                }
            }
        }
        plain.clear();
    }
    Ok(())
}

impl Channel {
    pub(super) fn new(socket: Arc<dyn Socket>, tls: Option<&Arc<ServerConfig>>, liar: Option<Liar>) -> Self {
        let tls = tls.map(|config| {
            let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
            tls.set_buffer_limit(None);
            tls
        });
        Self { socket, out: Mutex::new(Out { tls, unsent: Vec::new() }), liar, sent: Bell::default() }
    }

    /// Sends the machine's `bytes`, or lies.
    pub(super) async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(liar) = &self.liar else { return self.send_all(bytes).await };
        for deed in liar.tell(bytes) {
            match deed {
                lies::Deed::Pause(pause) => liar.pause(pause).await,
                lies::Deed::Send(bytes) => self.send_all(&bytes).await?,
                lies::Deed::HangUp => self.close(),
            }
        }
        Ok(())
    }

    async fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.out().push(bytes)?;
        self.flush().await
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        self.socket.close();
    }

    /// Waits for bytes and appends them to `plain`. Returns whether there may be more.
    async fn read(&self, plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = ground::read(&*self.socket, &mut buffer).await?;
        let decrypted = self.out().decrypt(&buffer[..count], plain);
        // A failure leaves an alert to be sent.
        self.flush().await?;
        decrypted?;
        Ok(count > 0)
    }

    /// Whether the client has ended TLS by a close_notify.
    pub(super) fn heard_goodbye(&self) -> bool {
        let mut out = self.out();
        out.tls.as_mut().is_some_and(|tls| tls.process_new_packets().is_ok_and(|state| state.peer_has_closed()))
    }

    async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut out = self.out();
            while !out.unsent.is_empty() {
                let Poll::Ready(written) = self.socket.poll_write(cx, &out.unsent) else {
                    // Another task may send what this one waits to send.
                    return self.sent.poll(cx, || false).map(Ok);
                };
                out.unsent.drain(..written?);
            }
            drop(out);
            self.sent.ring();
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Does a deed to the first bytes that come, under TLS to the handshake.
    async fn at_once(&self, deed: Deed) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        while ground::read(&*self.socket, &mut buffer).await? > 0 {
            if self.carry_out(deed, &[]).await?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does `deed` instead of answering, or to the answer `reply`.
    async fn carry_out(&self, deed: Deed, reply: &[u8]) -> io::Result<ControlFlow<()>> {
        let half = &reply[..reply.len() / 2];
        match deed {
            Deed::Silence => return Ok(ControlFlow::Continue(())),
            Deed::HalfThenSilence => return self.send_all(half).await.map(ControlFlow::Continue),
            Deed::AnswerTwice | Deed::AnswerAhead | Deed::AnswerHalfAhead => {
                return self.send_all(reply).await.map(ControlFlow::Continue);
            }
            Deed::HangUp => {}
            Deed::Reset => {
                self.socket.reset_at_end()?;
                return Ok(ControlFlow::Break(()));
            }
            Deed::HalfThenEnd => self.send_all(half).await?,
            Deed::AnswerThenEnd => self.send_all(reply).await?,
            Deed::SpeakHttp => {
                ground::write_all(&*self.socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").await?;
                // As web servers do: a request that is not read to its end makes the end a reset, which may come first.
                let mut rest = [0; 16 * 1024];
                while ground::read(&*self.socket, &mut rest).await? > 0 {}
            }
        }
        self.socket.close();
        Ok(ControlFlow::Break(()))
    }

    fn peer(&self) -> Peer {
        let peer = Peer::at("the suite");
        // There is one certificate of a client that the authority has signed.
        match self.out().tls.as_ref().is_some_and(|tls| tls.peer_certificates().is_some()) {
            true => peer.with_certificate(client_subject()),
            false => peer,
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        };
        tls.writer().write_all(bytes)?;
        self.encrypt()
    }

    fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            plain.extend_from_slice(bytes);
            return Ok(());
        };
        let mut outcome = Ok(());
        while !bytes.is_empty() && outcome.is_ok() {
            tls.read_tls(&mut bytes)?;
            outcome = tls.process_new_packets().map(drop).map_err(io::Error::other);
            match tls.reader().read_to_end(plain) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => outcome = outcome.and(Err(error)),
                Ok(_) | Err(_) => {}
            }
        }
        self.encrypt()?;
        outcome
    }

    fn encrypt(&mut self) -> io::Result<()> {
        while let Some(tls) = &mut self.tls
            && tls.wants_write()
        {
            tls.write_tls(&mut self.unsent)?;
        }
        Ok(())
    }
}
