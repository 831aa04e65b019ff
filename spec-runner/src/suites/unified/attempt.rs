//! An operation on data, carried out: what it leads to is a result or a cursor.

use alloc::boxed::Box;

use bson::{Bson, Document};
use cmap_core::topology::ServerSelector;

use super::client::Client;
use super::commands::{Caller, Sending, Session};
use super::cursor::Cursor;
use super::data::{Outcome, Plan};
use super::failure::Failure;
use super::transaction::preference;
use super::writes::counts;

/// What an operation on data leads to.
pub(super) enum Attempt<C: Client> {
    Result(Bson),
    Cursor(Box<Cursor<C>>),
}

pub(super) async fn attempt<C: Client>(
    caller: &Caller<C>,
    plan: &Plan,
    session: &Session<C>,
) -> Result<Attempt<C>, Failure> {
    let selector = match (session.preference_of_transaction(), &plan.read_preference) {
        _ if !plan.reads => ServerSelector::Writable,
        (Some(of_transaction), _) => of_transaction.into(),
        (None, Some(own)) => preference(own).map_err(|stop| Failure::client(stop.to_string()))?.into(),
        (None, None) => caller.options.read_preference.clone().into(),
    };
    let sending = Sending { selector, is_once: false };
    if let Some(documents) = &plan.documents {
        let items = vec![("documents", documents.clone())];
        let written = caller.write(&plan.database, &plan.command, items, sending, session).await;
        written.map_err(with_counts)?;
        return Ok(Attempt::Result(plan.outcome.of_reply(&Document::new())));
    }
    if !plan.outcome.is_of_cursor() {
        let reply = caller.run(&plan.database, &plan.command, sending, session).await?;
        return Ok(Attempt::Result(plan.outcome.of_reply(&reply)));
    }
    let options = plan.cursor.clone();
    if plan.outcome == Outcome::ChangeStream {
        let stream = caller.watch(&plan.database, &plan.command, sending, options, session).await?;
        return Ok(Attempt::Cursor(Box::new(stream)));
    }
    let cursor = caller.open(&plan.database, &plan.command, sending, options, session).await?;
    if plan.outcome == Outcome::Cursor {
        return Ok(Attempt::Cursor(Box::new(cursor)));
    }
    cursor.all().await.map(|documents| Attempt::Result(plan.outcome.of_documents(documents)))
}

/// The failure with what was written before it as its result.
fn with_counts(mut failure: Failure) -> Failure {
    failure.result = failure.written.as_deref().map(|written| {
        let mut result = counts(written);
        result.insert("upsertedIds", Document::new());
        Box::new(result.into())
    });
    failure
}
