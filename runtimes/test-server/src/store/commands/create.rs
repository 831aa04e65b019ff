//! `create` and `renameCollection`.

use std::sync::Arc;

use bson::RawDocumentBuf;

use crate::store::arguments::{Arguments, fields};
use crate::store::catalog::Namespace;
use crate::store::collection::Cap;
use crate::store::failure::code;
use crate::store::history::Change;
use crate::store::order::compare_documents;
use crate::store::pipeline::Pipeline;
use crate::store::{Call, CommandFailure, Store};

/// The options that listCollections shows.
#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "capped", "size", "max", "validator", "validationLevel", "validationAction", "collation", "storageEngine",
    "indexOptionDefaults", "expireAfterSeconds", "changeStreamPreAndPostImages", "encryptedFields", "viewOn", "pipeline",
];
/// Further accepted fields.
const OTHER_FIELDS: &[&str] = &["autoIndexId", "idIndex", "timeseries", "clusteredIndex", "flags", "temp"];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&[OPTIONS, OTHER_FIELDS].concat())?;
    let namespace = command.namespace()?;
    for kind in ["timeseries", "clusteredIndex"] {
        if arguments.get(kind).is_some() {
            return Err(CommandFailure::not_supported(&format!("a collection with {kind}")));
        }
    }
    if arguments.document("validator")?.is_some_and(|validator| !validator.is_empty()) {
        return Err(CommandFailure::not_supported("a collection with a validator"));
    }
    check_view(&arguments)?;
    let cap = if arguments.boolean("capped")? {
        let size = arguments.integer("size")?.filter(|size| *size > 0).and_then(|size| usize::try_from(size).ok());
        let message = "the 'size' field is required when 'capped' is true";
        let bytes = size.ok_or_else(|| CommandFailure::new(code::INVALID_OPTIONS, message))?;
        let max = arguments.integer("max")?.filter(|max| *max > 0);
        Some(Cap { bytes, documents: max.and_then(|max| usize::try_from(max).ok()) })
    } else {
        if arguments.get("size").is_some() || arguments.get("max").is_some() {
            let message = "the 'capped' field needs to be true when either the 'size' or 'max' fields are present";
            return Err(CommandFailure::new(code::INVALID_OPTIONS, message));
        }
        None
    };
    let mut options = RawDocumentBuf::new();
    for (name, value) in command.body.iter().filter_map(Result::ok) {
        if OPTIONS.contains(&name.as_str()) {
            options.append(name, value);
        }
    }
    match store.catalog.get(namespace) {
        None => store.catalog.create(namespace, options, cap)?,
        // Creating an existing collection again with the same options is not an error.
        Some(existing) if compare_documents(&existing.options, &options).is_eq() => {}
        Some(existing) => {
            let found: Vec<_> = fields(&existing.options).map(|(name, _)| name).collect();
            return Err(CommandFailure::new(
                code::NAMESPACE_EXISTS,
                format!("namespace {} already exists, but with different options: {found:?}", existing.namespace),
            ));
        }
    }
    Ok(RawDocumentBuf::new())
}

/// Refuses a view that is a collection as well, or whose pipeline is not one.
fn check_view(arguments: &Arguments<'_>) -> Result<(), CommandFailure> {
    let stages = arguments.array("pipeline")?;
    if arguments.string("viewOn")?.is_some() {
        if arguments.boolean("capped")? {
            return Err(CommandFailure::new(code::INVALID_OPTIONS, "'capped' is not a valid option for a view"));
        }
        return stages.map_or(Ok(()), Pipeline::check_names);
    }
    match stages {
        Some(_) => Err(CommandFailure::new(code::INVALID_OPTIONS, "'pipeline' requires 'viewOn' to also be specified")),
        None => Ok(()),
    }
}

/// A collection gets another name, perhaps in another database.
pub(super) fn rename(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["to", "dropTarget", "stayTemp"])?;
    if command.database != "admin" {
        return Err(CommandFailure::new(
            code::UNAUTHORIZED,
            "renameCollection may only be run against the admin database.",
        ));
    }
    let name = |field| {
        let full = arguments.required(field, arguments.string(field)?)?;
        let (database, collection) = full.split_once('.').unwrap_or((full, ""));
        Namespace::new(database, collection)
    };
    let (from, to) = (name("renameCollection")?, name("to")?);
    let drops_target = arguments.get("dropTarget").is_some() && arguments.boolean("dropTarget")?;
    store.catalog.refuse_view(from)?;
    if from.full() == to.full() {
        let message = "Can't rename a collection to itself";
        return Err(CommandFailure::new(code::ILLEGAL_OPERATION, message));
    }
    if store.catalog.get(to).is_some() && !drops_target && store.catalog.get(from).is_some() {
        return Err(CommandFailure::new(code::NAMESPACE_EXISTS, "target namespace exists"));
    }
    let Some(collection) = store.catalog.remove(from) else {
        let message = format!("Source collection {} does not exist", from.full());
        return Err(CommandFailure::new(code::NAMESPACE_NOT_FOUND, message));
    };
    let (old, new) = (from.full(), to.full());
    store.cursors.drop_collections(|namespace| namespace == old || namespace == new);
    let dropped = store.catalog.get(to).map(|dropped| dropped.uuid);
    store.catalog.history.note(from, collection.uuid, || Change::Rename {
        to: (to.database.to_owned(), to.collection.to_owned()),
        dropped,
    });
    store.catalog.put(to, Arc::unwrap_or_clone(collection));
    Ok(RawDocumentBuf::new())
}
