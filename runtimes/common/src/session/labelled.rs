//! Errors that may carry labels, by which a transaction is repeated.

use std::error::Error as StdError;

use crate::error::{CommandError, Error, OperationError};

/// An error of a transaction's callback, which may have an [`OperationError`] in it. Its labels decide whether the transaction is
/// repeated: an error type of your own passes the question on.
///
/// ```
/// use cmap_runtime::{Labelled, OperationError};
///
/// enum TransferError {
///     NotEnoughMoney,
///     Database(OperationError),
/// }
///
/// impl Labelled for TransferError {
///     fn has_label(&self, label: &str) -> bool {
///         match self {
///             TransferError::NotEnoughMoney => false,
///             TransferError::Database(error) => error.has_label(label),
///         }
///     }
/// }
/// ```
pub trait Labelled {
    /// Whether the error has `label`.
    fn has_label(&self, label: &str) -> bool;
}

impl Labelled for OperationError {
    fn has_label(&self, label: &str) -> bool {
        OperationError::has_label(self, label)
    }
}

impl Labelled for CommandError {
    fn has_label(&self, label: &str) -> bool {
        CommandError::has_label(self, label)
    }
}

impl Labelled for Error {
    fn has_label(&self, label: &str) -> bool {
        match self {
            Self::Operation(error) => error.has_label(label),
            Self::Command(error) => error.has_label(label),
            Self::Client(_) | Self::CheckOut(_) | Self::Parse(_) => false,
        }
    }
}

/// The first error of this crate in the chain of sources counts.
impl Labelled for Box<dyn StdError + Send + Sync> {
    fn has_label(&self, label: &str) -> bool {
        let mut next: Option<&(dyn StdError + 'static)> = Some(&**self);
        while let Some(error) = next {
            let labelled = error
                .downcast_ref::<OperationError>()
                .map(|error| error as &dyn Labelled)
                .or_else(|| error.downcast_ref::<Error>().map(|error| error as &dyn Labelled))
                .or_else(|| error.downcast_ref::<CommandError>().map(|error| error as &dyn Labelled));
            if let Some(labelled) = labelled {
                return labelled.has_label(label);
            }
            next = error.source();
        }
        false
    }
}
