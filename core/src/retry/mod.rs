//! What to do after an operation has failed: try it again, when, and on which servers not; or give up, with which error.
//!
//! A [`Retry`] goes along with one operation. It takes every failure and answers with a [`Decision`]; it neither waits
//! nor sends. [`Retryability`] says from a command's document whether it may be repeated at all, and if not, why not.
//!
//! | failure | a read | a write with a transaction number | any other command |
//! |---|---|---|---|
//! | labelled SystemOverloadedError and RetryableError | after a pause | after a pause | after a pause |
//! | network error, time-out, cleared pool, failed handshake | at once | at once | |
//! | server's error with a code of [`READ_CODES`](failure::READ_CODES) | at once | | |
//! | server's error labelled RetryableWriteError | | at once | |
//! | any other | | | |
//!
//! | file | what it holds |
//! |---|---|
//! | `retryability` | which commands may be repeated |
//! | [`failure`] | what an error says about repeating: its codes and labels |
//! | `policy` | the options of a client |
//! | `rest` | the pauses between attempts |
//! | `machine` | the decisions |

pub mod failure;
mod machine;
mod policy;
mod rest;
mod retryability;

pub use self::failure::{ErrorLabel, Failure, FailureKind, Labels};
pub use self::machine::{Decision, FailedServer, GiveUp, Next, Numbering, Retry, Which};
pub use self::policy::{RetryLimit, RetryPolicy};
#[cfg(feature = "wire")]
pub(crate) use self::rest::rest;
pub use self::retryability::{OnceReason, RetryOption, Retryability};
