//! A client whose pools Prometheus watches, by OpenTelemetry's names (feature `metrics`).
//!
//! ```sh
//! cargo run -p cmap-tokio --example prometheus -- mongodb://localhost/
//! ```
//!
//! It prints what a scrape would get. A service answers requests for `/metrics` with the same text.

use std::error::Error;
use std::time::Duration;

use cmap_runtime::Metrics;
use cmap_tokio::Client;
use cmap_tokio::ClientOptions;
use cmap_tokio::bson::rawdoc;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The buckets of waits, establishments and uses, in seconds.
const BUCKETS: [f64; 6] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5];

/// How long a connection may be used before somebody should know.
const SLOW: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost/".into());
    let exporter = install()?;
    print!("{}", figures(&uri, &exporter).await?);
    Ok(())
}

/// Makes Prometheus' recorder the one of this process. It listens nowhere: the text is had from the handle.
pub(crate) fn install() -> Result<PrometheusHandle, Box<dyn Error>> {
    let times = Matcher::Suffix("_time".into());
    Ok(PrometheusBuilder::new().set_buckets_for_metric(times, &BUCKETS)?.install_recorder()?)
}

/// Works with the server a little, and returns what is scraped after that.
pub(crate) async fn figures(uri: &str, exporter: &PrometheusHandle) -> Result<String, Box<dyn Error>> {
    let (options, warnings) = ClientOptions::parse(uri)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    // Without holders there are no durations.
    let client: Client = Client::builder(options).watch_holders(true).leak_detection_threshold(SLOW).build().await?;
    let mut metrics = Metrics::new();
    for _ in 0..10 {
        client.check_out().await?.run_command("admin", rawdoc! { "ping": 1 }).await?;
    }
    let kept = client.check_out().await?;
    // Before each scrape: the figures are those of this moment.
    metrics.record(&client);
    let text = exporter.render();
    drop(kept);
    client.close(Duration::from_secs(5)).await?;
    Ok(text)
}
