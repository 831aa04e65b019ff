//! Batches: the writes of one operation, of any number, as commands that a server takes.
//!
//! [`Batches`] goes along with one operation. It takes encoded items until a message is full, says which of them go into the next one
//! once the limits of a connection are known, and merges the replies into one [`WriteResult`], whose places are those of the whole
//! operation. It neither waits nor sends.
//!
//! | command | items | besides |
//! |---|---|---|
//! | insert | `documents` | |
//! | update | `updates` | |
//! | delete | `deletes` | |
//! | bulkWrite | `ops` | `nsInfo`: of each batch those that its items name (BW-5) |
//!
//! A batch is full when another item would make more than maxWriteBatchSize of them (BW-2), or more than maxMessageSizeBytes less
//! 1,000 bytes (BW-3, X-193). It stays as it is when it is sent again (X-171).
//!
//! ```
//! use bson::rawdoc;
//! use cmap_core::batch::Batches;
//! use cmap_core::wire::Limits;
//!
//! let mut batches = Batches::new(&rawdoc! { "insert": "items", "ordered": false }, &["documents"])?;
//! let mut values = (0..2500).map(|n| rawdoc! { "_id": n });
//! let mut sizes = Vec::new();
//! loop {
//!     while batches.wants_item() {
//!         batches.take(|bytes| Some(Ok::<_, bson::error::Error>(bytes.extend_from_slice(values.next()?.as_bytes()))))?;
//!     }
//!     if batches.is_empty() {
//!         break;
//!     }
//!     // A connection is there. Its server takes a thousand writes at once.
//!     batches.begin(&Limits::LEAST)?;
//!     let size = batches.sequences().first().map_or(0, |items| items.documents().count());
//!     // They go along with the command, and the server says:
//!     batches.handle_reply(&rawdoc! { "ok": 1.0, "n": i64::try_from(size)? });
//!     batches.end();
//!     sizes.push(size);
//! }
//! assert_eq!(sizes, [1000, 1000, 500]);
//! assert_eq!(batches.into_result().inserted, 2500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `machine` | the batches one after the other |
//! | `kind` | the commands, and what each calls its items |
//! | `items` | the items that are not done, encoded |
//! | `namespaces` | the collections of a bulkWrite, numbered anew for each batch |
//! | `merge` | what replies add to the result |
//! | `result` | the result of all batches |
//! | `error` | what makes no batch |

mod error;
mod items;
mod kind;
mod machine;
mod merge;
mod namespaces;
mod result;

pub use self::error::BatchError;
pub use self::machine::Batches;
pub use self::result::{ConcernError, Outcome, Upserted, WriteResult};
