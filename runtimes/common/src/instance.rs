//! What programs call of a client, instantiated once in the crate of each adapter.
//!
//! A build without optimisation shares the instances of generic functions that the crates before it have. With those of the driver in its
//! adapter, whatever is built on the adapter, programs, tests and examples, is built in a quarter of the time.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bson::{Document, doc};
use cmap_core::pool::Purpose;
use cmap_core::session::TransactionOptions;
use cmap_core::topology::ServerSelector;

use crate::{Client, Error as AnyError, Pool, Runtime, Session};

/// An adapter has a pointer of this type to [`live`] with its runtime. Nothing calls it.
pub type Life = fn(&'static str) -> Living;

/// What [`live`] returns.
pub type Living = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>> + Send>>;

/// The life of a client and of a pool, with each kind of call.
///
/// # Errors
/// Those of the calls.
pub fn live<R: Runtime>(uri: &'static str) -> Living {
    Box::pin(async move {
        let client = Client::<R>::connect(uri).await?;
        let mut events = client.subscribe(1);
        client.warm_up(1, Duration::ZERO).await?;

        let mut connection = client.check_out_for(ServerSelector::Writable).await?;
        connection.run_command("db", doc! { "ping": 1 }).await?;
        connection.exchange(ping()).await?;
        connection.next_reply().await?;
        drop(connection.pin(Purpose::Other));
        client.run(ping()).await?;
        client.operation(ping()).run_held().await?;
        client.operation(ping()).sequence("documents", [doc! {}]).run().await?;
        let mut cursor = client.operation(find()).cursor().await?;
        cursor.try_next().await?;
        cursor.close().await;
        let mut stream = client.operation(find()).watch().await?;
        stream.next_if_any().await?;

        let mut session = client.start_session()?;
        session.start_transaction()?;
        session.run(ping()).await?;
        session.commit_transaction().await?;
        session.abort_transaction().await?;
        let run = async |session: &mut Session<R>, (): &mut ()| -> Result<(), AnyError> {
            session.run(ping()).await?;
            Ok(())
        };
        session.with_transaction_on((), TransactionOptions::default(), Duration::ZERO, run).await?;
        let mut cursor = session.operation(find()).cursor().await?;
        cursor.try_next(&mut session).await?;
        cursor.close(&mut session).await;

        client.set_credential(None).await?;
        drop((events.next().await, client.status(), client.statistics()));
        client.close(Duration::ZERO).await?;
        let pool = Pool::<R>::builder(client.options().clone()).build().await?;
        pool.ready();
        pool.warm_up(1, Duration::ZERO).await?;
        drop(pool.check_out().await?);
        pool.closed(Duration::ZERO).await?;
        Ok(())
    })
}

fn ping() -> (&'static str, Document) {
    ("db", doc! { "ping": 1 })
}

fn find() -> (&'static str, Document) {
    ("db", doc! { "find": "items" })
}
