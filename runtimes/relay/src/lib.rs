//! The database's side of [reverse connections](cmap_core::reverse): a relay next to a mongod dials out to applications and parks
//! sockets there, so that no port of the database is open to them.
//!
//! The program `cmap-relay` reads a [file](mod@file) that says what to do, and runs on tokio. The library is the same relay on any
//! [`Runtime`](cmap_runtime::Runtime), in virtual time, too:
//!
//! ```no_run
//! # async fn example<R: cmap_runtime::Runtime>(tls: cmap_runtime::tls::TlsConfig) -> Result<(), Box<dyn std::error::Error>> {
//! use cmap_core::reverse::Token;
//! use cmap_relay::{Application, Member, Relay, Settings};
//!
//! let member = Member { name: "db1.example:27017".parse()?, connect: "127.0.0.1:27017".parse()? };
//! let application = Application {
//!     address: "app.example:27443".parse()?,
//!     members: vec![member.name.clone()],
//!     tls,
//!     token: Some(Token::new("db1", b"a secret that both sides have")?),
//! };
//! let settings = Settings { members: vec![member], applications: vec![application], ..Settings::default() };
//! let relay = Relay::start(R::current()?, &settings)?;
//! // ..
//! let _ended = relay.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! | file or room | content |
//! |---|---|
//! | `relay` | the relay as programs have it |
//! | `settings` | what it does |
//! | `file` | the same, from a file |
//! | `link` | one member and one application: the task that dials, and those of the sockets |
//! | `tunnels`, `backoff` | how many sockets there are to be, and when to dial, without I/O |
//! | `socket` | one socket, from its dialling to its end |
//! | `dial` | connecting an application, with TLS, and a member |
//! | `splice` | passing bytes on, both ways |
//! | `notice` | telling a task something |
//! | `seldom` | telling the log now and then |
//!
//! # Invariants
//!
//! - A member is connected only when an application has started a socket for it (X-125).
//! - Sockets and buffers are bounded, whatever an application says.
//! - Nothing spins: every task waits for a socket, a timer or a notice.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod dial;
#[cfg(feature = "file")]
#[cfg_attr(docsrs, doc(cfg(feature = "file")))]
pub mod file;
mod link;
mod notice;
mod relay;
mod seldom;
mod settings;
mod socket;
mod splice;
mod tunnels;

pub use relay::{Drained, LinkStatus, Relay, StartError};
pub use settings::{Application, Limits, Member, Settings};
pub use tunnels::SocketCounts;
