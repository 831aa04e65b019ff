//! Where a client and its server run, which decides the throughput as much as they do themselves.
//!
//! On one CPU they take turns: the server and the kernel work as much for a ping as the client does, over TCP more, so that
//! the clock shows half of what the client gains. On a CPU each the client is the one that limits, as soon as there is always
//! a reply to work on, which 8 tasks see to; with a single task both CPUs sleep and wake in turn, and how long that takes is
//! up to the machine. So the throughput by the clock has its bars over TCP for one task on one CPU, and for more on a CPU
//! each; and over a Unix socket on one CPU for all. Elsewhere it is printed.

use std::fmt;

use crate::Threads;
use crate::cpu::OneCpu;
use crate::official;
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

    /// Whether so many tasks have to reach a throughput by the clock.
    pub fn is_judged_by_time(self, tasks: usize) -> bool {
        match self {
            Self::OneCpuUnixSocket => true,
            Self::OneCpu => tasks == 1,
            Self::CpuEach => tasks > 1,
            Self::Anywhere => false,
        }
    }

    /// Whether the client has to reach a throughput by its own work. With a CPU to itself, which it keeps busy, the clock
    /// says the same.
    pub fn is_judged_by_work(self, runtime: &str) -> bool {
        self == Self::OneCpu && runtime == official::RUNTIME
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
