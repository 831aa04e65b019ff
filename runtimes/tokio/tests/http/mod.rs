//! A service of an example, and requests to it over HTTP.

#![allow(dead_code, reason = "each test program has its own choice of these")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Runs a service; returns its address.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The status and the body of a page.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    request(address, "GET", path, "").await
}

/// The status and the body of the response to a request with a body of JSON.
pub(crate) async fn request(address: SocketAddr, method: &str, path: &str, json: &str) -> (u16, String) {
    let mut socket = send(address, method, path, json).await;
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Sends a request; the response is still to be read.
pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, json: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let length = json.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(format!("{head}{json}").as_bytes()).await.unwrap();
    socket
}
