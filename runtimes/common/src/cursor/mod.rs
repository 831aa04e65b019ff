//! Cursors: the documents of a reply, and the commands that get more of them.
//!
//! [`Operation::cursor`](crate::Operation::cursor) makes one of any command whose reply has a cursor. It holds one batch of
//! documents. A getMore goes to the server that made the cursor, over any connection to it, and behind a load balancer over the
//! connection that the cursor keeps (PIN-1, LB-13). A cursor that is dropped early is ended on its server, too.
//!
//! | file | what it holds |
//! |---|---|
//! | `opening` | from an operation to its cursor; from a batch of a bulkWrite to its results, read to their end |
//! | `cursors` | [`Cursor`], of an operation without a session of the user's own, a stream; [`TypedCursor`], a stream of values; [`SessionCursor`], of an operation in a user's session, which each step is given |
//! | `reader` | what all three read with: the next document, or the command that brings it |
//! | `change_stream` | a change stream, whose cursor is opened again after errors that pass |
//! | `server_cursor` | the cursor on its server: getMore and killCursors |
//! | `fetching` | a getMore under way, in a task |
//! | `reaper` | the cursors that nobody reads any more, and the tasks that end them on their servers |
//! | `batch` | the documents of a reply, read in place |
//! | `options` | what goes along with getMores; what a limit of time is for: the cursor's life, or one iteration |

mod batch;
mod change_stream;
mod cursors;
mod fetching;
mod opening;
mod options;
mod reader;
mod reaper;
mod server_cursor;

pub use self::cursors::{Cursor, SessionCursor, TypedCursor};
pub(crate) use self::opening::Results;
pub use self::options::{CursorOptions, TimeoutMode};
pub(crate) use self::reaper::Doomed;
