//! The CPUs of a client and its server, which decide the throughput as much as the programs themselves.
//!
//! On one CPU they take turns: the server and the kernel work as much for a ping as the client does, over TCP more, so
//! that the clock shows half of the client's gain; over a Unix socket the kernel costs least. On a CPU each, the client
//! is the limit as soon as there is always a reply to work on, which 8 tasks ensure. With a single task sleep decides:
//! a client that waits lets its CPU sleep, and the machine decides how long that takes to wake. The throughput of
//! several threads, wherever the kernel puts them, is only printed.

use std::fmt;

use crate::Threads;
use crate::cpu::OneCpu;
use crate::server::{Kind, Server};

/// The CPUs of a client and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// The client has one thread, which shares a CPU with the server.
    OneCpu,
    /// The same, with a Unix socket between them, which costs the kernel least.
    OneCpuUnixSocket,
    /// The client has one thread, on one CPU, and the server runs on another.
    CpuEach,
    /// The client has two threads, and they and the server are where the kernel puts them.
    Anywhere,
}

impl Arrangement {
    /// Starts a server of this kind, and keeps this thread, the client's, in its place as long as the second value exists.
    /// `None` if there are too few CPUs.
    pub fn start(self, kind: Kind) -> Option<(Server, Option<OneCpu>)> {
        match self {
            Self::OneCpu => {
                let kept = OneCpu::first();
                Some((Server::start(kind), Some(kept)))
            }
            #[cfg(unix)]
            Self::OneCpuUnixSocket => {
                let kept = OneCpu::first();
                Some((Server::start_unix(kind), Some(kept)))
            }
            #[cfg(not(unix))]
            Self::OneCpuUnixSocket => None,
            Self::CpuEach => {
                let kept = OneCpu::second()?;
                let server = Server::start(kind);
                drop(kept);
                Some((server, Some(OneCpu::first())))
            }
            Self::Anywhere => Some((Server::start(kind), None)),
        }
    }

    /// How many threads the client has.
    pub fn threads(self) -> Threads {
        match self {
            Self::OneCpu | Self::OneCpuUnixSocket | Self::CpuEach => Threads::One,
            Self::Anywhere => Threads::Many,
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneCpu => "one CPU",
            Self::OneCpuUnixSocket => "one CPU, Unix socket",
            Self::CpuEach => "a CPU each",
            Self::Anywhere => "two threads",
        })
    }
}
