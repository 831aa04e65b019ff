//! The example `shop`, asked over HTTP.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

mod http;
#[path = "../examples/shop.rs"]
mod shop;

use std::cell::Cell;
use std::net::SocketAddr;

use cmap_conformance::{LocalServer, Setup};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use http::{get, request};

/// The service on the only member of a replica set.
struct Service {
    server: LocalServer,
    address: SocketAddr,
    watcher: JoinHandle<()>,
}

impl Service {
    async fn start() -> Self {
        let server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
        let client = shop::connect(&server.uri("directConnection=true")).await.unwrap();
        let (shop, watcher) = shop::open(client);
        Self { server, address: http::serve(shop::app(shop)).await, watcher }
    }

    async fn add(&self, goods: &str) -> (u16, String) {
        request(self.address, "POST", "/goods", goods).await
    }

    /// Changes "apple".
    async fn offer(&self, price: i64, stock: i64) -> (u16, String) {
        let offer = format!(r#"{{"price":{price},"stock":{stock}}}"#);
        request(self.address, "PUT", "/goods/apple", &offer).await
    }

    async fn order(&self, order: &str) -> (u16, String) {
        request(self.address, "POST", "/orders", order).await
    }

    async fn list(&self, query: &str) -> String {
        get(self.address, &format!("/goods?{query}")).await.1
    }
}

const APPLE: &str = r#"{"_id":"apple","price":3,"stock":10}"#;
const PEAR: &str = r#"{"_id":"pear","price":4,"stock":1}"#;

#[tokio::test]
async fn goods_are_added_unless_their_names_are_taken() {
    let service = Service::start().await;

    assert_eq!(service.add(&format!("[{APPLE}]")).await, (200, "1 added\n".into()));
    assert_eq!(service.add(&format!("[{PEAR},{APPLE}]")).await, (200, "1 added\n".into()));

    assert_eq!(service.list("").await, format!("[{APPLE},{PEAR}]"));
}

#[tokio::test]
async fn an_offer_makes_a_good_and_then_changes_it() {
    let service = Service::start().await;

    assert_eq!(service.offer(5, 1).await.0, 201);
    assert_eq!(service.offer(3, 10).await.0, 204);

    assert_eq!(service.list("").await, format!("[{APPLE}]"));
}

#[tokio::test]
async fn goods_are_listed_page_by_page() {
    let service = Service::start().await;
    let goods: Vec<_> = (10..40).map(|name| format!(r#"{{"_id":"{name}","price":1,"stock":1}}"#)).collect();
    service.add(&format!("[{}]", goods.join(","))).await;

    assert_eq!(service.list("").await, format!("[{}]", goods[..20].join(",")));
    assert_eq!(service.list("after=29").await, format!("[{}]", goods[20..].join(",")));
}

#[tokio::test]
async fn an_order_takes_from_the_stock_unless_there_is_not_enough() {
    let service = Service::start().await;
    service.add(&format!("[{APPLE}]")).await;

    assert_eq!(service.order(r#"{"good":"apple","count":8}"#).await, (201, "sold\n".into()));
    assert_eq!(service.order(r#"{"good":"apple","count":8}"#).await, (409, "there are not enough\n".into()));
    assert_eq!(service.order(r#"{"good":"pear","count":1}"#).await.0, 409);
    assert_eq!(service.order(r#"{"good":"apple","count":-1}"#).await.0, 400);

    assert_eq!(service.list("").await, r#"[{"_id":"apple","price":3,"stock":2}]"#);
}

#[tokio::test]
async fn a_viewer_sees_the_changes_until_the_service_ends() {
    let service = Service::start().await;
    let mut viewer = BufReader::new(http::send(service.address, "GET", "/changes", "").await);

    // The first ones may come before the watcher.
    let is_watching = Cell::new(false);
    let offers = async {
        let mut price = 1;
        while !is_watching.get() {
            service.offer(price, 10).await;
            price += 1;
        }
        price
    };
    let first = async {
        next_price(&mut viewer).await;
        is_watching.set(true);
    };
    let (last, ()) = tokio::join!(offers, first);
    service.offer(last, 10).await;

    // A change shows its good as it is when the server looks it up, so prices may be skipped, but never the last one.
    while next_price(&mut viewer).await != last {}
    service.watcher.abort();
    viewer.read_to_end(&mut Vec::new()).await.unwrap();
}

/// The price in the next change.
async fn next_price(viewer: &mut BufReader<TcpStream>) -> i64 {
    loop {
        let mut line = String::new();
        viewer.read_line(&mut line).await.unwrap();
        if let Some(json) = line.strip_prefix("data: ") {
            let (_, price) = json.split_once(r#""price":"#).unwrap();
            return price.split_once(',').unwrap().0.parse().unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_503() {
    // Nothing listens at port 1.
    let client = shop::connect("mongodb://127.0.0.1:1/?timeoutMS=200").await.unwrap();
    let address = http::serve(shop::app(shop::open(client).0)).await;

    let (status, text) = get(address, "/goods").await;

    assert!(status == 503 && text.contains("127.0.0.1:1 is Unknown (connecting failed"), "{status} {text}");
}
