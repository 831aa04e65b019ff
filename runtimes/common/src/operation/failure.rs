//! What the errors of an attempt say about the next one.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::connection::{Peer, Role};
use cmap_core::pool::CheckOutErrorKind;
use cmap_core::retry::failure::{NO_RETRYABLE_WRITES, NO_TRANSACTIONS, refuses_transaction_numbers};
use cmap_core::retry::{Failure, FailureKind, Labels};
use cmap_core::session::TransactionCommand;
use cmap_core::topology::SelectionErrorKind;

use super::attempt::{Failed, Server};
use crate::error::{CheckOutError, CommandError, CommandErrorKind, OperationErrorKind};

/// A check-out failed: no command was sent.
pub(super) fn of_check_out(error: CheckOutError) -> Failed {
    let (kind, labels, address) = match &error {
        CheckOutError::Selection(error) => {
            (of_selection(&error.kind), Labels::of(|label| error.has_label(label)), None)
        }
        CheckOutError::NoAffinity | CheckOutError::RuntimeGone(_) => (FailureKind::Client, Labels::default(), None),
        CheckOutError::Pool(error) => {
            let address = Some(Arc::clone(&error.address));
            match &error.kind {
                CheckOutErrorKind::PoolCleared { .. } => (FailureKind::PoolCleared, Labels::default(), address),
                // the labels say that it may be tried again, after a pause.
                CheckOutErrorKind::WaitQueueFull { .. } => {
                    (FailureKind::Client, Labels::of(|label| error.has_label(label)), address)
                }
                CheckOutErrorKind::Establish(error) => {
                    (FailureKind::Establish(error.fault), Labels::of(|label| error.has_label(label)), address)
                }
                CheckOutErrorKind::Timeout(_) => (FailureKind::NotSentInTime, Labels::default(), address),
                CheckOutErrorKind::PoolClosed | CheckOutErrorKind::Cancelled | _ => {
                    (FailureKind::Client, Labels::default(), address)
                }
            }
        }
    };
    let failure = Failure::new(kind).with_labels(labels);
    let server = address.map(|address| Server { address, is_mongos: false, max_wire_version: i32::MAX });
    Failed { kind: error.into(), failure, server }
}

/// Another attempt helps where a server may be found yet. Where none ever is, it would fail at once, again and again.
fn of_selection(kind: &SelectionErrorKind) -> FailureKind {
    match kind {
        SelectionErrorKind::Closed
        | SelectionErrorKind::Incompatible(_)
        | SelectionErrorKind::MaxStaleness(_)
        | SelectionErrorKind::UnknownIdentity(_)
        // X-80, as of a pool.
        | SelectionErrorKind::WaitQueueFull { .. } => FailureKind::Client,
        SelectionErrorKind::Timeout | SelectionErrorKind::ServerLeft | SelectionErrorKind::Forked | _ => {
            FailureKind::Selection
        }
    }
}

/// The operation cannot be sent as it is.
pub(super) fn of_client(kind: OperationErrorKind) -> Failed {
    Failed::in_client(kind, Failure::new(FailureKind::Client))
}

/// A command failed on a connection to this server. It was sent with `number`, as a `part` of a transaction or not.
pub(super) fn of_command(
    mut error: CommandError,
    server: Peer,
    number: Option<i64>,
    part: Option<TransactionCommand>,
) -> Failed {
    if let CommandErrorKind::Server(refusal) = &mut error.kind
        && number.is_some()
        && refuses_transaction_numbers(refusal.code, &refusal.message)
    {
        let text = if part.is_some() { NO_TRANSACTIONS } else { NO_RETRYABLE_WRITES };
        text.clone_into(&mut refusal.message);
    }
    let (kind, base_backoff) = of_command_error(&error.kind);
    let failure = Failure::new(kind).with_labels(Labels::of(|label| error.has_label(label)));
    let server = Server {
        address: Arc::clone(&error.address),
        is_mongos: server.role == Role::Mongos,
        max_wire_version: server.max_wire_version,
    };
    Failed { kind: error.into(), failure: failure.with_base_backoff(base_backoff), server: Some(server) }
}

/// Where a command's error arose, and the pause that its server asks for.
fn of_command_error(error: &CommandErrorKind) -> (FailureKind, Option<Duration>) {
    match error {
        CommandErrorKind::Server(refusal) => (FailureKind::Server { code: refusal.code }, refusal.base_backoff()),
        CommandErrorKind::Writes(failure) => match &failure.write_concern {
            Some(concern) => (FailureKind::WriteConcern { code: concern.code }, concern.base_backoff()),
            // RTY-6: the codes of single writes do not count.
            None => (FailureKind::Server { code: None }, None),
        },
        // What a reply that cannot be used was going to say is as unknown as what was lost on the way.
        CommandErrorKind::Network(_)
        | CommandErrorKind::Timeout(_)
        | CommandErrorKind::Interrupted(_)
        | CommandErrorKind::Protocol(_) => (FailureKind::Network, None),
        CommandErrorKind::NoTimeLeft { .. } => (FailureKind::NotSentInTime, None),
        CommandErrorKind::NotSent(_)
        | CommandErrorKind::Unwritable(_)
        | CommandErrorKind::Reauthentication(_)
        | CommandErrorKind::Closed
        | CommandErrorKind::RuntimeGone(_) => (FailureKind::Client, None),
    }
}

/// Whether a network error cut the command off, so that the server may still be at it (SES-8).
pub(super) fn is_of_network(error: &CommandError) -> bool {
    match &error.kind {
        CommandErrorKind::Network(_)
        | CommandErrorKind::Timeout(_)
        | CommandErrorKind::Interrupted(_)
        | CommandErrorKind::Protocol(_)
        | CommandErrorKind::Closed
        | CommandErrorKind::RuntimeGone(_) => true,
        CommandErrorKind::Server(_)
        | CommandErrorKind::Writes(_)
        | CommandErrorKind::NoTimeLeft { .. }
        | CommandErrorKind::NotSent(_)
        | CommandErrorKind::Reauthentication(_)
        | CommandErrorKind::Unwritable(_) => false,
    }
}

/// Whether the error is in a reply to the command.
pub(super) fn has_reply(error: &CommandError) -> bool {
    matches!(error.kind, CommandErrorKind::Server(_) | CommandErrorKind::Writes(_))
}

#[cfg(test)]
mod tests {
    use cmap_core::connection::ProtocolError;

    use super::*;

    #[test]
    fn a_command_whose_reply_cannot_be_used_may_have_been_carried_out_txn_5() {
        let unusable = CommandErrorKind::Protocol(ProtocolError::Sequences);

        let (kind, _) = of_command_error(&unusable);

        // A commit gets UnknownTransactionCommitResult from it, and its pin is lifted.
        assert_eq!(kind, FailureKind::Network);
    }
}
