//! Bulk writes of a collection: consecutive writes of one kind are one command, each of which is retried by itself (RTY-4).

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use cmap_core::topology::ServerSelector;

use super::client::Client;
use super::commands::{Caller, Held, Sending};
use super::data::{Place, with_id};
use super::failure::Failure;

/// A command of a bulk.
#[derive(Debug)]
pub struct Write {
    /// Its name: insert, update, delete.
    name: &'static str,
    /// The field of its writes.
    field: &'static str,
    /// Its writes, each with its place in the bulk.
    writes: Vec<(usize, Document)>,
}

/// The commands of a bulk.
///
/// # Errors
/// A request is not one that is known.
pub fn writes(requests: &[Document], mut next_id: impl FnMut() -> ObjectId) -> Result<Vec<Write>, String> {
    let mut commands: Vec<Write> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let (kind, arguments) = request.iter().next().ok_or("an empty request")?;
        let arguments = arguments.as_document().ok_or("a request without arguments")?;
        let argument = |name: &str| arguments.get(name).cloned().ok_or_else(|| format!("{kind} has no {name}"));
        let is_multi = kind.ends_with("Many");
        let (name, field, write) = match kind.as_str() {
            "insertOne" => {
                let document = argument("document")?;
                let document = document.as_document().ok_or("what is to be inserted is no document")?;
                ("insert", "documents", with_id(document, &mut next_id))
            }
            "updateOne" | "updateMany" | "replaceOne" => {
                let change = argument(if kind == "replaceOne" { "replacement" } else { "update" })?;
                let mut update = doc! { "q": argument("filter")?, "u": change, "multi": is_multi };
                update.extend(arguments.get("upsert").map(|upsert| ("upsert".to_owned(), upsert.clone())));
                ("update", "updates", update)
            }
            "deleteOne" | "deleteMany" => {
                let limit = i32::from(!is_multi);
                ("delete", "deletes", doc! { "q": argument("filter")?, "limit": limit })
            }
            unknown => return Err(format!("unknown request `{unknown}`")),
        };
        match commands.last_mut().filter(|last| last.name == name) {
            Some(last) => last.writes.push((index, write)),
            None => commands.push(Write { name, field, writes: vec![(index, write)] }),
        }
    }
    Ok(commands)
}

/// Runs the commands one after the other; the first that fails is the last.
///
/// # Errors
/// That of the first command that failed.
pub async fn run<C: Client>(
    caller: &Caller<C>,
    place: &Place,
    writes: Vec<Write>,
    ordered: bool,
    session: Option<Held<C>>,
) -> Result<Bson, Failure> {
    let collection = place.collection.as_deref().unwrap_or_default();
    let session = caller.session(session, None);
    let of_place = place.options.write_concern.as_ref().filter(|_| !session.is_in_transaction());
    let mut counts = doc! {
        "insertedCount": 0_i64, "deletedCount": 0_i64, "matchedCount": 0_i64, "modifiedCount": 0_i64, "upsertedCount": 0_i64,
    };
    let (mut inserted_ids, mut upserted_ids) = (Document::new(), Document::new());
    for Write { name, field, writes } in writes {
        let documents: Vec<Document> = writes.iter().map(|(_, document)| document.clone()).collect();
        let mut command = doc! { name: collection, field: documents, "ordered": ordered };
        command.extend(of_place.map(|concern| ("writeConcern".to_owned(), concern.0.clone().into())));
        let sending = Sending { selector: ServerSelector::Writable, is_once: false };
        let reply = match caller.run(&place.database, &command, sending, &session).await {
            Ok(reply) => reply,
            Err(mut failure) => {
                counts.extend(doc! { "insertedIds": inserted_ids, "upsertedIds": upserted_ids });
                failure.result = Some(Box::new(counts.into()));
                return Err(failure);
            }
        };
        let count = |field: &str| reply.get(field).and_then(|count| count.as_i32().map(i64::from)).unwrap_or_default();
        let upserted = reply.get_array("upserted").map(Vec::as_slice).unwrap_or_default();
        let upserted_count = i64::try_from(upserted.len()).unwrap_or_default();
        match name {
            "insert" => {
                add(&mut counts, "insertedCount", count("n"));
                inserted_ids.extend(
                    writes
                        .iter()
                        .filter_map(|(index, document)| Some((index.to_string(), document.get("_id")?.clone()))),
                );
            }
            "update" => {
                add(&mut counts, "matchedCount", count("n") - upserted_count);
                add(&mut counts, "modifiedCount", count("nModified"));
                add(&mut counts, "upsertedCount", upserted_count);
                for upsert in upserted.iter().filter_map(Bson::as_document) {
                    let place = upsert.get_i32("index").ok().and_then(|index| usize::try_from(index).ok());
                    let place = place.and_then(|place| writes.get(place));
                    upserted_ids
                        .extend(place.zip(upsert.get("_id")).map(|((index, _), id)| (index.to_string(), id.clone())));
                }
            }
            _ => add(&mut counts, "deletedCount", count("n")),
        }
    }
    counts.extend(doc! { "insertedIds": inserted_ids, "upsertedIds": upserted_ids });
    Ok(counts.into())
}

fn add(counts: &mut Document, name: &str, more: i64) {
    let before = counts.get_i64(name).unwrap_or_default();
    counts.insert(name, before + more);
}
