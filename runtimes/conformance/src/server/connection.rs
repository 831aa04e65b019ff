//! One connection: its thread reads, in the clear or under TLS, and hands commands to the machine, unless it has to
//! misbehave.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use cmap_core::wire::{Content, Decoder, FrameReader, Limits};
use cmap_test_server::{ClientId, Peer};
use rustls::{ServerConfig, ServerConnection};

use super::certificates::client_subject;
use super::listener::Stream;
use super::machine::Machine;
use super::misbehaviour::{Deed, Manners};

/// A connection's bytes, without TLS on this side.
pub(super) struct Channel {
    stream: Stream,
    tls: Option<Mutex<ServerConnection>>,
}

/// Serves the client behind `channel` to the end.
pub(super) fn serve(channel: Arc<Channel>, manners: Manners, machine: &Machine) -> io::Result<()> {
    let mut client = None;
    let outcome = converse(&channel, manners, machine, &mut client);
    // The machine's share of the channel goes first: the last one closes the socket, perhaps by a reset.
    if let Some(client) = client {
        machine.handle_hang_up(client);
    }
    outcome
}

fn converse(
    channel: &Arc<Channel>,
    manners: Manners,
    machine: &Machine,
    client: &mut Option<ClientId>,
) -> io::Result<()> {
    if let Some(deed) = manners.at_once() {
        return channel.at_once(deed);
    }
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let mut plain = Vec::new();
    while channel.read(&mut plain)? {
        let mut bytes = plain.as_slice();
        while let Ok(Some(frame)) = frames.read(&mut bytes, &Limits::DEFAULT) {
            let Ok(incoming) = decoder.decode(frame, &Limits::DEFAULT) else { return Ok(()) };
            let deed = match &incoming.content {
                Content::Message(message) => manners.deed(message),
                Content::Query(_) | Content::Reply(_) => None,
            };
            match deed {
                Some((deed, reply)) => {
                    machine.wait_until_it_goes_on();
                    if channel.carry_out(deed, &reply)?.is_break() {
                        return Ok(());
                    }
                }
                None => {
                    let client = *client.get_or_insert_with(|| machine.accept(Arc::clone(channel), channel.peer()));
                    machine.handle_bytes(client, frame);
                }
            }
        }
        plain.clear();
    }
    Ok(())
}

impl Channel {
    pub(super) fn new(stream: Stream, tls: Option<&Arc<ServerConfig>>) -> Self {
        let tls = tls.map(|config| {
            let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
            tls.set_buffer_limit(None);
            Mutex::new(tls)
        });
        Self { stream, tls }
    }

    /// Sends `bytes`.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return (&self.stream).write_all(bytes) };
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        tls.writer().write_all(bytes)?;
        self.flush(&mut tls)
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        self.stream.close();
    }

    /// Waits for bytes and appends them to `plain`. Returns whether there may be more.
    fn read(&self, plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = (&self.stream).read(&mut buffer)?;
        let mut bytes = &buffer[..count];
        let Some(tls) = &self.tls else {
            plain.extend_from_slice(bytes);
            return Ok(count > 0);
        };
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes)?;
            let processed = tls.process_new_packets();
            // A failure leaves an alert to be sent.
            self.flush(&mut tls)?;
            processed.map_err(io::Error::other)?;
            match tls.reader().read_to_end(plain) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(count > 0)
    }

    /// Whether the client has ended TLS by a close_notify.
    pub(super) fn heard_goodbye(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| {
            let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
            tls.process_new_packets().is_ok_and(|state| state.peer_has_closed())
        })
    }

    fn flush(&self, tls: &mut ServerConnection) -> io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(&mut &self.stream)?;
        }
        Ok(())
    }

    /// Does a deed to the first bytes that come, under TLS to the handshake.
    fn at_once(&self, deed: Deed) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        while (&self.stream).read(&mut buffer)? > 0 {
            if self.carry_out(deed, &[])?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does `deed` instead of answering, or to the answer `reply`.
    fn carry_out(&self, deed: Deed, reply: &[u8]) -> io::Result<ControlFlow<()>> {
        let half = &reply[..reply.len() / 2];
        match deed {
            Deed::Silence => return Ok(ControlFlow::Continue(())),
            Deed::HalfThenSilence => return self.send(half).map(ControlFlow::Continue),
            Deed::AnswerTwice | Deed::AnswerAhead | Deed::AnswerHalfAhead => {
                return self.send(reply).map(ControlFlow::Continue);
            }
            Deed::HangUp => {}
            Deed::Reset => {
                self.stream.reset_at_end()?;
                return Ok(ControlFlow::Break(()));
            }
            Deed::HalfThenEnd => self.send(half)?,
            Deed::AnswerThenEnd => self.send(reply)?,
            Deed::SpeakHttp => (&self.stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
        }
        self.stream.close();
        Ok(ControlFlow::Break(()))
    }

    fn peer(&self) -> Peer {
        let peer = Peer::at("the suite");
        let tls = self.tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner));
        // There is one certificate of a client that the authority has signed.
        match tls.is_some_and(|tls| tls.peer_certificates().is_some()) {
            true => peer.with_certificate(client_subject()),
            false => peer,
        }
    }
}
