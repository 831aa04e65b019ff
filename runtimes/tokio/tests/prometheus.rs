//! The example `prometheus`, scraped.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/prometheus.rs"]
mod prometheus;

use cmap_conformance::LocalServer;

#[tokio::test]
async fn a_scrape_has_the_names_of_opentelemetry() {
    let server = LocalServer::start();
    let exporter = prometheus::install().unwrap();

    let text = prometheus::figures(&server.uri("maxPoolSize=7"), &exporter).await.unwrap();

    // Prometheus has no dots in names.
    let pool = format!("db_client_connection_pool_name=\"{}\"", server.uri("").split('/').nth(2).unwrap());
    for line in [
        format!("db_client_connection_count{{{pool},db_client_connection_state=\"used\"}} 1"),
        format!("db_client_connection_count{{{pool},db_client_connection_state=\"idle\"}} 0"),
        format!("db_client_connection_max{{{pool}}} 7"),
        format!("db_client_connection_idle_max{{{pool}}} 7"),
        format!("db_client_connection_idle_min{{{pool}}} 0"),
        format!("db_client_connection_pending_requests{{{pool}}} 0"),
        format!("db_client_connection_timeouts{{{pool}}} 0"),
        format!("db_client_connection_create_time_count{{{pool}}} 1"),
        format!("db_client_connection_wait_time_count{{{pool}}} 11"),
        format!("db_client_connection_use_time_count{{{pool}}} 10"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
}
