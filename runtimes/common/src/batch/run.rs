//! The batches of an operation, one after the other.

use std::io;
use std::sync::Arc;

use cmap_core::batch::{BatchError, Batches, WriteResult};

use super::source::{Ids, Source};
use crate::cursor::Results;
use crate::error::{OperationError, OperationErrorKind};
use crate::operation::{Batch, Means, Operation};
use crate::runtime::Runtime;

/// The sequence that a bulkWrite has besides its items.
const NAMESPACES: &str = "nsInfo";

/// Runs all of them, in one span (OTEL-2).
pub(super) async fn run<R: Runtime, S>(
    operation: Operation<'_, R, S>,
    sources: Vec<Source<'_>>,
    makes_ids: bool,
) -> Result<WriteResult, OperationError> {
    match operation.open_span(operation.session()) {
        None => run_batches(operation, sources, makes_ids).await,
        Some(span) => {
            Box::pin(span.around(run_batches(operation, sources, makes_ids), |ended| ended.as_ref().err())).await
        }
    }
}

async fn run_batches<R: Runtime, S>(
    mut operation: Operation<'_, R, S>,
    mut sources: Vec<Source<'_>>,
    makes_ids: bool,
) -> Result<WriteResult, OperationError> {
    operation.check_limit()?;
    let request = operation.take_request()?;
    let names: Vec<_> = sources.iter().map(|source| source.name).collect();
    let mut batches = Batches::new(request.command().body, &names).map_err(refused)?;
    let body = batches.command().to_owned();
    let mut command = request.command();
    command.body = &body;
    let namespaces = sources.iter().position(|source| source.name == NAMESPACES).map(|at| sources.swap_remove(at));
    let is_bulk_write = namespaces.is_some();
    if let Some(mut namespaces) = namespaces {
        namespaces.read_namespaces(&mut batches).map_err(refused)?;
    }
    // One that is needed is there, once.
    let Some(mut items) = sources.pop() else { return Err(refused(no_items(&batches))) };

    let context = Arc::clone(operation.context());
    let runtime = context.driver.clock.runtime();
    let mut ids = match makes_ids {
        true => Some(Ids::new(runtime).map_err(|error| refused(no_ids(&batches, &error)))?),
        false => None,
    };
    // All batches have one end (CSOT-29), one number and one session (BW-9).
    let (budget, limit, tag) = (context.budget(operation.limit()), operation.limit(), operation.tag());
    let number = context.sessions.next_operation();
    let mut session = operation.take_session();
    let mut first = None;
    loop {
        if let Err(error) = items.fill(&mut batches, ids.as_mut(), runtime).and_then(|()| batches.check_any()) {
            return Err(refused(error).after(batches.into_result()));
        }
        if batches.is_empty() {
            break;
        }
        let of_batch = operation.of_batch(&command, Batch { batches: &mut batches, number });
        let means =
            Means { session: session.lend(), connection: None, budget: Some(budget), makes_cursor: is_bulk_write };
        let ended = of_batch.carry_out(means).await;
        session.take_back(ended.borrowed);
        let (answer, failed) = match ended.result {
            Ok(answer) => (answer, None),
            Err(error) => match ended.answer {
                Some(answer) => (answer, Some(error)),
                // BW-14.
                None => {
                    if let Some(known) = &ended.known_reply {
                        batches.handle_reply(known);
                    }
                    return Err(error.after(batches.into_result()));
                }
            },
        };
        first = first.or(failed);
        if answer.reply.is_empty() {
            batches.handle_unacknowledged();
        } else {
            batches.handle_reply(&answer.reply);
            if is_bulk_write {
                let results = Results { context: &context, command: &body, time: (budget, limit), tag };
                if let Err(error) = results.read(answer, &mut session, &mut batches).await {
                    return Err(error.after(batches.into_result()));
                }
            }
        }
        if !batches.end() {
            break;
        }
    }
    let result = batches.into_result();
    if result.is_complete() { Ok(result) } else { Err(OperationError::of_writes(result, first)) }
}

/// The error of items that cannot be sent.
fn refused(error: BatchError) -> OperationError {
    OperationError::not_sent(OperationErrorKind::Batch(error))
}

fn no_ids(batches: &Batches, error: &io::Error) -> BatchError {
    let problem = format!("the system gives no random bits for its `_id`: {error}");
    BatchError::Unwritable { sequence: batches.items_name(), index: 0, problem }
}

fn no_items(batches: &Batches) -> BatchError {
    BatchError::NoItems { sequence: batches.items_name() }
}
