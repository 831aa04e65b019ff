//! A shop as a web service: goods are inserted in any number, changed or made, listed page by page, and watched; an order is a transaction.
//! MongoDB has to be a replica set or a sharded cluster.
//!
//! ```sh
//! cargo run -p cmap-tokio --example shop -- mongodb://localhost/ 127.0.0.1:3000
//! curl -N http://127.0.0.1:3000/changes &
//! curl --json '[{ "_id": "apple", "price": 3, "stock": 10 }]' http://127.0.0.1:3000/goods
//! curl --json '{ "price": 4, "stock": 20 }' -X PUT http://127.0.0.1:3000/goods/apple
//! curl --json '{ "good": "apple", "count": 2 }' http://127.0.0.1:3000/orders
//! curl http://127.0.0.1:3000/goods?after=a
//! ```

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, ClientOptions, Error, TransactionOptions, Written};
use futures_util::stream::{Stream, TryStreamExt, unfold};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// For each operation: the wait for a connection, and all retries.
const LIMIT: Duration = Duration::from_secs(5);

/// How long commands that are under way at the end may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before the goods are watched again after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// Goods of a page.
const PAGE: i64 = 20;

/// How many changes a viewer may be behind.
const BACKLOG: usize = 1000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Good {
    #[serde(rename = "_id")]
    name: String,
    price: i64,
    stock: i64,
}

#[derive(Deserialize)]
struct Offer {
    price: i64,
    stock: i64,
}

#[derive(Serialize, Deserialize)]
struct Order {
    good: String,
    count: i64,
}

/// A change of the goods. `full_document` is the good as it is when the server looks it up, unless it was deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    operation_type: String,
    full_document: Option<Good>,
}

/// What all requests share.
pub(crate) struct Shop {
    client: Client,
    changes: Receiver<Change>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mongodb://localhost/".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let client = connect(&uri).await?;
    let (shop, watcher) = open(client.clone());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/goods, /changes, /orders; Ctrl-C ends it", listener.local_addr()?);
    axum::serve(listener, app(shop))
        .with_graceful_shutdown(async move {
            // Without the signal there is no graceful end.
            let _ = tokio::signal::ctrl_c().await;
            // Ends the streams of the viewers, for which the service would wait.
            watcher.abort();
        })
        .await?;
    let cut_off = client.close(PATIENCE).await?;
    println!("closed; {cut_off} connections were still in use");
    Ok(())
}

/// One client for the whole service: its clones share the pools.
pub(crate) async fn connect(uri: &str) -> Result<Client, Box<dyn StdError>> {
    let (mut options, warnings) = ClientOptions::parse(uri)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    options.timeout.get_or_insert(LIMIT);
    Ok(Client::with_options(options).await?)
}

/// The shop, and the task that watches the goods for all viewers: one change stream, so one connection, however many they are.
pub(crate) fn open(client: Client) -> (Shop, JoinHandle<()>) {
    let (viewers, changes) = channel(BACKLOG);
    let watcher = tokio::spawn(watch(client.clone(), viewers));
    (Shop { client, changes }, watcher)
}

/// The service.
pub(crate) fn app(shop: Shop) -> Router {
    Router::new()
        .route("/goods", get(list).post(add))
        .route("/goods/{name}", put(offer))
        .route("/changes", get(changes))
        .route("/orders", post(order))
        .with_state(Arc::new(shop))
}

// What each request does with MongoDB. docs/guide.md has this next to the official driver.

/// Inserts goods, in any number. A good whose name is taken is left as it is. Returns how many were inserted.
async fn insert(client: &Client, goods: Vec<Good>) -> Result<u64, Error> {
    let insert = rawdoc! { "insert": "goods", "ordered": false };
    match client.operation(("shop", insert)).sequence("documents", goods).run().await {
        Ok(result) => Ok(result.inserted),
        Err(error) if error.is_duplicate_key() => Ok(error.written().map_or(0, |result| result.inserted)),
        Err(error) => Err(error.into()),
    }
}

/// Changes a good, or makes it. Returns whether it is new.
async fn upsert(client: &Client, name: &str, offer: &Offer) -> Result<bool, Error> {
    let change = rawdoc! { "$set": { "price": offer.price, "stock": offer.stock } };
    let update = rawdoc! { "q": { "_id": name }, "u": change, "upsert": true };
    let written: Written = client.run(("shop", rawdoc! { "update": "goods", "updates": [update] })).await?.parse()?;
    Ok(!written.upserted.is_empty())
}

/// The page of goods behind a name.
async fn page(client: &Client, after: &str) -> Result<Vec<Good>, Error> {
    let filter = rawdoc! { "_id": { "$gt": after } };
    let find = rawdoc! { "find": "goods", "filter": filter, "sort": { "_id": 1 }, "limit": PAGE };
    client.operation(("shop", find)).cursor().await?.with_type::<Good>().try_collect().await
}

/// Takes goods from the stock and notes the order, or does neither. Returns whether there were enough.
async fn buy(client: &Client, order: Order) -> Result<bool, Error> {
    let mut session = client.start_session()?;
    session
        .with_transaction_on(order, TransactionOptions::default(), LIMIT, async |session, order| {
            let Order { good, count } = &*order;
            let enough = rawdoc! { "_id": good.as_str(), "stock": { "$gte": *count } };
            let take = rawdoc! { "q": enough, "u": { "$inc": { "stock": -count } } };
            let taken = session.run(("shop", rawdoc! { "update": "goods", "updates": [take] })).await?;
            if taken.parse::<Written>()?.n == 0 {
                session.abort_transaction().await?;
                return Ok(false);
            }
            let order = rawdoc! { "good": good.as_str(), "count": *count };
            session.run(("shop", rawdoc! { "insert": "orders", "documents": [order] })).await?;
            Ok(true)
        })
        .await
}

/// Hands each change of the goods to the viewers, up to an error that does not pass.
async fn follow(client: &Client, viewers: &Sender<Change>) -> Result<(), Error> {
    let stage = rawdoc! { "$changeStream": { "fullDocument": "updateLookup" } };
    let watch = rawdoc! { "aggregate": "goods", "pipeline": [stage] };
    let changes = client.operation(("shop", watch)).within(None).watch().await?;
    let mut changes = changes.with_type::<Change>();
    while let Some(change) = changes.try_next().await? {
        // Without viewers nobody misses it.
        let _ = viewers.send(change);
    }
    Ok(())
}

// The handlers.

async fn add(State(shop): State<Arc<Shop>>, Json(goods): Json<Vec<Good>>) -> Result<String, Failure> {
    Ok(format!("{} added\n", insert(&shop.client, goods).await?))
}

async fn offer(
    State(shop): State<Arc<Shop>>,
    Path(name): Path<String>,
    Json(offer): Json<Offer>,
) -> Result<StatusCode, Failure> {
    let is_new = upsert(&shop.client, &name, &offer).await?;
    Ok(if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT })
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    after: String,
}

async fn list(State(shop): State<Arc<Shop>>, Query(place): Query<Place>) -> Result<Json<Vec<Good>>, Failure> {
    Ok(Json(page(&shop.client, &place.after).await?))
}

async fn order(State(shop): State<Arc<Shop>>, Json(order): Json<Order>) -> Result<(StatusCode, &'static str), Failure> {
    if order.count < 1 {
        return Ok((StatusCode::BAD_REQUEST, "the count is below 1\n"));
    }
    let is_sold = buy(&shop.client, order).await?;
    Ok(if is_sold { (StatusCode::CREATED, "sold\n") } else { (StatusCode::CONFLICT, "there are not enough\n") })
}

/// The changes from now on, as server-sent events. A viewer that is too far behind learns that it has missed some, and loads the list anew.
async fn changes(State(shop): State<Arc<Shop>>) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let changes = unfold(shop.changes.resubscribe(), async |mut changes| {
        let event = match changes.recv().await {
            Ok(change) => Event::default().event("change").json_data(change),
            Err(RecvError::Lagged(_)) => Ok(Event::default().event("missed").data("")),
            Err(RecvError::Closed) => return None,
        };
        Some((event, changes))
    });
    Sse::new(changes).keep_alive(KeepAlive::default())
}

/// Watches the goods. The stream goes on by itself after an error that passes; after any other it begins anew.
async fn watch(client: Client, viewers: Sender<Change>) {
    loop {
        if let Err(error) = follow(&client, &viewers).await {
            eprintln!("the goods are watched again in a second: {error}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What failed, as a status: 503 where another attempt may succeed.
struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let may_pass = self.0.is_timeout() || self.0.is_retryable();
        let status = if may_pass { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        (status, format!("{}\n", self.0)).into_response()
    }
}
