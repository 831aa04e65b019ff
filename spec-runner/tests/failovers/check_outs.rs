//! No check-out ends in an error while its time lasts, whatever happens to the primary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cmap_runtime::bson::rawdoc;
use cmap_runtime::{Client, Runtime};

use super::links::Linked;
use super::{Members, Tally, on_tokio, pause, through_failovers};

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=60000";

#[test]
fn no_check_out_ends_in_an_error_on_tokio() {
    on_tokio(check_out_through_failovers::<cmap_tokio::Tokio>());
}

#[test]
fn no_check_out_ends_in_an_error_on_smol() {
    smol::block_on(check_out_through_failovers::<cmap_smol::Smol>());
}

#[test]
fn no_check_out_ends_in_an_error_on_async_std() {
    // async-std has threads of its own.
    smol::block_on(check_out_through_failovers::<cmap_async_std::AsyncStd>());
}

async fn check_out_through_failovers<R: Runtime>() {
    let members = Members::start(env!("CARGO_BIN_EXE_spec-runner"));
    let client = Client::<Linked<R>>::connect(&members.uri(OPTIONS)).await.unwrap();
    let tally = Arc::new(Tally::default());

    through_failovers(&members, &client, &tally, |client, _, tally| ping(client, tally)).await;

    client.close(Duration::from_secs(20)).await.unwrap();
}

/// Uses the primary again and again. Commands may fail, because their connections are lost; check-outs may not.
async fn ping<R: Runtime>(client: Client<R>, tally: Arc<Tally>) {
    let runtime = R::current().unwrap();
    while !tally.is_over.load(Ordering::SeqCst) {
        match client.check_out().await {
            Ok(mut connection) => {
                let is_answered = connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok();
                tally.served.fetch_add(usize::from(is_answered), Ordering::SeqCst);
            }
            Err(error) => tally.errors.lock().unwrap().push(error.to_string()),
        }
        pause(&runtime, Duration::from_millis(10)).await;
    }
    tally.running.fetch_sub(1, Ordering::SeqCst);
}
