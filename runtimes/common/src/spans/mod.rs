//! Spans of the crate `tracing` by OpenTelemetry's names (feature `tracing`): where the time of a call went.
//!
//! | name | target | from, to | child of |
//! |---|---|---|---|
//! | `operation` | `cmap::operation` | a call of the user's, and its end (OTEL-2) | its caller's span, or its transaction's |
//! | `command` | `cmap::command` | a command's sending, and its reply: one for each attempt (OTEL-5) | its operation's span |
//! | `transaction` | `cmap::transaction` | its start, and its commit or abort (OTEL-9) | its caller's span |
//! | `check_out` | `cmap::connection` | the wait of a check-out, where [holders are watched](crate::Builder::watch_holders) | its caller's span |
//!
//! The first three are at level INFO, and there only if [`SpanOptions`] or the environment ask for them. `tracing` fixes a span's name
//! when a program is compiled: the name that a platform shows, `find shop.orders`, is the field `otel.name`, as the crate
//! `tracing-opentelemetry` has it (OTEL-10). Without the feature the types here have no values.

#[cfg(feature = "tracing")]
mod check_out;
#[cfg(feature = "tracing")]
mod command;
#[cfg(feature = "tracing")]
mod failure;
#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod operation;
#[cfg(feature = "tracing")]
mod options;
#[cfg(feature = "tracing")]
mod target;

#[cfg(feature = "tracing")]
pub(crate) use self::check_out::of_check_out;
#[cfg(feature = "tracing")]
pub(crate) use self::command::CommandSpan;
#[cfg(not(feature = "tracing"))]
pub(crate) use self::off::{CommandSpan, OperationSpan, Spans, TransactionSpan};
#[cfg(feature = "tracing")]
pub(crate) use self::operation::{OperationSpan, TransactionSpan};
#[cfg(feature = "tracing")]
pub use self::options::SpanOptions;
#[cfg(feature = "tracing")]
pub(crate) use self::options::Spans;
