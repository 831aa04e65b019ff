//! The example `axum-metrics`, asked over HTTP.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/axum-metrics.rs"]
mod axum_metrics;

use cmap_conformance::LocalServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The service for this server; the address that it listens at.
async fn serve(uri: &str) -> std::net::SocketAddr {
    let app = axum_metrics::app(axum_metrics::connect(uri).await.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The status and the body of a page.
async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
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
