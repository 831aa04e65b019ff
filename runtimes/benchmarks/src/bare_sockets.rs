//! Sockets of the runtime with nothing around them: a write, and a read that waits for the reactor.

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use cmap_runtime::Runtime;
use cmap_runtime::bson::rawdoc;
use cmap_runtime::cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use futures_io::{AsyncRead, AsyncWrite};

use crate::Harness;
use crate::caller::ROUND;
use crate::contender::SIZE;
use crate::server::Server;
use crate::tasks::{clock, in_a_task, join};

/// Connections without any state.
pub struct BareSockets<H: Harness> {
    idle: Arc<Mutex<Vec<<H::Runtime as Runtime>::Stream>>>,
    ping: Arc<[u8]>,
    harness: PhantomData<H>,
}

impl<H: Harness> BareSockets<H> {
    pub fn connect(server: &Server) -> Self {
        const { assert!(!H::ENDS) }
        let target = server.target();
        let idle = H::block_on(async {
            let runtime = H::Runtime::current().unwrap();
            let connecting = runtime.clone();
            let connect_all = async move {
                let mut all = Vec::new();
                for _ in 0..SIZE {
                    all.push(connecting.connect(target.clone()).await.unwrap());
                }
                all
            };
            in_a_task(&runtime, connect_all).await
        });
        let mut ping = Vec::new();
        let body = rawdoc! { "ping": 1, "$db": "admin" };
        let ids = MessageIds::request(1);
        MessageWriter::begin(&mut ping, ids, Flags::NONE, &body, &[], &Limits::DEFAULT).unwrap().finish();
        Self { idle: Arc::new(Mutex::new(idle)), ping: ping.into(), harness: PhantomData }
    }

    /// How often the message goes and its reply comes in a [`ROUND`], on as many sockets as there are tasks, if there
    /// are that many.
    pub fn ping_for_a_round(&self, tasks: usize) -> u32 {
        let tasks = (0..tasks.min(SIZE)).map(|_| {
            let (idle, ping) = (Arc::clone(&self.idle), Arc::clone(&self.ping));
            let mut socket = idle.lock().unwrap().pop().unwrap();
            async move {
                let (start, mut count) = (clock(), 0);
                while start.elapsed() < ROUND {
                    exchange(&mut socket, &ping).await.unwrap();
                    count += 1;
                }
                idle.lock().unwrap().push(socket);
                count
            }
        });
        H::block_on(async { join(&H::Runtime::current().unwrap(), tasks).await }).into_iter().sum()
    }
}

/// Both are so small that they go in one piece.
async fn exchange(socket: &mut (impl AsyncRead + AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let written = poll_fn(|cx| Pin::new(&mut *socket).poll_write(cx, message)).await?;
    assert_eq!(written, message.len());
    let read = poll_fn(|cx| Pin::new(&mut *socket).poll_read(cx, &mut [0; 256])).await?;
    assert!(read > 0, "the server hung up");
    Ok(())
}
