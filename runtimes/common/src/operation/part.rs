//! Whether an operation is part of its session's transaction, and what a transaction does not take.

use cmap_core::connection::{Addition, ClientField, Outline};
use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::retry::Retryability;
use cmap_core::session::{TransactionCommand, TransactionError};
use cmap_core::topology::ServerSelector;

use crate::error::OperationError;
use crate::runtime::Runtime;
use crate::session::Session;

/// Whether a command may be repeated that has this part in a transaction, or none and `is_once` to run, where it could be by itself.
pub(super) fn retryability(part: Option<TransactionCommand>, is_once: bool, by_itself: Retryability) -> Retryability {
    match part {
        None if is_once => by_itself.once(),
        None => by_itself,
        Some(TransactionCommand::Operation) => by_itself.in_transaction(),
        // TXN-6.
        Some(TransactionCommand::Commit | TransactionCommand::Abort) => Retryability::Write,
    }
}

/// The part that an operation has in the transaction of its session. One that has none ends what is left of the last
/// transaction (PIN-5).
pub(super) fn of<R: Runtime>(
    session: Option<&mut Session<R>>,
    ending: Option<TransactionCommand>,
    outline: &Outline<'_>,
    selector: &ServerSelector,
) -> Result<Option<TransactionCommand>, OperationError> {
    let Some(session) = session else { return Ok(None) };
    if ending.is_some() {
        return Ok(ending);
    }
    if !session.transaction.is_open() {
        session.leave_transaction();
        return Ok(None);
    }
    let is_primary = |preference: &ReadPreference| preference.mode() == ReadMode::Primary;
    let reads_elsewhere = if let ServerSelector::ReadPreference(preference) = selector {
        !is_primary(preference)
    } else {
        let of_transaction = session.transaction.options().read_preference.as_ref();
        outline.takes(Addition::ReadPreference) && !of_transaction.is_none_or(is_primary)
    };
    if reads_elsewhere {
        return Err(OperationError::transaction(TransactionError::ReadPreference));
    }
    if outline.has(ClientField::ReadConcern) {
        return Err(OperationError::transaction(TransactionError::ReadConcern));
    }
    if outline.has(ClientField::WriteConcern) {
        return Err(OperationError::transaction(TransactionError::WriteConcern));
    }
    Ok(Some(TransactionCommand::Operation))
}
