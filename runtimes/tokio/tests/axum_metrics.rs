//! The example `axum-metrics`, asked over HTTP.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/axum-metrics.rs"]
mod axum_metrics;
mod http;

use cmap_conformance::LocalServer;

use http::get;

/// The service for this server; the address that it listens at.
async fn serve(uri: &str) -> std::net::SocketAddr {
    http::serve(axum_metrics::app(axum_metrics::connect(uri).await.unwrap())).await
}

#[tokio::test]
async fn visitors_are_counted_and_the_pools_figures_are_shown() {
    let server = LocalServer::start();
    let address = serve(&server.uri("")).await;

    assert_eq!(get(address, "/").await, (200, "you are visitor 1\n".into()));
    assert_eq!(get(address, "/").await, (200, "you are visitor 2\n".into()));

    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "cmap_connections{state=\"available\"} 1",
        "cmap_connections{state=\"in_use\"} 0",
        "cmap_check_outs_total{outcome=\"checked_out\"} 2",
        "cmap_connections_created_total 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_503_and_the_figures_are_shown_all_the_same() {
    // Nothing listens at port 1.
    let address = serve("mongodb://127.0.0.1:1/?timeoutMS=200").await;

    let (status, text) = get(address, "/").await;

    assert!(status == 503 && text.contains("127.0.0.1:1 is Unknown (connecting failed"), "{status} {text}");
    assert_eq!(get(address, "/metrics").await.0, 200);
}
