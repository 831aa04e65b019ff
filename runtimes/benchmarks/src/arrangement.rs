//! Where a client and its server run, which decides the throughput as much as they do themselves.
//!
//! On one CPU they take turns: the server and the kernel work as much for a ping as the client does, over TCP more, so that
//! the clock shows half of what the client gains; over a Unix socket the kernel costs least. On a CPU each the client is the one
//! that limits, as soon as there is always a reply to work on, which 8 tasks see to; with a single task it is all about sleep:
//! a client that waits lets its CPU sleep, and how long that takes to wake is up to the machine. What several threads reach,
//! wherever the kernel puts them, is printed only.

use std::fmt;

use crate::Threads;
use crate::cpu::OneCpu;
use crate::server::Server;

/// Where a client and its server run.
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
    /// Starts the server, and puts this thread, which is to be the client's, in its place as long as the second value
    /// exists. `None`, if there are too few CPUs.
    pub fn start(self) -> Option<(Server, Option<OneCpu>)> {
        match self {
            Self::OneCpu => {
                let kept = OneCpu::first();
                Some((Server::start(), Some(kept)))
            }
            #[cfg(unix)]
            Self::OneCpuUnixSocket => {
                let kept = OneCpu::first();
                Some((Server::start_unix(), Some(kept)))
            }
            #[cfg(not(unix))]
            Self::OneCpuUnixSocket => None,
            Self::CpuEach => {
                let kept = OneCpu::second()?;
                let server = Server::start();
                drop(kept);
                Some((server, Some(OneCpu::first())))
            }
            Self::Anywhere => Some((Server::start(), None)),
        }
    }

    /// How many threads the client has.
    pub fn threads(self) -> Threads {
        match self {
            Self::OneCpu | Self::OneCpuUnixSocket | Self::CpuEach => Threads::One,
            Self::Anywhere => Threads::Many,
        }
    }

    /// Whether there is a bar.
    pub fn has_bar(self) -> bool {
        match self {
            Self::OneCpu | Self::OneCpuUnixSocket | Self::CpuEach => true,
            Self::Anywhere => false,
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
