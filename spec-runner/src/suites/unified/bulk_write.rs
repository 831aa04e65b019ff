//! Bulk writes of a collection: consecutive writes of one kind are one command, each of which is retried by itself (RTY-4).

use bson::{Bson, Document, doc};
use cmap_core::topology::ServerSelector;
use cmap_sim::WriteResult;

use super::client::{Client, Items};
use super::commands::{Caller, Sending, Session};
use super::data::Place;
use super::failure::Failure;
use super::writes::{Kind, Model, counts, is_confirmed};

/// What a bulk write says beside its writes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the first that fails is the last.
    pub ordered: bool,
    /// `comment`, of all commands.
    pub comment: Option<Bson>,
    /// `let`, of updates and deletes.
    pub variables: Option<Document>,
}

/// A command of a bulk.
struct Command<'m> {
    /// Its name: insert, update, delete.
    name: &'static str,
    /// The field of its writes.
    field: &'static str,
    /// Its writes, each with its place in the bulk.
    writes: Vec<(usize, &'m Model)>,
}

/// The result so far.
#[derive(Default)]
struct Total {
    counts: Document,
    inserted_ids: Document,
    upserted_ids: Document,
}

/// Runs the commands one after the other. Of an ordered bulk, the first that fails is the last.
///
/// # Errors
/// That of the first command that failed.
pub async fn run<C: Client>(
    caller: &Caller<C>,
    place: &Place,
    models: &[Model],
    options: &Options,
    session: &Session<C>,
) -> Result<Bson, Failure> {
    let collection = place.collection.as_deref().unwrap_or_default();
    let of_place = place.options.write_concern.as_ref().filter(|_| !session.is_in_transaction());
    let (mut total, mut failed, mut is_acknowledged) = (Total::default(), None, true);
    total.add(&WriteResult::default(), &[], true);
    for command in commands(models) {
        let mut document = doc! { command.name: collection, "ordered": options.ordered };
        document.extend(of_place.map(|concern| ("writeConcern".to_owned(), concern.0.clone().into())));
        document.extend(options.comment.clone().map(|comment| ("comment".to_owned(), comment)));
        let variables = options.variables.clone().filter(|_| command.name != "insert");
        document.extend(variables.map(|variables| ("let".to_owned(), variables.into())));
        let sending = Sending { selector: ServerSelector::Writable, is_once: false };
        let items: Vec<Items> =
            vec![(command.field, command.writes.iter().map(|(_, model)| statement(model)).collect())];
        match caller.write(&place.database, &document, items, sending, session).await {
            Ok(result) => {
                is_acknowledged &= result.is_acknowledged;
                total.add(&result, &command.writes, options.ordered);
            }
            Err(failure) => {
                let written = failure.written.clone().unwrap_or_default();
                if !written.is_complete() || written.has_written() {
                    total.add(&written, &command.writes, options.ordered);
                }
                let ends = options.ordered && !written.errors.is_empty() || written.is_complete();
                failed.get_or_insert(failure);
                if ends {
                    break;
                }
            }
        }
    }
    let result = if is_acknowledged { total.into_bson() } else { doc! { "acknowledged": false }.into() };
    match failed {
        None => Ok(result),
        Some(failure) => Err(Failure { result: Some(Box::new(result)), ..failure }),
    }
}

fn commands(models: &[Model]) -> Vec<Command<'_>> {
    let mut commands: Vec<Command<'_>> = Vec::new();
    for write in models.iter().enumerate() {
        let (name, field) = match write.1.kind {
            Kind::Insert => ("insert", "documents"),
            Kind::Update { .. } | Kind::Replace => ("update", "updates"),
            Kind::Delete { .. } => ("delete", "deletes"),
        };
        match commands.last_mut().filter(|last| last.name == name) {
            Some(last) => last.writes.push(write),
            None => commands.push(Command { name, field, writes: vec![write] }),
        }
    }
    commands
}

fn statement(model: &Model) -> Document {
    let mut statement = match model.kind {
        Kind::Insert => return model.arguments.get_document("document").cloned().unwrap_or_default(),
        Kind::Update { .. } | Kind::Replace => {
            doc! { "q": model.argument("filter"), "u": model.change(), "multi": model.is_multi() }
        }
        Kind::Delete { multi } => doc! { "q": model.argument("filter"), "limit": i32::from(!multi) },
    };
    statement.extend(model.options());
    statement
}

impl Total {
    fn add(&mut self, result: &WriteResult, writes: &[(usize, &Model)], ordered: bool) {
        for (name, more) in counts(result) {
            let before = self.counts.get_i64(&name).unwrap_or_default();
            self.counts.insert(name, before + more.as_i64().unwrap_or_default());
        }
        for (place, (index, model)) in writes.iter().enumerate() {
            if let Some(id) = model.inserted_id().filter(|_| is_confirmed(result, ordered, place)) {
                self.inserted_ids.insert(index.to_string(), id);
            }
        }
        for upsert in &result.upserted {
            let place = usize::try_from(upsert.index).ok().and_then(|place| writes.get(place));
            self.upserted_ids.extend(place.map(|(index, _)| (index.to_string(), upsert.id.clone())));
        }
    }

    fn into_bson(self) -> Bson {
        let Self { mut counts, inserted_ids, upserted_ids } = self;
        counts.extend(doc! { "insertedIds": inserted_ids, "upsertedIds": upserted_ids });
        counts.into()
    }
}
