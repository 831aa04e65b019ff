//! A DNS server of the tests' own: the records by which `mongodb+srv://NAME` leads to the servers that are served.
//!
//! | name | records |
//! |---|---|
//! | `_mongodb._tcp.NAME` | SRV: `server0.NAME` and so on, each with its port |
//! | `NAME` | TXT: `replicaSet` or `loadBalanced`, if the servers are that |
//! | `server0.NAME` and so on | A or AAAA: where they listen |
//!
//! It answers over UDP and TCP at one port, and knows nothing else.

use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use simple_dns::rdata::{A, AAAA, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// How long clients may keep a record, in seconds.
const TIME_TO_LIVE: u32 = 60;

/// The longest answer over UDP. A longer one is asked for again over TCP.
const MOST_OVER_UDP: usize = 512;

/// How long to wait before another try to accept a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// How many ports are tried until one is free for UDP and TCP.
const ATTEMPTS: usize = 16;

/// The records of one deployment.
#[derive(Debug)]
pub(super) struct Zone {
    name: String,
    servers: Vec<SocketAddr>,
    /// What the TXT record says, if there is one.
    options: Option<String>,
}

/// The sockets of a DNS server.
pub(super) struct DnsServer {
    datagrams: UdpSocket,
    connections: TcpListener,
    zone: Arc<Zone>,
}

impl Zone {
    /// The records by which `name` leads to these servers.
    pub(super) fn new(name: &str, servers: &[SocketAddr], options: Option<String>) -> Self {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Self { name, servers: servers.to_vec(), options }
    }

    /// The reply to `query`, unless that is no query.
    fn answer(&self, query: &[u8], most: usize) -> Option<Vec<u8>> {
        let query = Packet::parse(query).ok().filter(|query| !query.has_flags(PacketFlag::RESPONSE))?;
        let question = query.questions.first()?.clone();
        let mut reply = Packet::new_reply(query.id());
        reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
        if query.has_flags(PacketFlag::RECURSION_DESIRED) {
            reply.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        match self.records(&question) {
            Some(records) => {
                let record = |data| ResourceRecord::new(question.qname.clone(), CLASS::IN, TIME_TO_LIVE, data);
                reply.answers.extend(records.into_iter().map(record));
            }
            None => *reply.rcode_mut() = RCODE::NameError,
        }
        reply.questions.push(question);
        let bytes = reply.build_bytes_vec_compressed().ok()?;
        if bytes.len() <= most {
            return Some(bytes);
        }
        reply.answers.clear();
        reply.set_flags(PacketFlag::TRUNCATION);
        reply.build_bytes_vec_compressed().ok()
    }

    /// The records that are asked for, none if the name has others; `None` if there is no such name.
    fn records(&self, question: &Question<'_>) -> Option<Vec<RData<'static>>> {
        let name = question.qname.to_string().to_ascii_lowercase();
        let (kind, records) = if name == self.name {
            (TYPE::TXT, self.options.iter().filter_map(|options| txt(options)).collect())
        } else if name == format!("_mongodb._tcp.{}", self.name) {
            (
                TYPE::SRV,
                self.servers.iter().enumerate().filter_map(|(index, server)| self.srv(index, *server)).collect(),
            )
        } else {
            let server = (0..).zip(&self.servers).find(|(index, _)| name == self.host(*index))?.1;
            match server.ip() {
                IpAddr::V4(ip) => (TYPE::A, vec![RData::A(A { address: ip.to_bits() })]),
                IpAddr::V6(ip) => (TYPE::AAAA, vec![RData::AAAA(AAAA { address: ip.to_bits() })]),
            }
        };
        let is_wanted = matches!(question.qtype, QTYPE::ANY) || question.qtype == QTYPE::TYPE(kind);
        Some(if is_wanted { records } else { Vec::new() })
    }

    fn srv(&self, index: usize, server: SocketAddr) -> Option<RData<'static>> {
        let target = Name::new(&self.host(index)).ok()?.into_owned();
        Some(RData::SRV(SRV { priority: 0, weight: 0, port: server.port(), target }))
    }

    fn host(&self, index: usize) -> String {
        format!("server{index}.{}", self.name)
    }
}

fn txt(options: &str) -> Option<RData<'static>> {
    Some(RData::TXT(TXT::new().with_string(options).ok()?.into_owned()))
}

impl DnsServer {
    /// Listens at a free port of `host`.
    pub(super) async fn bind(host: IpAddr, zone: Zone) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let connections = TcpListener::bind((host, 0)).await?;
            match UdpSocket::bind(connections.local_addr()?).await {
                Ok(datagrams) => return Ok(Self { datagrams, connections, zone: Arc::new(zone) }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.connections.local_addr()
    }

    /// Answers for ever.
    pub(super) async fn run(self) -> Infallible {
        let Self { datagrams, connections, zone } = self;
        tokio::select! {
            never = answer_datagrams(datagrams, &zone) => never,
            never = answer_connections(connections, &zone) => never,
        }
    }
}

async fn answer_datagrams(socket: UdpSocket, zone: &Zone) -> Infallible {
    let mut buffer = [0; MOST_OVER_UDP];
    loop {
        // A client that is gone is an error of the next read.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let query = buffer.get(..length).unwrap_or_default();
        if let Some(reply) = zone.answer(query, MOST_OVER_UDP) {
            let _ = socket.send_to(&reply, from).await;
        }
    }
}

async fn answer_connections(listener: TcpListener, zone: &Arc<Zone>) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let zone = Arc::clone(zone);
                tokio::spawn(async move {
                    // It ends with the client.
                    let _ = answer_connection(stream, &zone).await;
                });
            }
            // The process has too many open files, which passes.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Each message follows its length, in two bytes.
async fn answer_connection(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut query = vec![0; length.into()];
        stream.read_exact(&mut query).await?;
        let Some(reply) = zone.answer(&query, u16::MAX.into()) else { return Ok(()) };
        let length = u16::try_from(reply.len()).unwrap_or(u16::MAX).to_be_bytes();
        stream.write_all(&[&length[..], &reply].concat()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a question for `name`: its records in words, or `None` if there is no such name.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the server has only these")]
    fn ask(zone: &Zone, name: &str, kind: TYPE) -> Option<Vec<String>> {
        let reply = zone.answer(&query(name, kind), u16::MAX.into()).unwrap();
        let reply = Packet::parse(&reply).unwrap();
        let words = |record: &ResourceRecord<'_>| match &record.rdata {
            RData::SRV(srv) => format!("{}:{}", srv.target, srv.port),
            RData::TXT(txt) => String::try_from(txt.clone()).unwrap(),
            RData::A(a) => IpAddr::from(a.address.to_be_bytes()).to_string(),
            other => format!("{other:?}"),
        };
        (reply.rcode() == RCODE::NoError).then(|| reply.answers.iter().map(words).collect())
    }

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut query = Packet::new_query(7);
        let name = Name::new(name).unwrap();
        query.questions.push(Question::new(name, QTYPE::TYPE(kind), simple_dns::QCLASS::CLASS(CLASS::IN), false));
        query.build_bytes_vec().unwrap()
    }

    fn zone(servers: u16) -> Zone {
        let servers: Vec<SocketAddr> = (1..=servers).map(|port| ([127, 0, 0, 1], port).into()).collect();
        Zone::new("cluster.cmap.test", &servers, Some("replicaSet=rs0".into()))
    }

    #[test]
    fn the_records_lead_from_the_name_to_the_servers() {
        let zone = zone(2);

        let found = ask(&zone, "_mongodb._tcp.Cluster.cmap.test", TYPE::SRV).unwrap();
        assert_eq!(found, ["server0.cluster.cmap.test:1", "server1.cluster.cmap.test:2"]);
        assert_eq!(ask(&zone, "cluster.cmap.test", TYPE::TXT).unwrap(), ["replicaSet=rs0"]);
        assert_eq!(ask(&zone, "server1.cluster.cmap.test", TYPE::A).unwrap(), ["127.0.0.1"]);
        assert_eq!(ask(&zone, "server1.cluster.cmap.test", TYPE::AAAA).unwrap(), [""; 0]);
        assert_eq!(ask(&zone, "server2.cluster.cmap.test", TYPE::A), None);
    }

    #[test]
    fn an_answer_that_is_too_long_for_udp_is_cut() {
        let reply = zone(50).answer(&query("_mongodb._tcp.cluster.cmap.test", TYPE::SRV), MOST_OVER_UDP).unwrap();

        let reply = Packet::parse(&reply).unwrap();
        assert!(reply.has_flags(PacketFlag::TRUNCATION) && reply.answers.is_empty());
    }
}
