//! Bulk writes of a whole client: writes in any collections, by `bulkWrite`.

use bson::{Bson, Document, doc};
use cmap_core::topology::ServerSelector;
use cmap_sim::WriteResult;

use super::client::{Client, Items};
use super::commands::{Caller, Sending, Session};
use super::failure::Failure;
use super::writes::{Kind, Model, counts};

/// Runs the writes. `options` are fields of the command; without `errorsOnly: false` it has no results of single writes.
///
/// # Errors
/// What the client says.
pub async fn run<C: Client>(
    caller: &Caller<C>,
    models: &[Model],
    options: Document,
    session: &Session<C>,
) -> Result<Bson, Failure> {
    let is_verbose = options.get_bool("errorsOnly").is_ok_and(|errors_only| !errors_only);
    let mut namespaces: Vec<Bson> = Vec::new();
    let mut operations = Vec::new();
    for model in models {
        let namespace = model.argument("namespace");
        let place = namespaces.iter().position(|own| *own == namespace).unwrap_or_else(|| {
            namespaces.push(namespace);
            namespaces.len() - 1
        });
        operations.push(operation(model, i32::try_from(place).unwrap_or(i32::MAX)));
    }
    let mut command = doc! { "bulkWrite": 1 };
    command.extend(options);
    let namespaces = namespaces.into_iter().map(|namespace| doc! { "ns": namespace }).collect();
    let items: Vec<Items> = vec![("ops", operations), ("nsInfo", namespaces)];
    let sending = Sending { selector: ServerSelector::Writable, is_once: false };
    match caller.write("admin", &command, items, sending, session).await {
        Ok(result) => Ok(result_of(&result, models, is_verbose)),
        Err(mut failure) => {
            // BW-16.
            let partial = failure.written.as_deref().filter(|written| written.has_written());
            failure.result = partial.map(|written| Box::new(result_of(written, models, is_verbose)));
            Err(failure)
        }
    }
}

fn operation(model: &Model, namespace: i32) -> Document {
    let mut operation = match model.kind {
        Kind::Insert => doc! { "insert": namespace, "document": model.argument("document") },
        Kind::Update { .. } | Kind::Replace => doc! {
            "update": namespace, "filter": model.argument("filter"), "updateMods": model.change(), "multi": model.is_multi(),
        },
        Kind::Delete { multi } => doc! { "delete": namespace, "filter": model.argument("filter"), "multi": multi },
    };
    operation.extend(model.options());
    operation
}

fn result_of(result: &WriteResult, models: &[Model], is_verbose: bool) -> Bson {
    if !result.is_acknowledged {
        return doc! { "acknowledged": false }.into();
    }
    let mut all = counts(result);
    if !is_verbose {
        return all.into();
    }
    let (mut inserts, mut updates, mut deletes) = (Document::new(), Document::new(), Document::new());
    for outcome in &result.outcomes {
        let Some(model) = usize::try_from(outcome.index).ok().and_then(|index| models.get(index)) else { continue };
        let (index, n) = (outcome.index.to_string(), i64::try_from(outcome.n).unwrap_or(i64::MAX));
        match model.kind {
            Kind::Insert => inserts.insert(index, doc! { "insertedId": model.inserted_id() }),
            Kind::Update { .. } | Kind::Replace => {
                let modified = outcome.modified.and_then(|modified| i64::try_from(modified).ok());
                let mut update = doc! { "matchedCount": n, "modifiedCount": modified };
                let upserted = result.upserted.iter().find(|upserted| upserted.index == outcome.index);
                update.extend(upserted.map(|upserted| ("upsertedId".to_owned(), upserted.id.clone())));
                updates.insert(index, update)
            }
            Kind::Delete { .. } => deletes.insert(index, doc! { "deletedCount": n }),
        };
    }
    all.extend(doc! { "insertResults": inserts, "updateResults": updates, "deleteResults": deletes });
    all.into()
}
