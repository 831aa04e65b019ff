//! A proxy between a client and a server, which passes bytes on as they come, cuts a connection off after a number of
//! bytes, or hands them to the client one by one.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::server::listener::{Acceptor, Listener, Place, Stream};

/// How bytes pass.
#[derive(Clone)]
pub(super) enum Passage {
    /// As they come.
    Whole,
    /// This many bytes of a connection, in both directions together; then it ends.
    Cut(usize),
    /// One by one: to the server as they come; to the client when it waits for the next, which this function knows.
    /// Before each byte it is told how many bytes the client has.
    ByteWise(Arc<dyn Fn(usize) + Send + Sync>),
}

/// A proxy at a port of its own.
pub(super) struct Proxy {
    place: Place,
    route: Arc<Mutex<Route>>,
    _acceptor: Acceptor,
}

/// Where new connections lead, and how.
#[derive(Clone)]
struct Route {
    server: Place,
    passage: Passage,
}

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Proxy {
    /// A proxy before `server`.
    pub(super) fn start(server: &Place) -> Self {
        let listener = Listener::tcp_anywhere().unwrap();
        let place = listener.place().unwrap();
        let route = Arc::new(Mutex::new(Route { server: server.clone(), passage: Passage::Whole }));
        let chosen = Arc::clone(&route);
        let acceptor = Acceptor::start(listener, move |client| {
            let Route { server, passage } = chosen.lock().unwrap().clone();
            let Ok(server) = Stream::connect(&server) else { return };
            let ends = Arc::new((client, server, AtomicUsize::new(0)));
            for direction in [Direction::ToServer, Direction::ToClient] {
                let (ends, passage) = (Arc::clone(&ends), passage.clone());
                thread::spawn(move || {
                    let (client, server, passed) = &*ends;
                    // Either side may hang up; whatever the error, the connection ends with it.
                    drop(pass_on(direction, client, server, &passage, passed));
                    client.close();
                    server.close();
                });
            }
        });
        Self { place, route, _acceptor: acceptor }
    }

    /// Where it listens, as a connection string names it.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// How the bytes pass of connections that are made from now on.
    pub(super) fn set_passage(&self, passage: Passage) {
        self.route.lock().unwrap().passage = passage;
    }

    /// Where connections lead that are made from now on.
    pub(super) fn set_server(&self, server: &Place) {
        self.route.lock().unwrap().server = server.clone();
    }
}

fn pass_on(
    direction: Direction,
    client: &Stream,
    server: &Stream,
    passage: &Passage,
    passed: &AtomicUsize,
) -> io::Result<()> {
    let (mut from, mut to) = match direction {
        Direction::ToServer => (client, server),
        Direction::ToClient => (server, client),
    };
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        let bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        match passage {
            Passage::Whole => to.write_all(bytes)?,
            Passage::Cut(limit) => {
                let left = limit.saturating_sub(passed.fetch_add(count, Ordering::SeqCst));
                to.write_all(&bytes[..left.min(count)])?;
                if left < count {
                    return Ok(());
                }
            }
            Passage::ByteWise(before_each) => {
                for byte in bytes.chunks(1) {
                    if direction == Direction::ToClient {
                        before_each(byte.len());
                    }
                    to.write_all(byte)?;
                }
            }
        }
    }
}
