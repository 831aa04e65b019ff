//! The other end of a connection, in memory: a server's machine, and the pieces in which its bytes come and go.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_io::{AsyncRead, AsyncWrite};
use rustls::{ServerConfig, ServerConnection};

/// A server's behaviour after the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// It echoes.
    Echo,
    /// A text, and then a close_notify.
    Farewell(&'static [u8]),
    /// A text, and then it hangs up.
    HangUp(&'static [u8]),
}

enum Machine {
    Tls { connection: Box<ServerConnection>, behaviour: Behaviour, told: bool },
    Text(&'static [u8]),
}

/// A connection with a server, as the client's stream.
pub(crate) struct Peer {
    machine: Machine,
    /// How many bytes go through one read or write, in turns.
    sizes: Vec<usize>,
    turn: usize,
    /// Whether every second poll is pending first, and whether this one was.
    hesitates: bool,
    hesitated: bool,
    /// Which byte on the way to the client gets another lowest bit; after that silence is the end.
    flip: Option<usize>,
    /// How many bytes the client has got.
    told: usize,
    /// How many bytes the client has sent.
    heard: usize,
    /// On the way to the client.
    outgoing: VecDeque<u8>,
    /// How many bytes may still reach the client before the connection breaks.
    left: Option<usize>,
    breaks_with: Option<io::ErrorKind>,
    hung_up: bool,
    failure: Option<rustls::Error>,
}

impl Peer {
    pub(crate) fn tls(config: &Arc<ServerConfig>) -> Self {
        let mut connection = Box::new(ServerConnection::new(Arc::clone(config)).unwrap());
        connection.set_buffer_limit(None);
        Self::new(Machine::Tls { connection, behaviour: Behaviour::Echo, told: false })
    }

    /// A server that answers anything with `text` and hangs up.
    pub(crate) fn text(text: &'static [u8]) -> Self {
        Self::new(Machine::Text(text))
    }

    fn new(machine: Machine) -> Self {
        Self {
            machine,
            sizes: vec![usize::MAX],
            turn: 0,
            hesitates: false,
            hesitated: false,
            flip: None,
            told: 0,
            heard: 0,
            outgoing: VecDeque::new(),
            left: None,
            breaks_with: None,
            hung_up: false,
            failure: None,
        }
    }

    pub(crate) fn behaving(mut self, new: Behaviour) -> Self {
        if let Machine::Tls { behaviour, .. } = &mut self.machine {
            *behaviour = new;
        }
        self
    }

    /// Every read and write moves at most as many bytes as the next of `sizes` says.
    pub(crate) fn in_pieces(mut self, sizes: &[usize]) -> Self {
        self.sizes = sizes.to_vec();
        self
    }

    /// Every second poll is pending.
    pub(crate) fn hesitating(mut self) -> Self {
        self.hesitates = true;
        self
    }

    /// The client gets no more than `bytes`; then the connection ends, or fails `with` an error.
    pub(crate) fn breaking_after(mut self, bytes: usize, with: Option<io::ErrorKind>) -> Self {
        self.left = Some(bytes);
        self.breaks_with = with;
        self
    }

    /// The byte at `offset` on the way to the client gets another lowest bit, and a silent server hangs up.
    pub(crate) fn flipping_a_bit_at(mut self, offset: usize) -> Self {
        self.flip = Some(offset);
        self
    }

    pub(crate) fn server(&self) -> &ServerConnection {
        match &self.machine {
            Machine::Tls { connection, .. } => connection,
            Machine::Text(_) => panic!("this server has no TLS"),
        }
    }

    /// The server's error about the client's bytes.
    pub(crate) fn failure(&self) -> Option<&rustls::Error> {
        self.failure.as_ref()
    }

    /// How many bytes the client has got.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    /// How many bytes the client has sent.
    pub(crate) fn heard(&self) -> usize {
        self.heard
    }

    fn next_size(&mut self) -> usize {
        self.turn += 1;
        self.sizes[self.turn % self.sizes.len()]
    }

    fn hesitate(&mut self, cx: &Context<'_>) -> bool {
        self.hesitated = self.hesitates && !self.hesitated;
        if self.hesitated {
            cx.waker().wake_by_ref();
        }
        self.hesitated
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        match &mut self.machine {
            Machine::Text(text) => {
                self.outgoing.extend(*text);
                self.hung_up = true;
            }
            Machine::Tls { connection, behaviour, told } => {
                while !bytes.is_empty() && !self.hung_up {
                    connection.read_tls(&mut bytes).unwrap();
                    // A failure leaves an alert to be sent.
                    self.failure = connection.process_new_packets().err();
                    self.hung_up = self.failure.is_some();
                    answer(connection, *behaviour, told, &mut self.hung_up);
                }
                while connection.wants_write() {
                    connection.write_tls(&mut self.outgoing).unwrap();
                }
            }
        }
    }
}

fn answer(connection: &mut ServerConnection, behaviour: Behaviour, told: &mut bool, hung_up: &mut bool) {
    let mut heard = Vec::new();
    let ended = match connection.reader().read_to_end(&mut heard) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    if connection.is_handshaking() {
        return;
    }
    match behaviour {
        Behaviour::Echo => connection.writer().write_all(&heard).unwrap(),
        Behaviour::Farewell(_) | Behaviour::HangUp(_) if *told => {}
        Behaviour::Farewell(text) => {
            connection.writer().write_all(text).unwrap();
            connection.send_close_notify();
        }
        Behaviour::HangUp(text) => {
            connection.writer().write_all(text).unwrap();
            *hung_up = true;
        }
    }
    if ended && !*told {
        connection.send_close_notify();
    }
    *told = !matches!(behaviour, Behaviour::Echo) || ended;
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.hesitate(cx) {
            return Poll::Pending;
        }
        if this.left == Some(0) {
            return Poll::Ready(this.breaks_with.map_or(Ok(0), |kind| Err(kind.into())));
        }
        if this.outgoing.is_empty() {
            return if this.hung_up || this.flip.is_some() { Poll::Ready(Ok(0)) } else { Poll::Pending };
        }
        let size = this.next_size().min(buffer.len()).min(this.left.unwrap_or(usize::MAX));
        let read = this.outgoing.read(&mut buffer[..size])?;
        if let Some(byte) = this.flip.and_then(|flip| buffer[..read].get_mut(flip.checked_sub(this.told)?)) {
            *byte ^= 1;
        }
        this.told += read;
        this.left = this.left.map(|left| left - read);
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.hesitate(cx) {
            return Poll::Pending;
        }
        let size = this.next_size().min(buffer.len());
        this.heard += size;
        this.hear(&buffer[..size]);
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().hung_up = true;
        Poll::Ready(Ok(()))
    }
}

/// Runs `future` to its end on this thread. A pending future without a wake-up is a defect.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        assert!(woken.0.swap(false, Ordering::Relaxed), "the future waits, and nobody would wake it");
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
