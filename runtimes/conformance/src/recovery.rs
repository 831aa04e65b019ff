//! The end of every fault: the client works again, without help, and how long that took.

use bson::rawdoc;
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::{assert_nothing_lost, yield_now};

/// Waits until the client works again after `fault`, and prints how long that took. Its users may see errors meanwhile.
pub(super) async fn recovered<R: Runtime>(fault: &str, client: &Client<R>) {
    let runtime = R::current().unwrap();
    let start = runtime.now();
    loop {
        if let Ok(mut connection) = client.check_out().await
            && connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok()
        {
            break;
        }
        yield_now().await;
    }
    println!("recovered from {fault} in {} ms", (runtime.now() - start).as_millis());
    // Other connections of the test may still be in use.
    if client.stats().counts.in_use == 0 {
        assert_nothing_lost(client);
    }
}
