//! The numbers that functions return, and why they return them.
//!
//! A number is never used for something else, also in a later ABI.

use core::fmt::Display;
use std::borrow::Cow;

use cmap_core::options::PoolOptionsError;
use cmap_core::pool::ApiMisuse;

/// The call was made.
pub const CMAP_OK: i32 = 0;

/// A pointer is NULL that must not be.
pub const CMAP_ERROR_NULL: i32 = 1;
/// The `size` of a struct is smaller than the first version of that struct.
pub const CMAP_ERROR_SIZE: i32 = 2;
/// A text is not UTF-8.
pub const CMAP_ERROR_TEXT: i32 = 3;
/// A number is none of those that the argument can have.
pub const CMAP_ERROR_RANGE: i32 = 4;
/// A handle is none: its bytes were not made by this library.
pub const CMAP_ERROR_HANDLE: i32 = 5;
/// A text is not the address of a server.
pub const CMAP_ERROR_ADDRESS: i32 = 6;
/// The options are not JSON, an option is unknown, or has a value that it cannot have.
pub const CMAP_ERROR_OPTIONS: i32 = 7;
/// Nothing is recorded.
pub const CMAP_ERROR_NOT_RECORDING: i32 = 8;
/// Another call is inside the pool: of another thread, or of one that was inside when the process was forked.
pub const CMAP_ERROR_BUSY: i32 = 9;
/// A call has found a bug of this library. The pool answers so from now on; free it.
pub const CMAP_ERROR_PANIC: i32 = 10;

/// The connection belongs to another pool.
pub const CMAP_ERROR_FOREIGN_CONNECTION: i32 = 101;
/// The connection is not in use: it was checked in before, or never delivered.
pub const CMAP_ERROR_NOT_IN_USE: i32 = 102;
/// The connection is not being established: it is established, or was never to be.
pub const CMAP_ERROR_NOT_PENDING: i32 = 103;
/// The pool did not ask whether the connection is alive.
pub const CMAP_ERROR_NOT_CHECKING: i32 = 104;
/// The connection is not being refreshed.
pub const CMAP_ERROR_NOT_REFRESHING: i32 = 105;
/// The whole of a load-balanced pool was to be cleared: name the service.
pub const CMAP_ERROR_CLEAR_WITHOUT_SERVICE: i32 = 106;
/// A service was named to a pool that is not load-balanced.
pub const CMAP_ERROR_CLEAR_WITH_SERVICE: i32 = 107;
/// A service was reported outside load-balanced mode, or twice for one connection.
pub const CMAP_ERROR_UNEXPECTED_SERVICE: i32 = 108;
/// A load-balanced connection was established before its service was reported.
pub const CMAP_ERROR_SERVICE_UNKNOWN: i32 = 109;
/// Another check-out uses the connection: this one has given it back already, or never had it.
pub const CMAP_ERROR_OTHER_USE: i32 = 110;
/// The call makes no sense for another reason, which its text says.
pub const CMAP_ERROR_MISUSE: i32 = 199;

/// A call was not made: the number, and the text that says why.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(code: i32, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into() }
    }

    /// A pointer of this argument is NULL.
    pub(crate) fn null(argument: &'static str) -> Self {
        Self::new(CMAP_ERROR_NULL, format!("{argument} is NULL"))
    }

    /// The number of this argument is unknown.
    pub(crate) fn range(argument: &'static str, value: impl Display) -> Self {
        Self::new(CMAP_ERROR_RANGE, format!("{argument} is {value}, which it cannot be"))
    }
}

impl From<ApiMisuse> for Failure {
    fn from(misuse: ApiMisuse) -> Self {
        let code = match misuse {
            ApiMisuse::ForeignConnection => CMAP_ERROR_FOREIGN_CONNECTION,
            ApiMisuse::NotInUse => CMAP_ERROR_NOT_IN_USE,
            ApiMisuse::NotPending => CMAP_ERROR_NOT_PENDING,
            ApiMisuse::NotChecking => CMAP_ERROR_NOT_CHECKING,
            ApiMisuse::NotRefreshing => CMAP_ERROR_NOT_REFRESHING,
            ApiMisuse::ClearWithoutService => CMAP_ERROR_CLEAR_WITHOUT_SERVICE,
            ApiMisuse::ClearWithService => CMAP_ERROR_CLEAR_WITH_SERVICE,
            ApiMisuse::UnexpectedService => CMAP_ERROR_UNEXPECTED_SERVICE,
            ApiMisuse::ServiceUnknown => CMAP_ERROR_SERVICE_UNKNOWN,
            ApiMisuse::OtherUse => CMAP_ERROR_OTHER_USE,
            // No function leads to these two.
            ApiMisuse::Monitored | ApiMisuse::SocketMissing | _ => CMAP_ERROR_MISUSE,
        };
        Self::new(code, misuse.to_string())
    }
}

impl From<PoolOptionsError> for Failure {
    fn from(error: PoolOptionsError) -> Self {
        Self::new(CMAP_ERROR_OPTIONS, error.to_string())
    }
}
