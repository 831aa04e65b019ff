//! One connection: what each end has sent, and when it arrives at the other.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::task::Waker;

use super::{Network, Reachability};

/// How many bytes may be on their way, or wait to be read, in one direction.
const WINDOW: usize = 256 * 1024;

/// Two ends; the one that connected is the first.
pub(super) struct Connection {
    ends: [End; 2],
    /// Nothing arrives any more, and nobody notices.
    is_lost: bool,
}

/// One end of a connection: what comes to it.
struct End {
    host: IpAddr,
    incoming: VecDeque<Segment>,
    /// The bytes in `incoming`.
    queued: usize,
    /// When the last of what was sent arrives.
    last_at: u64,
    /// When the end of the stream arrives, if it was sent.
    finished_at: Option<u64>,
    /// When it learns that the connection is broken.
    broken_at: Option<u64>,
    /// Its stream was dropped.
    is_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Bytes that arrive together.
struct Segment {
    at: u64,
    bytes: Vec<u8>,
    read: usize,
}

/// What a reader finds.
pub(super) enum Arrived {
    /// The number of bytes that were read; 0 means the end of the stream.
    Bytes(usize),
    /// Something arrives at that time.
    At(u64),
    /// Nothing is on its way.
    Nothing,
}

/// When a task is to be woken: now, or when something arrives.
pub(super) type Wake = (u64, Waker);

impl Connection {
    pub(super) fn new(hosts: [IpAddr; 2]) -> Self {
        Self { ends: hosts.map(End::new), is_lost: false }
    }

    pub(super) fn is_at(&self, host: IpAddr) -> bool {
        self.ends.iter().any(|end| end.host == host)
    }

    /// The host of the end that connected.
    #[cfg(feature = "reverse")]
    pub(super) fn dialled_from(&self) -> IpAddr {
        self.ends[0].host
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// It is lost, and the end that connected has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_lost && self.ends[0].is_gone
    }

    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// What has not arrived starts again, `delay` after `now`.
    pub(super) fn send_again(&mut self, now: u64, delay: u64) -> Vec<Waker> {
        let at = now.saturating_add(delay);
        let mut wakers = Vec::new();
        for end in &mut self.ends {
            for segment in end.incoming.iter_mut().filter(|segment| segment.read == 0) {
                segment.at = segment.at.max(at);
            }
            end.finished_at = end.finished_at.map(|finished| finished.max(at));
            end.last_at = end.last_at.max(at);
            wakers.extend(end.reader.take());
        }
        wakers
    }

    /// Both ends learn at `at` that the connection is broken.
    pub(super) fn break_at(&mut self, at: u64) -> Vec<Waker> {
        self.ends.iter_mut().flat_map(|end| end.break_at(at)).collect()
    }
}

impl End {
    fn new(host: IpAddr) -> Self {
        Self {
            host,
            incoming: VecDeque::new(),
            queued: 0,
            last_at: 0,
            finished_at: None,
            broken_at: None,
            is_gone: false,
            reader: None,
            writer: None,
        }
    }

    fn break_at(&mut self, at: u64) -> Vec<Waker> {
        self.broken_at.get_or_insert(at);
        self.incoming.clear();
        self.queued = 0;
        self.reader.take().into_iter().chain(self.writer.take()).collect()
    }

    fn is_broken(&self, now: u64) -> bool {
        self.broken_at.is_some_and(|at| at <= now)
    }
}

impl Network {
    /// Whether packets between the ends of a connection get through.
    fn is_cut(&self, connection: &Connection) -> bool {
        let [one, other] = &connection.ends;
        connection.is_lost || self.is_cut_between(one.host, other.host)
    }

    /// Sends bytes from the end `side`. Returns how many fit, none if the writer has to wait, and whom to wake when.
    pub(super) fn send(
        &mut self,
        now: u64,
        key: usize,
        side: usize,
        bytes: &[u8],
        waker: &Waker,
    ) -> io::Result<(usize, Vec<Wake>)> {
        let latency = self.draw_latency();
        let chance = self.random.next_u64();
        let (per_byte, splits) = (self.per_byte, self.splits);
        let Some(connection) = self.connections.get_mut(key) else { return Err(io::ErrorKind::NotConnected.into()) };
        let server = connection.ends[1].host;
        match self.hosts.get(&server).map(|host| host.reachability) {
            Some(Reachability::Up) | None => {}
            Some(Reachability::Silent) => connection.lose(),
            Some(Reachability::Refuses | Reachability::Resets) => {
                let at = now.saturating_add(latency.saturating_mul(2));
                let readers = connection.break_at(at);
                return Ok((bytes.len(), readers.into_iter().map(|reader| (at, reader)).collect()));
            }
        }
        if connection.ends[side].is_broken(now) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let peer = &mut connection.ends[1 - side];
        if peer.is_gone && !connection.is_lost {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = WINDOW.saturating_sub(peer.queued);
        if room == 0 {
            connection.ends[side].writer = Some(waker.clone());
            return Ok((0, Vec::new()));
        }
        // One write in four is taken in part.
        let most = bytes.len().min(room);
        let count = if splits && chance & 3 == 0 && most > 1 { 1 + (chance >> 2) as usize % (most - 1) } else { most };
        let at = peer.last_at.max(now.saturating_add(latency)).saturating_add(per_byte.saturating_mul(count as u64));
        peer.last_at = at;
        peer.queued += count;
        peer.incoming.push_back(Segment { at, bytes: bytes[..count].to_vec(), read: 0 });
        Ok((count, peer.reader.take().map(|reader| (at, reader)).into_iter().collect()))
    }

    /// Reads at the end `side` what has arrived. Returns also who may write on.
    pub(super) fn receive(
        &mut self,
        now: u64,
        key: usize,
        side: usize,
        buffer: &mut [u8],
    ) -> io::Result<(Arrived, Option<Waker>)> {
        let chance = self.random.next_u64();
        let Some(connection) = self.connections.get(key) else { return Err(io::ErrorKind::NotConnected.into()) };
        let is_cut = self.is_cut(connection);
        let Some(connection) = self.connections.get_mut(key) else { return Err(io::ErrorKind::NotConnected.into()) };
        let end = &mut connection.ends[side];
        if end.is_broken(now) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        // One read in four ends somewhere in between.
        let most = match buffer.len() {
            len if self.splits && chance & 3 == 0 && len > 1 => {
                1 + (chance >> 2) as usize % (len.min(end.queued.max(1)))
            }
            len => len,
        };
        let mut count = 0;
        while let Some(segment) = end.incoming.front_mut()
            && count < most
            && (segment.read > 0 || !is_cut && segment.at <= now)
        {
            let rest = &segment.bytes[segment.read..];
            let taken = rest.len().min(most - count);
            buffer[count..count + taken].copy_from_slice(&rest[..taken]);
            count += taken;
            segment.read += taken;
            if segment.read == segment.bytes.len() {
                end.incoming.pop_front();
            }
        }
        end.queued -= count;
        if count > 0 || buffer.is_empty() {
            return Ok((Arrived::Bytes(count), connection.ends[1 - side].writer.take()));
        }
        let next = end.incoming.front().map(|segment| segment.at).or(end.finished_at).or(end.broken_at);
        let arrived = match next {
            _ if is_cut => Arrived::Nothing,
            Some(at) if at > now => Arrived::At(at),
            Some(_) => Arrived::Bytes(0),
            None => Arrived::Nothing,
        };
        Ok((arrived, None))
    }

    /// `waker` waits at the end `side` for something to be sent.
    pub(super) fn await_incoming(&mut self, key: usize, side: usize, waker: &Waker) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.ends[side].reader = Some(waker.clone());
        }
    }

    /// The end `side` sends no more.
    pub(super) fn finish(&mut self, now: u64, key: usize, side: usize) -> Option<Wake> {
        let latency = self.draw_latency();
        let peer = &mut self.connections.get_mut(key)?.ends[1 - side];
        let at = peer.last_at.max(now.saturating_add(latency));
        let at = *peer.finished_at.get_or_insert(at);
        peer.reader.take().map(|reader| (at, reader))
    }

    /// The stream at the end `side` was dropped. What it has not read makes a reset of it, as everywhere.
    pub(super) fn leave(&mut self, now: u64, key: usize, side: usize) -> Vec<Wake> {
        let Some(connection) = self.connections.get_mut(key) else { return Vec::new() };
        let end = &mut connection.ends[side];
        end.is_gone = true;
        let has_unread = end.incoming.iter().any(|segment| segment.at <= now);
        let is_lost = connection.is_lost;
        if connection.ends[1 - side].is_gone {
            self.connections.remove(key);
            return Vec::new();
        }
        if is_lost {
            return Vec::new();
        }
        let mut wake: Vec<_> = self.finish(now, key, side).into_iter().collect();
        if let Some(connection) = self.connections.get_mut(key) {
            let peer = &mut connection.ends[1 - side];
            if has_unread {
                wake.extend(peer.break_at(now).into_iter().map(|waker| (now, waker)));
            }
            wake.extend(peer.writer.take().map(|waker| (now, waker)));
        }
        wake
    }

    /// Both ends learn now that the connection is broken.
    pub(crate) fn reset(&mut self, now: u64, key: usize) -> Vec<Waker> {
        self.connections.get_mut(key).map(|connection| connection.break_at(now)).unwrap_or_default()
    }
}
