//! Sockets that listen already when a hub starts: those of the hub before it, and those of systemd.
//!
//! A new process connects to the control socket of the hub that runs, and writes `hand-over`. The answer is a line of JSON that names the
//! places of the sockets; a byte for each follows, which carries the descriptor. Both processes accept clients then. When the new one serves
//! everything it writes `taken`, and the old one drains. Until then nothing has changed for the old one, whatever becomes of the new one.

use std::io;

use thiserror::Error;

use super::sockets::{Place, Socket};

#[cfg(unix)]
use {
    rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    serde::{Deserialize, Serialize},
    serde_json::Value,
    std::os::fd::OwnedFd,
    std::path::Path,
    tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest},
    tokio::net::UnixStream,
};

/// The order by which a new process asks for the sockets, and what it writes when it serves everything.
#[cfg(unix)]
pub(super) const HAND_OVER: &str = "hand-over";
#[cfg(unix)]
pub(super) const TAKEN: &str = "taken";

/// How long the answer of the old process may be.
#[cfg(unix)]
const LONGEST: usize = 1024 * 1024;

/// Sockets that listen already. The process that has handed them over has them, too, and keeps them if this is dropped.
#[derive(Debug, Default)]
pub struct Inherited {
    #[cfg(unix)]
    sockets: Vec<(Place, OwnedFd)>,
    /// The control socket of the hub before this one.
    #[cfg(unix)]
    predecessor: Option<UnixStream>,
}

/// The hub before this one, which drains when this is dropped.
#[cfg(unix)]
#[derive(Debug)]
pub(super) struct Predecessor(#[allow(dead_code, reason = "it is kept open")] Option<UnixStream>);

/// What the old process answers.
#[cfg(unix)]
#[derive(Serialize, Deserialize)]
pub(super) struct Offer {
    /// The places of the sockets, in the order in which these follow.
    pub(super) sockets: Vec<Place>,
}

/// The sockets cannot be taken over. The process that has them goes on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InheritError {
    /// The hub that runs does not answer.
    #[error("the hub at {place} does not hand its listeners over; does it run, and is it yours?")]
    Io {
        /// Its control socket.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// It refuses.
    #[error("the hub that runs does not hand its listeners over: {0}")]
    Refused(String),
    /// What the system has handed over is no listener.
    #[error(
        "the socket with the descriptor {index} of those that systemd hands over is no listener for TCP or a Unix socket; remove it from the socket unit"
    )]
    NoListener {
        /// Its place among them, from zero.
        index: usize,
        /// Why.
        source: io::Error,
    },
}

#[cfg(unix)]
impl Inherited {
    /// The sockets that systemd has opened for this process (`LISTEN_FDS`); none if it has not. They are used where the configuration has
    /// their addresses. The variables are for this process, and for no child of it.
    ///
    /// # Errors
    /// One is no listener.
    pub fn from_system() -> Result<Self, InheritError> {
        let mut given = listenfd::ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..given.len() {
            let failed = |source| InheritError::NoListener { index, source };
            if let Ok(Some(socket)) = given.take_tcp_listener(index) {
                sockets.push((Place::Tcp(socket.local_addr().map_err(failed)?), socket.into()));
            } else if let Some(socket) = given.take_unix_listener(index).map_err(failed)? {
                let address = socket.local_addr().map_err(failed)?;
                let path = address.as_pathname().ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
                sockets.push((Place::Unix(path.into()), socket.into()));
            }
        }
        Ok(Self { sockets, predecessor: None })
    }

    /// The sockets of the hub that runs, whose control socket is at `control`. It goes on until another one has been
    /// [started](super::Hub::start_by) by this. Call it within a runtime of tokio.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn from_hub(control: &Path) -> Result<Self, InheritError> {
        let failed = |source| InheritError::Io { place: control.display().to_string(), source };
        let mut stream = UnixStream::connect(control).await.map_err(failed)?;
        stream.write_all(format!("{HAND_OVER}\n").as_bytes()).await.map_err(failed)?;
        let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
        let line = loop {
            if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                break bytes.get(..end).unwrap_or_default();
            }
            receive(&stream, &mut bytes, &mut descriptors).await.map_err(failed)?;
        };
        let Ok(Offer { sockets: places }) = serde_json::from_slice(line) else {
            let line = String::from_utf8_lossy(line);
            return Err(InheritError::Refused(error_of(&line).unwrap_or_else(|| line.into_owned())));
        };
        while descriptors.len() < places.len() {
            receive(&stream, &mut bytes, &mut descriptors).await.map_err(failed)?;
        }
        Ok(Self { sockets: places.into_iter().zip(descriptors).collect(), predecessor: Some(stream) })
    }

    pub(super) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// The socket that listens here already.
    pub(super) fn take(&mut self, place: &Place) -> io::Result<Option<Socket>> {
        let index = self.sockets.iter().position(|(other, _)| other == place);
        index.map(|index| place.adopt(self.sockets.swap_remove(index).1)).transpose()
    }

    /// The hub serves everything: the one before it drains, once the result is dropped. What is left of the sockets belongs to no listener of the
    /// configuration.
    ///
    /// # Errors
    /// The one before it goes on, or was told to end.
    pub(super) async fn confirm(mut self) -> Result<Predecessor, String> {
        for (place, _) in &self.sockets {
            tracing::warn!(target: "cmap::hub", "{place} was handed over, and is closed: the configuration does not have it");
        }
        let Some(mut stream) = self.predecessor.take() else { return Ok(Predecessor(None)) };
        let mut answer = String::new();
        // One that has gone meanwhile without a word does not mind.
        let _ = stream.write_all(format!("{TAKEN}\n").as_bytes()).await;
        let _ = BufReader::new((&mut stream).take(LONGEST as u64)).read_line(&mut answer).await;
        error_of(&answer).map_or_else(|| Ok(Predecessor(Some(stream))), Err)
    }
}

#[cfg(not(unix))]
impl Inherited {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "elsewhere it may have some")]
    pub(super) fn take(&mut self, _: &Place) -> std::io::Result<Option<Socket>> {
        Ok(None)
    }
}

/// What has gone wrong, by an answer of a control socket.
#[cfg(unix)]
fn error_of(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    Some(answer.get("error")?.as_str()?.to_owned())
}

/// Reads what is there: bytes, and at most one descriptor.
#[cfg(unix)]
async fn receive(stream: &UnixStream, bytes: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let count = stream
        .async_io(Interest::READABLE, || {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [io::IoSliceMut::new(&mut buffer)];
            let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::empty())?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    for descriptor in received {
                        // No child has it, the next process in this one's place included.
                        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
                        descriptors.push(descriptor);
                    }
                }
            }
            Ok(received.bytes)
        })
        .await?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if bytes.len() + count > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer has no end"));
    }
    bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
    Ok(())
}
