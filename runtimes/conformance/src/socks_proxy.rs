//! A SOCKS5 proxy (RFC 1928, RFC 1929) that resolves names by a table, counts who passes, and lies when told to.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::ground::{self, Ground, Place, Site, Socket};
use super::proxy::{Passage, join};

/// What the proxy does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lie {
    /// Nothing.
    #[default]
    None,
    /// It hangs up after this many bytes of its replies.
    HangUp(usize),
    /// This byte of its replies is another one.
    Flip(usize),
    /// It accepts and says nothing.
    Silence,
}

/// A proxy at a port of its own.
pub(super) struct SocksProxy {
    desk: Arc<Mutex<Desk>>,
    // Dropped before its site.
    _acceptor: Box<dyn Send>,
    site: Box<dyn Site>,
}

/// What the proxy knows.
#[derive(Clone, Default)]
struct Desk {
    /// Where names lead.
    names: BTreeMap<String, Place>,
    /// User name and password, if it wants them.
    login: Option<(&'static str, &'static str)>,
    lie: Lie,
    /// How many tunnels there were.
    passed: usize,
}

/// The client's end of a connection to the proxy.
struct Line {
    client: Arc<dyn Socket>,
    lie: Lie,
    written: usize,
}

impl SocksProxy {
    /// A proxy that knows `names`.
    pub(super) fn start(names: &[(&str, &Place)], login: Option<(&'static str, &'static str)>) -> Self {
        let names = names.iter().map(|(name, place)| ((*name).to_owned(), (*place).clone())).collect();
        let desk = Arc::new(Mutex::new(Desk { names, login, ..Desk::default() }));
        let (ground, shared) = (ground::current(), Arc::clone(&desk));
        let site = ground.site().unwrap();
        let acceptor = site.listen(Box::new(move |client| {
            let (spawner, desk) = (Arc::clone(&ground), Arc::clone(&shared));
            ground.spawn(Box::pin(async move {
                match greet(&spawner, &client, &desk).await {
                    Ok(server) => join(&spawner, client, server, &Passage::Whole),
                    Err(_) => client.close(),
                }
            }));
        }));
        Self { desk, _acceptor: acceptor.unwrap(), site }
    }

    /// The options of a connection string that lead through it.
    pub(super) fn query(&self) -> String {
        let Place::Tcp(address) = self.site.place() else { panic!("it listens on TCP") };
        format!("proxyHost={}&proxyPort={}", address.ip(), address.port())
    }

    /// Where it listens.
    pub(super) fn place(&self) -> &Place {
        self.site.place()
    }

    /// What it does wrong from now on.
    pub(super) fn set_lie(&self, lie: Lie) {
        self.desk().lie = lie;
    }

    /// How many tunnels there were.
    pub(super) fn passed(&self) -> usize {
        self.desk().passed
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap()
    }
}

/// Greets a client, and connects it.
async fn greet(ground: &Arc<dyn Ground>, client: &Arc<dyn Socket>, desk: &Mutex<Desk>) -> io::Result<Arc<dyn Socket>> {
    let Desk { names, login, lie, .. } = desk.lock().unwrap().clone();
    let mut line = Line { client: Arc::clone(client), lie, written: 0 };
    let [_, methods] = line.read().await?;
    let methods = line.read_text(methods).await?;
    match login {
        None if methods.contains(&0) => line.reply(&[5, 0]).await?,
        Some(login) if methods.contains(&2) => {
            line.reply(&[5, 2]).await?;
            let [_, length] = line.read().await?;
            let username = line.read_text(length).await?;
            let [length] = line.read().await?;
            let password = line.read_text(length).await?;
            let is_right = (&*username, &*password) == (login.0.as_bytes(), login.1.as_bytes());
            line.reply(&[1, u8::from(!is_right)]).await?;
            refuse_unless(is_right)?;
        }
        None | Some(_) => {
            line.reply(&[5, 255]).await?;
            refuse_unless(false)?;
        }
    }
    let [_, _, _, kind] = line.read().await?;
    // It knows names alone.
    let [length] = if kind == 3 { line.read().await? } else { [4] };
    let name = line.read_text(length).await?;
    let [_, _] = line.read().await?;
    let place = std::str::from_utf8(&name).ok().and_then(|name| names.get(name));
    let server = match place {
        Some(place) => ground.connect(place).await.map_err(|_| 5),
        None => Err(4),
    };
    let code = server.as_ref().err().copied().unwrap_or_default();
    line.reply(&[5, code, 0, 1, 127, 0, 0, 1, 1, 1]).await?;
    desk.lock().unwrap().passed += usize::from(server.is_ok());
    server.map_err(|_| io::ErrorKind::ConnectionRefused.into())
}

fn refuse_unless(is_right: bool) -> io::Result<()> {
    if is_right { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

impl Line {
    async fn read<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_into(&mut bytes).await?;
        Ok(bytes)
    }

    async fn read_text(&self, length: u8) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length.into()];
        self.read_into(&mut bytes).await?;
        Ok(bytes)
    }

    async fn read_into(&self, mut unfilled: &mut [u8]) -> io::Result<()> {
        while !unfilled.is_empty() {
            match ground::read(&*self.client, unfilled).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => unfilled = &mut unfilled[count..],
            }
        }
        Ok(())
    }

    async fn reply(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            let byte = match self.lie {
                Lie::HangUp(after) if self.written == after => return Err(io::ErrorKind::BrokenPipe.into()),
                Lie::Flip(place) if self.written == place => !byte,
                Lie::Silence => continue,
                Lie::None | Lie::HangUp(_) | Lie::Flip(_) => *byte,
            };
            ground::write_all(&*self.client, &[byte]).await?;
            self.written += 1;
        }
        Ok(())
    }
}
