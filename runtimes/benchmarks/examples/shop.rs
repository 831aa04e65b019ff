//! What the requests of the shop (`runtimes/tokio/examples/shop.rs`) do with MongoDB, on the official driver. docs/guide.md shows both.

#![allow(dead_code, missing_docs, reason = "there is no service here that calls these functions")]

use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::doc;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::FullDocumentType;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Sender;

/// Goods of a page.
const PAGE: i64 = 20;

/// The code of a key that a unique index has already.
const DUPLICATE_KEY: i32 = 11000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Good {
    #[serde(rename = "_id")]
    name: String,
    price: i64,
    stock: i64,
}

struct Offer {
    price: i64,
    stock: i64,
}

#[derive(Serialize)]
struct Order {
    good: String,
    count: i64,
}

type Change = ChangeStreamEvent<Good>;

fn main() {}

/// Inserts goods, in any number. A good whose name is taken is left as it is. Returns how many were inserted.
async fn insert(shop: &Database, goods: Vec<Good>) -> Result<usize, Error> {
    let (collection, count) = (shop.collection::<Good>("goods"), goods.len());
    let Err(error) = collection.insert_many(goods).ordered(false).await else { return Ok(count) };
    let ErrorKind::InsertMany(failure) = &*error.kind else { return Err(error) };
    let errors = failure.write_errors.as_deref().unwrap_or_default();
    let is_taken = errors.iter().all(|error| error.code == DUPLICATE_KEY);
    if is_taken && failure.write_concern_error.is_none() { Ok(count - errors.len()) } else { Err(error) }
}

/// Changes a good, or makes it. Returns whether it is new.
async fn upsert(shop: &Database, name: &str, offer: &Offer) -> Result<bool, Error> {
    let change = doc! { "$set": { "price": offer.price, "stock": offer.stock } };
    let goods = shop.collection::<Good>("goods");
    let result = goods.update_one(doc! { "_id": name }, change).upsert(true).await?;
    Ok(result.upserted_id.is_some())
}

/// The page of goods behind a name.
async fn page(shop: &Database, after: &str) -> Result<Vec<Good>, Error> {
    let filter = doc! { "_id": { "$gt": after } };
    let goods = shop.collection::<Good>("goods");
    goods.find(filter).sort(doc! { "_id": 1 }).limit(PAGE).await?.try_collect().await
}

/// Takes goods from the stock and notes the order, or does neither. Returns whether there were enough.
async fn buy(shop: &Database, order: Order) -> Result<bool, Error> {
    let (goods, orders) = (shop.collection::<Good>("goods"), shop.collection::<Order>("orders"));
    let mut session = shop.client().start_session().await?;
    session
        .start_transaction()
        .and_run2(async move |session| {
            let enough = doc! { "_id": &order.good, "stock": { "$gte": order.count } };
            let take = doc! { "$inc": { "stock": -order.count } };
            let taken = goods.update_one(enough, take).session(&mut *session).await?;
            if taken.matched_count == 0 {
                session.abort_transaction().await?;
                return Ok(false);
            }
            orders.insert_one(&order).session(session).await?;
            Ok(true)
        })
        .await
}

/// Hands each change of the goods to the viewers, up to an error that does not pass.
async fn follow(shop: &Database, viewers: &Sender<Change>) -> Result<(), Error> {
    let goods = shop.collection::<Good>("goods");
    let mut changes = goods.watch().full_document(FullDocumentType::UpdateLookup).await?;
    while let Some(change) = changes.try_next().await? {
        // Without viewers nobody misses it.
        let _ = viewers.send(change);
    }
    Ok(())
}
