//! A proxy between a client and a server, which passes bytes on as they come, cuts a connection off after a number of
//! bytes, or hands them to the client one by one.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::ground::{self, Ground, Place, Site, Socket, Work};

/// How bytes pass.
#[derive(Clone)]
pub(super) enum Passage {
    /// As they come.
    Whole,
    /// This many bytes of a connection, in both directions together; then it ends.
    Cut(usize),
    /// One by one: to the server as they come; to the client when it waits for the next, which this function knows.
    /// Before each byte it learns how many bytes the client has.
    ByteWise(Arc<dyn Fn(usize) -> Work + Send + Sync>),
}

/// A proxy at a port of its own.
pub(super) struct Proxy {
    route: Arc<Mutex<Route>>,
    // Dropped before its site.
    _acceptor: Box<dyn Send>,
    site: Box<dyn Site>,
}

/// Where new connections lead, and how.
#[derive(Clone)]
struct Route {
    server: Place,
    passage: Passage,
}

/// A connection of a client, and the one to the server that belongs to it.
struct Ends {
    client: Arc<dyn Socket>,
    server: Arc<dyn Socket>,
    /// How many bytes have passed, in both directions together.
    passed: AtomicUsize,
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
        let ground = ground::current();
        let site = ground.site().unwrap();
        let route = Arc::new(Mutex::new(Route { server: server.clone(), passage: Passage::Whole }));
        let chosen = Arc::clone(&route);
        let acceptor = site.listen(Box::new(move |client| {
            let Route { server, passage } = chosen.lock().unwrap().clone();
            let (server, spawner) = (ground.connect(&server), Arc::clone(&ground));
            ground.spawn(Box::pin(async move {
                match server.await {
                    Ok(server) => join(&spawner, client, server, &passage),
                    Err(_) => client.close(),
                }
            }));
        }));
        Self { route, _acceptor: acceptor.unwrap(), site }
    }

    /// Where it listens, as a connection string names it.
    pub(super) fn place(&self) -> &Place {
        self.site.place()
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

/// Passes on what comes at either end, until one of them hangs up.
pub(super) fn join(ground: &Arc<dyn Ground>, client: Arc<dyn Socket>, server: Arc<dyn Socket>, passage: &Passage) {
    let ends = Arc::new(Ends { client, server, passed: AtomicUsize::new(0) });
    for direction in [Direction::ToServer, Direction::ToClient] {
        ground.spawn(Box::pin(Arc::clone(&ends).pass_all_on(direction, passage.clone())));
    }
}

impl Ends {
    async fn pass_all_on(self: Arc<Self>, direction: Direction, passage: Passage) {
        // Either side may hang up; whatever the error, the connection ends with it.
        drop(self.pass_on(direction, &passage).await);
        self.client.close();
        self.server.close();
    }

    async fn pass_on(&self, direction: Direction, passage: &Passage) -> io::Result<()> {
        let (from, to) = match direction {
            Direction::ToServer => (&*self.client, &*self.server),
            Direction::ToClient => (&*self.server, &*self.client),
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = ground::read(from, &mut buffer).await?;
            let bytes = &buffer[..count];
            if bytes.is_empty() {
                return Ok(());
            }
            match passage {
                Passage::Whole => ground::write_all(to, bytes).await?,
                Passage::Cut(limit) => {
                    let left = limit.saturating_sub(self.passed.fetch_add(count, Ordering::SeqCst));
                    ground::write_all(to, &bytes[..left.min(count)]).await?;
                    if left < count {
                        return Ok(());
                    }
                }
                Passage::ByteWise(before_each) => {
                    for byte in bytes.chunks(1) {
                        if direction == Direction::ToClient {
                            before_each(byte.len()).await;
                        }
                        ground::write_all(to, byte).await?;
                    }
                }
            }
        }
    }
}
