//! The spans of operations and of transactions.

use std::future::Future;

use bson::RawDocument;
use cmap_core::server::is_sensitive;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::failure::{GIVEN_UP, record_error, record_failed};
use super::options::Spans;
use super::target::Target;
use crate::error::OperationError;

/// The span of an operation. Dropping it without an end says that its caller gave it up.
pub(crate) struct OperationSpan {
    span: Span,
    /// Whether its error may hold a secret (LOG-15).
    is_sensitive: bool,
    is_over: bool,
}

/// The span of a transaction, open as long as this lives. Its operations are children of it.
pub(crate) struct TransactionSpan(Span);

impl Spans {
    /// The span of an operation whose command is `body`, within its transaction's if it is part of one.
    pub(crate) fn operation(
        &self,
        body: &RawDocument,
        database: &str,
        transaction: Option<&TransactionSpan>,
    ) -> OperationSpan {
        let target = Target::of(body, database);
        let name = target.operation();
        let summary = target.summary(name);
        let open = || {
            info_span!(
                target: "cmap::operation",
                "operation",
                otel.name = summary,
                otel.kind = "client",
                otel.status_code = Empty,
                otel.status_description = Empty,
                db.system.name = "mongodb",
                db.namespace = database,
                db.collection.name = target.collection,
                db.operation.name = name,
                db.operation.summary = summary,
                exception.message = Empty,
                "exception.type" = Empty,
                exception.stacktrace = Empty,
            )
        };
        let span = transaction.map_or_else(open, |TransactionSpan(span)| span.in_scope(open));
        OperationSpan { span, is_sensitive: is_sensitive(body), is_over: false }
    }

    /// The span of a transaction that starts (OTEL-9).
    pub(crate) fn transaction(&self) -> TransactionSpan {
        TransactionSpan(info_span!(
            target: "cmap::transaction",
            "transaction",
            otel.name = "transaction",
            otel.kind = "client",
            db.system.name = "mongodb",
        ))
    }
}

impl OperationSpan {
    /// Carries an operation out in the span. `error` finds the one that it ended by.
    pub(crate) async fn around<T>(
        mut self,
        operation: impl Future<Output = T>,
        error: impl FnOnce(&T) -> Option<&OperationError>,
    ) -> T {
        let ended = operation.instrument(self.span.clone()).await;
        self.is_over = true;
        match error(&ended) {
            Some(_) if self.is_sensitive => record_failed(&self.span, "its command failed; the rest may hold a secret"),
            Some(error) => record_error(&self.span, "cmap_runtime::OperationError", error),
            None => {}
        }
        ended
    }
}

impl Drop for OperationSpan {
    fn drop(&mut self) {
        if !self.is_over {
            record_failed(&self.span, GIVEN_UP);
        }
    }
}
