//! `collMod`: whether a collection keeps documents as they were before and after changes. And `shardCollection`, of a mongos, which
//! changes nothing but what change streams show.

use bson::RawDocumentBuf;

use crate::document::document;
use crate::store::arguments::{Arguments, fields};
use crate::store::catalog::Namespace;
use crate::store::failure::code;
use crate::store::history::Change;
use crate::store::{Call, CommandFailure, Store};

/// The option that can be changed.
const IMAGES: &str = "changeStreamPreAndPostImages";

/// What MongoDB could change, and this server cannot.
#[rustfmt::skip]
const OTHERS: [&str; 10] = [
    "cappedMax", "cappedSize", "expireAfterSeconds", "index", "pipeline", "timeseries", "validationAction", "validationLevel",
    "validator", "viewOn",
];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    if let Some(other) = OTHERS.into_iter().find(|name| arguments.get(name).is_some()) {
        return Err(CommandFailure::not_supported(&format!("collMod with {other}")));
    }
    arguments.check_known(&[IMAGES, "dryRun"])?;
    let namespace = command.namespace()?;
    let images = arguments.document(IMAGES)?;
    if let Some(images) = images {
        let images = Arguments::new("collMod.changeStreamPreAndPostImages", images);
        images.check_known(&["enabled"])?;
        images.boolean("enabled")?;
    }
    let Some(collection) = store.catalog.get_mut(namespace) else {
        let message = format!("ns does not exist: {}", namespace.full());
        return Err(CommandFailure::new(code::NAMESPACE_NOT_FOUND, message));
    };
    let mut description = RawDocumentBuf::new();
    if let Some(images) = images {
        let mut options = RawDocumentBuf::new();
        let others = collection.options.iter().filter_map(Result::ok).filter(|(name, _)| name.as_str() != IMAGES);
        others.for_each(|(name, value)| options.append(name, value));
        options.append(bson::cstr!("changeStreamPreAndPostImages"), images);
        description.append(bson::cstr!("changeStreamPreAndPostImages"), images);
        collection.set_options(options);
    }
    let uuid = collection.uuid;
    store.catalog.history.note(namespace, uuid, || Change::Modify { description });
    Ok(RawDocumentBuf::new())
}

/// `shardCollection`: the documents of a cluster stay in one store.
pub(super) fn shard(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["key", "unique", "numInitialChunks", "collation", "presplitHashedZones", "timeseries"])?;
    let full = arguments.required("shardCollection", arguments.string("shardCollection")?)?;
    let key = arguments.required("key", arguments.document("key")?)?;
    if fields(key).next().is_none() {
        return Err(CommandFailure::bad_value("Shard key cannot be empty"));
    }
    let (database, name) = full.split_once('.').unwrap_or((full, ""));
    let namespace = Namespace::new(database, name)?;
    let uuid = store.catalog.get_or_create(namespace)?.uuid;
    let description = document! { "shardKey": key, "unique": arguments.boolean("unique")? };
    store.catalog.history.note(namespace, uuid, || Change::ShardCollection { description });
    Ok(document! { "collectionsharded": full })
}
