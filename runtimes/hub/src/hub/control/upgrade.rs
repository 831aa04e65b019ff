//! A new process in this one's place: the hub hands its listeners over, and drains when the new one serves everything.

use core::time::Duration;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, Interest};
use tokio::net::UnixStream;

use super::super::audit;
use super::super::inherited::{Offer, TAKEN};
use super::super::stage::Stage;
use super::Operator;

/// How long the new process may take until it serves everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the new process may take to tell its service manager that it has taken over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How often to look whether the new process has ended.
const LOOK: Duration = Duration::from_millis(50);

impl Operator {
    /// Offers the listeners to the process at the other end, and waits until it serves them.
    pub(super) async fn hand_over(
        &self,
        stream: &UnixStream,
        read: &mut (impl AsyncBufRead + Unpin),
    ) -> Result<Value, String> {
        let Ok(_turn) = self.handing_over.try_lock() else {
            return Err("another process is taking over already".into());
        };
        let mut stage = self.shared.stage();
        if *stage.borrow() != Stage::Open {
            return Err("the hub ends already".into());
        }
        if self.shared.gate.is_paused() {
            return Err("the hub is paused, which a new process would not be; order `resume` first".into());
        }
        // What is read again meanwhile would be lost: the new process has read it already, or not.
        let _no_reload = self.reloader.hold().await;
        if self.shared.upstream.agents.is_some() {
            return Err(
                "agents that dial this hub (upstream.reverse) would not find the new process; restart the hub".into()
            );
        }
        let failed = |error: io::Error| format!("the listeners cannot be handed over: {error}");
        let (sockets, descriptors): (_, Vec<_>) = self.listeners.spares().map_err(failed)?.into_iter().unzip();
        let offer = serde_json::to_string(&Offer { sockets }).map_err(|error| failed(error.into()))?;
        send(stream, format!("{offer}\n").as_bytes(), None).await.map_err(failed)?;
        for descriptor in descriptors {
            send(stream, b".", Some(descriptor)).await.map_err(failed)?;
        }
        let mut line = String::new();
        let mut limited = read.take(64);
        let is_taken = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage != Stage::Open) => return Err("the hub was told to end, and ends".into()),
            read = limited.read_line(&mut line) => read.is_ok() && line.trim_end() == TAKEN,
            () = tokio::time::sleep(PATIENCE) => false,
        };
        if !is_taken {
            tracing::warn!(target: audit::TARGET, "the new process has not taken over: this one goes on");
            return Err("the new process has not taken over in time, and the one before it goes on".into());
        }
        self.shared.succeeded.send_replace(true);
        Ok(json!({ "handed-over": true }))
    }

    /// Drains, once the new process has the answer, and has told its service manager that it is the main process from now on: else the manager
    /// would take the end of this one for that of the service.
    pub(super) async fn follow(&self, read: &mut (impl AsyncBufRead + Unpin)) {
        // It has hung up, or its time is up.
        let _ = tokio::time::timeout(LAST_WORDS, read.read(&mut [0])).await;
        self.shared.asked_to_end.notify_one();
    }

    /// Starts a new process of the hub's program, and waits until that has taken over.
    pub(super) async fn upgrade(&self) -> Result<Value, String> {
        let mut succeeded = self.shared.succeeded.subscribe();
        let mut child = self.shared.program.start_successor(&self.path)?;
        let ended = async {
            loop {
                match child.try_wait() {
                    Ok(None) => tokio::time::sleep(LOOK).await,
                    Ok(Some(status)) => break format!("the new process has ended ({status}) before it took over"),
                    Err(error) => break format!("the new process cannot be watched: {error}"),
                }
            }
        };
        let failed = tokio::select! {
            biased;
            // The sender is in `self`.
            _ = succeeded.wait_for(|is_so| *is_so) => None,
            why = ended => Some(why),
            () = tokio::time::sleep(PATIENCE) => Some(format!("the new process has not taken over within {PATIENCE:?}, and was killed")),
        };
        let process = child.id();
        let upgraded = move || Ok(json!({ "upgraded": true, "process": process }));
        let Some(why) = failed else { return upgraded() };
        // It may be just taking over.
        let _turn = self.handing_over.lock().await;
        if *self.shared.succeeded.borrow() {
            return upgraded();
        }
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        Err(format!("{why}; see its messages on standard error: this one goes on as before"))
    }
}

/// Sends bytes, and a descriptor with them.
async fn send(stream: &UnixStream, mut bytes: &[u8], descriptor: Option<OwnedFd>) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let descriptors = descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
                if let Some(descriptors) = &descriptors {
                    control.push(SendAncillaryMessage::ScmRights(descriptors));
                }
                Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?)
            })
            .await?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}
