//! What code asks of an error: the server's code, whether a key was there already, whether the connection was lost. The questions
//! have one name each on every error that an application gets, so that nobody has to match one error within another.

use cmap_core::batch::WriteResult;
use cmap_core::connection::{EstablishError, Fault};
use cmap_core::pool::CheckOutErrorKind;
use cmap_core::retry::GiveUp;

use super::{CheckOutError, CommandError, CommandErrorKind, Error, OperationError, OperationErrorKind};

/// What an error comes down to.
enum Root<'a> {
    CheckOut(&'a CheckOutError),
    Command(&'a CommandError),
    Writes(&'a WriteResult),
    /// The client itself, or what it was given.
    Client,
}

impl Error {
    /// Whether the same call may succeed if it is made again, and may be made again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Client(_) | Self::Parse(_) => false,
            Self::CheckOut(error) => error.is_retryable(),
            Self::Command(error) => error.is_retryable(),
            Self::Operation(error) => error.is_retryable(),
        }
    }

    /// Whether time was up (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Client(_) | Self::Parse(_) => false,
            Self::CheckOut(error) => error.is_timeout(),
            Self::Command(error) => error.is_timeout(),
            Self::Operation(error) => error.is_timeout(),
        }
    }

    /// Whether the error has this label, from the server or from the client (RTY-5).
    pub fn has_label(&self, label: &str) -> bool {
        match self {
            Self::Client(_) | Self::Parse(_) => false,
            Self::CheckOut(error) => error.has_label(label),
            Self::Command(error) => error.has_label(label),
            Self::Operation(error) => error.has_label(label),
        }
    }

    /// The server's error code: of the command, of its first write that failed, or of its write concern. `None` if the server sent none.
    pub fn code(&self) -> Option<i32> {
        self.root().code()
    }

    /// Whether a write ran into a key that was there already, in a unique index.
    pub fn is_duplicate_key(&self) -> bool {
        self.root().is_duplicate_key()
    }

    /// Whether the connection was lost, or none could be made. Whether a command was carried out is unknown then.
    pub fn is_network(&self) -> bool {
        self.root().is_network()
    }

    fn root(&self) -> Root<'_> {
        match self {
            Self::CheckOut(error) => Root::CheckOut(error),
            Self::Command(error) => Root::Command(error),
            Self::Operation(error) => error.root(),
            Self::Client(_) | Self::Parse(_) => Root::Client,
        }
    }
}

impl OperationError {
    /// Whether the operation may succeed if it is run again, and may be run again: the error is one that passes, and the client gave up
    /// since its time or the number of its attempts was used up, or retries are switched off. One of whose batches some were carried
    /// out would repeat these.
    pub fn is_retryable(&self) -> bool {
        if self.written().is_some_and(WriteResult::has_written) {
            return false;
        }
        match self.gave_up {
            GiveUp::SwitchedOff | GiveUp::Exhausted | GiveUp::NoTimeLeft => true,
            GiveUp::NotRetryable | GiveUp::RunsOnce(_) | _ => false,
        }
    }

    /// The server's error code: of the command, of its first write that failed, or of its write concern. `None` if the server sent none.
    pub fn code(&self) -> Option<i32> {
        self.root().code()
    }

    /// Whether a write ran into a key that was there already, in a unique index.
    pub fn is_duplicate_key(&self) -> bool {
        self.root().is_duplicate_key()
    }

    /// Whether the connection was lost, or none could be made. Whether the command was carried out is unknown then.
    pub fn is_network(&self) -> bool {
        self.root().is_network()
    }

    fn root(&self) -> Root<'_> {
        match &self.kind {
            OperationErrorKind::CheckOut(error) => Root::CheckOut(error),
            OperationErrorKind::Command(error) => Root::Command(error),
            OperationErrorKind::Writes(result) => Root::Writes(result),
            OperationErrorKind::Batch(_)
            | OperationErrorKind::Unwritable(_)
            | OperationErrorKind::NoSessions
            | OperationErrorKind::ForeignSession
            | OperationErrorKind::UnacknowledgedInSession
            | OperationErrorKind::UnacknowledgedJournal
            | OperationErrorKind::Closed
            | OperationErrorKind::Cursor(_)
            | OperationErrorKind::Transaction(_)
            | OperationErrorKind::TransactionTimeout(_)
            | OperationErrorKind::ConnectionOfSession
            | OperationErrorKind::NoSnapshots => Root::Client,
        }
    }
}

impl CommandError {
    /// The server's error code: of the command, of its first write that failed, or of its write concern. `None` if the server sent none.
    pub fn code(&self) -> Option<i32> {
        match &self.kind {
            CommandErrorKind::Server(refusal) => refusal.code,
            CommandErrorKind::Writes(failure) => failure.code(),
            CommandErrorKind::Reauthentication(error) => match error.fault {
                Fault::Server { code } => code,
                Fault::Network | Fault::Timeout | Fault::Other | _ => None,
            },
            CommandErrorKind::Network(_)
            | CommandErrorKind::Timeout(_)
            | CommandErrorKind::NoTimeLeft { .. }
            | CommandErrorKind::Interrupted(_)
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Unwritable(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => None,
        }
    }

    /// Whether a write ran into a key that was there already, in a unique index.
    pub fn is_duplicate_key(&self) -> bool {
        let is_in_write = matches!(&self.kind, CommandErrorKind::Writes(failure) if failure.writes.iter().any(|write| is_duplicate_key(write.code)));
        is_in_write || is_duplicate_key(self.code())
    }

    /// Whether the connection was lost. Whether the command was carried out is unknown then.
    pub fn is_network(&self) -> bool {
        match &self.kind {
            CommandErrorKind::Network(_) | CommandErrorKind::Interrupted(_) => true,
            CommandErrorKind::Reauthentication(error) => error.fault == Fault::Network,
            CommandErrorKind::Server(_)
            | CommandErrorKind::Writes(_)
            | CommandErrorKind::Timeout(_)
            | CommandErrorKind::NoTimeLeft { .. }
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Unwritable(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => false,
        }
    }
}

impl CheckOutError {
    /// Whether no connection could be made because the network failed.
    pub fn is_network(&self) -> bool {
        self.establish_error().is_some_and(|error| error.fault == Fault::Network)
    }

    fn establish_error(&self) -> Option<&EstablishError> {
        let Self::Pool(error) = self else { return None };
        if let CheckOutErrorKind::Establish(error) = &error.kind { Some(error) } else { None }
    }
}

impl Root<'_> {
    fn code(&self) -> Option<i32> {
        match self {
            Self::Command(error) => error.code(),
            Self::Writes(result) => result.code(),
            Self::CheckOut(_) | Self::Client => None,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        match self {
            Self::Command(error) => error.is_duplicate_key(),
            Self::Writes(result) => result.errors.iter().any(|error| is_duplicate_key(error.code)),
            Self::CheckOut(_) | Self::Client => false,
        }
    }

    fn is_network(&self) -> bool {
        match self {
            Self::CheckOut(error) => error.is_network(),
            Self::Command(error) => error.is_network(),
            Self::Writes(_) | Self::Client => false,
        }
    }
}

/// The server has three codes for it, two of which are old.
fn is_duplicate_key(code: Option<i32>) -> bool {
    matches!(code, Some(11_000 | 11_001 | 12_582))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::rawdoc;
    use cmap_core::address::ServerAddress;
    use cmap_core::retry::Labels;
    use cmap_core::wire::CommandReply;

    use super::*;

    fn failed(kind: CommandErrorKind) -> CommandError {
        let mut pool = cmap_core::pool::Pool::<()>::new(
            ServerAddress::tcp("db.example", 27017),
            cmap_core::options::PoolOptions::default(),
            cmap_core::time::Instant::ORIGIN,
        )
        .unwrap();
        pool.ready(cmap_core::time::Instant::ORIGIN);
        let _ = pool.check_out(cmap_core::time::Instant::ORIGIN, cmap_core::pool::CheckOutRequest::default());
        let connection_id = pool.find(1).unwrap().id();
        CommandError { kind, address: Arc::new(ServerAddress::tcp("db.example", 27017)), connection_id }
    }

    #[test]
    fn a_duplicate_key_is_told_by_every_error_whether_the_command_or_one_of_its_writes_ran_into_it() {
        let of_command = rawdoc! { "ok": 0, "code": 11000, "errmsg": "E11000 duplicate key error" };
        let of_write = rawdoc! { "ok": 1, "writeErrors": [{ "index": 0, "code": 2 }, { "index": 1, "code": 11000 }] };
        let refused = CommandReply::read(&of_command).failure().unwrap();
        let written = CommandReply::read(&of_write).write_failure().unwrap();

        for (kind, code) in
            [(CommandErrorKind::Server(Box::new(refused)), 11_000), (CommandErrorKind::Writes(Box::new(written)), 2)]
        {
            let command = failed(kind);
            assert!(command.is_duplicate_key() && !command.is_network(), "{command}");
            let operation = OperationError::new((command.into(), Labels::default()), 0, GiveUp::NotRetryable);
            assert!(operation.is_duplicate_key() && !operation.is_retryable(), "{operation}");
            let any = Error::from(operation);
            assert_eq!((any.is_duplicate_key(), any.code(), any.is_network()), (true, Some(code), false), "{any}");
        }
    }

    #[test]
    fn an_operation_may_be_run_again_if_only_the_number_of_its_attempts_ended_it() {
        let lost = || failed(CommandErrorKind::Network(std::io::ErrorKind::ConnectionReset.into()));
        let given_up = |gave_up| Error::from(OperationError::new((lost().into(), Labels::default()), 1, gave_up));

        let exhausted = given_up(GiveUp::Exhausted);
        assert!(exhausted.is_retryable() && exhausted.is_network() && exhausted.code().is_none(), "{exhausted}");
        assert!(!given_up(GiveUp::NotRetryable).is_retryable());
    }
}
