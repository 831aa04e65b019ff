//! SOCKS5 (RFC 1928), client's side: a tunnel through a proxy to a server, before TLS and hello (SOCKS-2).
//!
//! A small linear machine, like [`Establish`](super::Establish). Over a stream to [`proxy`](Socks::proxy), send the bytes that
//! [`write_to`](Socks::write_to) gives, read at most [`wanted`](Socks::wanted) bytes, and hand them in, until the machine
//! [is connected](Socks::is_connected). The next byte is the server's. The proxy resolves the server's name (SOCKS-3).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use zeroize::{Zeroize, Zeroizing};

use super::{EstablishError, Fault, Phase};
use crate::address::ServerAddress;
use crate::options::{ProxyOptions, Secret};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NOTHING_ACCEPTED: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest host name, user name and password, whose length goes as a byte.
const MAX_TEXT: usize = 255;
/// The most bytes that are sent at once: the login.
const MAX_REQUEST: usize = 1 + 1 + MAX_TEXT + 1 + MAX_TEXT;

const CHECK_PROXY: &str = "check proxyHost and proxyPort";

/// The way through a SOCKS5 proxy to one server, without its socket.
pub struct Socks {
    proxy: ServerAddress,
    target: ServerAddress,
    /// User name and password (RFC 1929).
    login: Option<(String, Secret)>,
    /// The request to connect.
    request: Vec<u8>,
    stage: Stage,
    /// The bytes to send; they may hold a password.
    out: Zeroizing<Vec<u8>>,
    /// The bytes so far of the reply that is due.
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The ways to log in are offered.
    Greeting,
    /// User name and password are sent.
    Login,
    /// The proxy is asked to connect.
    Request,
    Connected,
    Failed,
}

impl Socks {
    /// The way to `target`; `None` where none is needed: there is no proxy, or the server is a Unix socket (SOCKS-4).
    ///
    /// # Errors
    /// The server's name, the user name or the password has more than 255 bytes, which SOCKS5 cannot carry.
    /// [`ClientOptions::check`](crate::options::ClientOptions::check) refuses such a user name and password, too.
    pub fn new(options: &ProxyOptions, target: &ServerAddress) -> Result<Option<Self>, EstablishError> {
        let (Some(proxy), ServerAddress::Tcp { host, port }) = (options.address(), target) else { return Ok(None) };
        let mut socks = Self {
            proxy,
            target: target.clone(),
            login: options.login().map(|(username, password)| (username.into(), password.clone())),
            request: Vec::new(),
            stage: Stage::Greeting,
            out: Zeroizing::new(Vec::with_capacity(MAX_REQUEST)),
            reply: Vec::new(),
        };
        socks.request = request(host, *port).ok_or_else(|| socks.too_long("a host name"))?;
        match &socks.login {
            Some((username, password)) if username.len().max(password.expose().len()) > MAX_TEXT => {
                return Err(socks.too_long("a user name or password"));
            }
            Some(_) => socks.out.extend_from_slice(&[VERSION, 2, NO_LOGIN, USER_AND_PASSWORD]),
            None => socks.out.extend_from_slice(&[VERSION, 1, NO_LOGIN]),
        }
        Ok(Some(socks))
    }

    /// The proxy, to which the stream leads.
    pub fn proxy(&self) -> &ServerAddress {
        &self.proxy
    }

    /// Whether the stream leads to the server.
    pub fn is_connected(&self) -> bool {
        self.stage == Stage::Connected
    }

    /// Appends the bytes to send. They may hold a password: wipe the buffer once it is sent.
    pub fn write_to(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.out);
        self.out.zeroize();
    }

    /// The most bytes to read next, at most 262: those behind them belong to the server.
    pub fn wanted(&self) -> usize {
        self.reply_length().saturating_sub(self.reply.len())
    }

    /// Bytes came from the proxy.
    ///
    /// # Errors
    /// The proxy refused, or broke the protocol. Close the stream.
    pub fn handle_bytes(&mut self, input: &[u8]) -> Result<(), EstablishError> {
        if input.len() > self.wanted() {
            return Err(self.end("it sent more than it was asked for; check that a SOCKS5 proxy listens there"));
        }
        // Each byte is judged when it comes: a proxy that refuses may hang up before its reply is whole.
        for byte in input {
            self.reply.push(*byte);
            self.judge()?;
            if self.wanted() == 0 {
                self.advance();
                self.reply.clear();
            }
        }
        Ok(())
    }

    /// The error for a stream to the proxy that failed, or could not be opened: it names the proxy and the step (SOCKS-4).
    pub fn failed(&self, fault: Fault, problem: impl fmt::Display) -> EstablishError {
        let Self { proxy, target, .. } = self;
        let text = match self.stage {
            Stage::Greeting => alloc::format!("{proxy}, at the greeting: {problem}"),
            Stage::Login => alloc::format!("{proxy}, at the login: {problem}"),
            Stage::Request | Stage::Connected | Stage::Failed => {
                alloc::format!("{proxy}, asked to connect to {target}: {problem}")
            }
        };
        EstablishError::new(Phase::Proxy, fault, text)
    }

    fn too_long(&self, what: &str) -> EstablishError {
        self.failed(Fault::Other, format_args!("SOCKS5 cannot carry {what} of more than {MAX_TEXT} bytes"))
    }

    /// How long the reply is, as far as that is known.
    fn reply_length(&self) -> usize {
        match self.stage {
            Stage::Greeting | Stage::Login => 2,
            Stage::Request => match self.reply.get(3..) {
                Some([IPV4, ..]) => 4 + 4 + 2,
                Some([IPV6, ..]) => 4 + 16 + 2,
                Some([NAME, length, ..]) => 4 + 1 + usize::from(*length) + 2,
                Some([_]) => 5,
                _ => 4,
            },
            Stage::Connected | Stage::Failed => 0,
        }
    }

    /// Judges the last byte of the reply.
    fn judge(&mut self) -> Result<(), EstablishError> {
        let problem = match (self.stage, self.reply.as_slice()) {
            (Stage::Greeting | Stage::Request, [version]) if *version != VERSION => {
                alloc::format!("it does not answer in SOCKS5; {CHECK_PROXY}")
            }
            (Stage::Greeting, [_, NOTHING_ACCEPTED]) => self.not_let_in().into(),
            (Stage::Greeting, [_, method]) if !self.has_offered(*method) => {
                alloc::format!("it wants a login that it was not offered, {method}; {CHECK_PROXY}")
            }
            (Stage::Login, [version]) if *version != LOGIN_VERSION => {
                alloc::format!("it answers the login in another protocol, {version}; {CHECK_PROXY}")
            }
            (Stage::Login, [_, status]) if *status != 0 => {
                alloc::format!(
                    "it refused the user name or the password ({status}); check proxyUsername and proxyPassword"
                )
            }
            (Stage::Request, [_, code]) if *code != 0 => refusal(*code),
            (Stage::Request, [_, _, reserved]) if *reserved != 0 => {
                alloc::format!("its answer has a reserved byte that is not zero; {CHECK_PROXY}")
            }
            (Stage::Request, [_, _, _, kind]) if ![IPV4, NAME, IPV6].contains(kind) => {
                alloc::format!("its answer has an address of an unknown kind, {kind}; {CHECK_PROXY}")
            }
            _ => return Ok(()),
        };
        Err(self.end(&problem))
    }

    fn has_offered(&self, method: u8) -> bool {
        method == NO_LOGIN || (method == USER_AND_PASSWORD && self.login.is_some())
    }

    fn not_let_in(&self) -> &'static str {
        match self.login {
            Some(_) => "it accepts neither a user name with a password nor a client without; ask who runs it",
            None => "it does not let clients in without a login; set proxyUsername and proxyPassword",
        }
    }

    /// The reply is whole and good.
    fn advance(&mut self) {
        let wants_login = self.stage == Stage::Greeting && self.reply.ends_with(&[USER_AND_PASSWORD]);
        match (self.stage, &self.login) {
            (Stage::Greeting, Some((username, password))) if wants_login => {
                self.out.push(LOGIN_VERSION);
                for text in [username.as_str(), password.expose()] {
                    // `new` has refused longer ones.
                    self.out.push(u8::try_from(text.len()).unwrap_or_default());
                    self.out.extend_from_slice(text.as_bytes());
                }
                self.stage = Stage::Login;
            }
            (Stage::Greeting | Stage::Login, _) => {
                self.out.extend_from_slice(&self.request);
                self.stage = Stage::Request;
            }
            (Stage::Request, _) => self.stage = Stage::Connected,
            (Stage::Connected | Stage::Failed, _) => {}
        }
    }

    /// Fails for good.
    fn end(&mut self, problem: &str) -> EstablishError {
        // SOCKS-4: whatever the proxy did, its failures are those of the network.
        let error = self.failed(Fault::Network, problem);
        self.stage = Stage::Failed;
        error
    }
}

/// The request to connect to a server; `None` if its name is too long. A name goes as it is (SOCKS-3).
fn request(host: &str, port: u16) -> Option<Vec<u8>> {
    let mut request = alloc::vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            request.extend_from_slice(&[NAME, u8::try_from(host.len()).ok()?]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    Some(request)
}

/// What the code of a refused request means (RFC 1928, section 6).
fn refusal(code: u8) -> String {
    let reason = match code {
        1 => "it failed; its log may say why",
        2 => "its rules do not allow this connection; ask who runs it",
        3 => "it has no way to the server's network; check the server's name, and the proxy's network",
        4 => "it cannot reach the server's host; check the server's name, and whether the proxy can resolve it",
        5 => "the server refused its connection; check that MongoDB runs there and listens at this port",
        6 => "its packets to the server expired; check the network between proxy and server",
        7 => "it does not support connecting; check that it is a SOCKS5 proxy for TCP",
        8 => "it does not support addresses of this kind; name the server otherwise",
        _ => "it refused, for a reason that SOCKS5 has no name for; its log may say why",
    };
    alloc::format!("{reason} ({code})")
}

impl fmt::Debug for Socks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, target, stage, .. } = self;
        let mut shown = f.debug_struct("Socks");
        shown.field("proxy", proxy).field("target", target).field("stage", stage).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    const CONNECTED: [u8; 10] = [5, 0, 0, 1, 127, 0, 0, 1, 0x69, 0x89];

    fn options(login: Option<(&str, &str)>) -> ProxyOptions {
        ProxyOptions {
            host: Some("proxy.example".into()),
            port: None,
            username: login.map(|(username, _)| username.into()),
            password: login.map(|(_, password)| password.into()),
        }
    }

    fn socks(login: Option<(&str, &str)>) -> Socks {
        Socks::new(&options(login), &ServerAddress::tcp("db.example", 27017)).unwrap().unwrap()
    }

    fn sent(socks: &mut Socks) -> Vec<u8> {
        let mut out = Vec::new();
        socks.write_to(&mut out);
        out
    }

    /// Hands in the replies of a proxy, `size` bytes at a time, and never more than are wanted. Returns what was sent.
    fn run(socks: &mut Socks, replies: &[u8], size: usize) -> Result<Vec<u8>, EstablishError> {
        let (mut out, mut unread) = (sent(socks), replies);
        while !unread.is_empty() && !socks.is_connected() {
            let (bytes, rest) = unread.split_at(size.min(socks.wanted()).min(unread.len()));
            socks.handle_bytes(bytes)?;
            out.extend(sent(socks));
            unread = rest;
        }
        assert!(unread.is_empty(), "{unread:?} was not read");
        Ok(out)
    }

    fn request_of(host: &str) -> Vec<u8> {
        let mut socks = Socks::new(&options(None), &ServerAddress::tcp(host, 258)).unwrap().unwrap();
        let sent = run(&mut socks, &[5, 0], 2).unwrap();
        sent[3..].to_vec()
    }

    #[test]
    fn the_servers_name_goes_to_the_proxy_as_it_is_socks_3() {
        assert_eq!(request_of("db.example"), b"\x05\x01\x00\x03\x0adb.example\x01\x02");
        assert_eq!(request_of("localhost"), b"\x05\x01\x00\x03\x09localhost\x01\x02");
        assert_eq!(request_of("1.2.3.4"), [5, 1, 0, 1, 1, 2, 3, 4, 1, 2]);
        assert_eq!(request_of("::1"), [5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]);
    }

    #[test]
    fn a_login_is_offered_beside_none_if_there_are_user_name_and_password_socks_2() {
        assert_eq!(sent(&mut socks(None)), [5, 1, 0]);
        assert_eq!(sent(&mut socks(Some(("", "")))), [5, 1, 0]);
        assert_eq!(sent(&mut socks(Some(("me", "secret")))), [5, 2, 0, 2]);

        let mut with_login = socks(Some(("me", "secret")));
        let sent = run(&mut with_login, &[5, 2, 1, 0], 2).unwrap();
        assert!(sent[4..].starts_with(b"\x01\x02me\x06secret\x05\x01\x00\x03"), "{sent:?}");
        let without = run(&mut socks(Some(("me", "secret"))), &[5, 0], 2).unwrap();
        assert!(without[4..].starts_with(&[5, 1, 0, 3]), "{without:?}");
    }

    #[test]
    fn replies_may_be_split_at_each_byte() {
        let addresses: [&[u8]; 4] = [&[1, 1, 2, 3, 4], &[4; 17], &[3, 3, b'a', b'.', b'b'], &[3, 0]];
        for address in addresses {
            let mut replies = [5, 2, 1, 0, 5, 0, 0].to_vec();
            replies.extend_from_slice(address);
            replies.extend_from_slice(&[0x69, 0x89]);
            for size in 1..=replies.len() {
                let mut socks = socks(Some(("me", "secret")));

                run(&mut socks, &replies, size).unwrap();

                assert!(socks.is_connected(), "{address:?} in pieces of {size}");
                assert_eq!(socks.wanted(), 0);
            }
        }
    }

    #[test]
    fn no_byte_of_the_server_is_read() {
        let mut socks = socks(None);
        run(&mut socks, &[5, 0], 2).unwrap();
        let mut behind = CONNECTED.to_vec();
        behind.push(b'x');

        let mut read = 0;
        while !socks.is_connected() {
            let wanted = socks.wanted();
            assert!(wanted <= 262);
            socks.handle_bytes(&behind[read..read + wanted]).unwrap();
            read += wanted;
        }

        assert_eq!(read, CONNECTED.len());
        assert!(socks.handle_bytes(b"x").is_err(), "nothing more is the proxy's");
    }

    #[test]
    fn a_lie_in_each_byte_is_an_error_that_names_the_proxy_and_the_step_socks_4() {
        let replies = [&[5, 2, 1, 0][..], &CONNECTED].concat();
        let steps = ["at the greeting", "at the login", "asked to connect to db.example:27017"];
        // Behind the kind of the address nothing matters but its length.
        for (place, step) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 2)] {
            for lie in (0..=u8::MAX).filter(|lie| *lie != replies[place]) {
                let mut lying = replies.clone();
                lying[place] = lie;
                let mut socks = socks(Some(("me", "secret")));

                let outcome = run(&mut socks, &lying[..=place], 1);

                let is_another_truth = (place == 1 && lie == NO_LOGIN) || (place == 7 && [NAME, IPV6].contains(&lie));
                assert_eq!(outcome.is_ok(), is_another_truth, "byte {place} is {lie}");
                let Err(error) = outcome else { continue };
                let expected = format!("connecting through the proxy failed: proxy.example:1080, {}: ", steps[step]);
                assert!(error.to_string().starts_with(&expected), "byte {place} is {lie}: {error}");
                assert_eq!((error.phase, error.fault), (Phase::Proxy, Fault::Network));
                assert!(!error.to_string().contains("secret"), "{error}");
                assert!(socks.handle_bytes(&[0]).is_err() && !socks.is_connected());
            }
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for (replies, login, advice) in [
            (&[5, 255][..], None, "set proxyUsername and proxyPassword"),
            (&[5, 2], None, "a login that it was not offered, 2"),
            (&[5, 255], Some(("me", "secret")), "ask who runs it"),
            (&[5, 2, 1, 1], Some(("me", "secret")), "check proxyUsername and proxyPassword"),
            (b"HTTP", None, "it does not answer in SOCKS5; check proxyHost and proxyPort"),
            (&[5, 0, 5, 4], None, "whether the proxy can resolve it (4)"),
            (&[5, 0, 5, 5], None, "check that MongoDB runs there and listens at this port (5)"),
            (&[5, 0, 5, 99], None, "its log may say why (99)"),
        ] {
            let error = run(&mut socks(login), replies, 1).unwrap_err().to_string();

            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn what_socks_cannot_carry_is_refused_before_anything_is_sent() {
        let long = ServerAddress::tcp(&"a".repeat(256), 1);

        let error = Socks::new(&options(None), &long).unwrap_err();

        assert!(error.to_string().contains("of more than 255 bytes"), "{error}");
    }

    #[test]
    fn without_a_proxy_and_for_unix_sockets_there_is_no_way_round_socks_4() {
        let unix: ServerAddress = "/tmp/mongodb.sock".parse().unwrap();
        let nowhere = ProxyOptions { host: Some(String::new()), ..ProxyOptions::default() };

        assert!(Socks::new(&ProxyOptions::default(), &ServerAddress::tcp("a", 1)).unwrap().is_none());
        assert!(Socks::new(&nowhere, &ServerAddress::tcp("a", 1)).unwrap().is_none());
        assert!(Socks::new(&options(None), &unix).unwrap().is_none());
    }

    #[test]
    fn debug_does_not_show_the_login() {
        let shown = format!("{:?}", socks(Some(("hunter1", "hunter2"))));

        assert!(!shown.contains("hunter"), "{shown}");
    }
}
