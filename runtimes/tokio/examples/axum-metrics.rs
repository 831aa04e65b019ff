//! A web service with one client for all requests, which counts its visitors in MongoDB and shows the pool's figures to Prometheus.
//!
//! ```sh
//! cargo run -p cmap-tokio --example axum-metrics -- mongodb://localhost/ 127.0.0.1:3000
//! curl http://127.0.0.1:3000/ http://127.0.0.1:3000/metrics
//! ```

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use cmap_tokio::ClientOptions;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, Error as ClientError};
use tokio::net::TcpListener;

/// For each request: the wait for a connection, and the command. A connection string with timeoutMS has its own.
const LIMIT: Duration = Duration::from_secs(2);

/// How long commands that are under way at the end may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mongodb://localhost/".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let client = connect(&uri).await?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/ and /metrics; Ctrl-C ends it", listener.local_addr()?);
    axum::serve(listener, app(client.clone()))
        .with_graceful_shutdown(async {
            // Without the signal there is no graceful end.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    let cut_off = client.close(PATIENCE).await?;
    println!("closed; {cut_off} connections were still in use");
    Ok(())
}

/// One client for the whole service: its clones share a pool.
pub(crate) async fn connect(uri: &str) -> Result<Client, Box<dyn Error>> {
    let (mut options, warnings) = ClientOptions::parse(uri)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    options.timeout.get_or_insert(LIMIT);
    Ok(Client::with_options(options).await?)
}

/// The service.
pub(crate) fn app(client: Client) -> Router {
    Router::new().route("/", get(visit)).route("/metrics", get(metrics)).with_state(client)
}

/// Counts a visitor. A client that hangs up drops this future, and the pool stays correct.
async fn visit(State(client): State<Client>) -> Result<String, (StatusCode, String)> {
    let count = count_visitor(&client).await.map_err(|error| {
        let status = match &error {
            error if error.is_timeout() || error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{error}\n"))
    })?;
    Ok(format!("you are visitor {count}\n"))
}

async fn count_visitor(client: &Client) -> Result<i32, ClientError> {
    let mut connection = client.check_out().await?;
    let command = rawdoc! {
        "findAndModify": "visitors", "query": { "_id": 1 }, "update": { "$inc": { "count": 1 } }, "upsert": true, "new": true,
    };
    let reply = connection.run_command("web", command).await?;
    Ok(reply.get_document("value").and_then(|value| value.get_i32("count")).unwrap_or_default())
}

/// The pool's figures in Prometheus' text format. Nothing is awaited: they can be read while the server is down.
async fn metrics(State(client): State<Client>) -> String {
    let stats = client.stats();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(&str, u64)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let counts = stats.counts;
    metric(
        "cmap_connections",
        "gauge",
        "Connections by state.",
        &[
            ("{state=\"pending\"}", counts.pending.into()),
            ("{state=\"available\"}", counts.available.into()),
            ("{state=\"in_use\"}", counts.in_use.into()),
        ],
    );
    metric("cmap_waiting", "gauge", "Check-outs that wait for a connection.", &[("", counts.waiting.into())]);
    metric("cmap_waiting_high_water", "gauge", "The most that ever waited.", &[("", stats.high_water.waiting.into())]);
    metric(
        "cmap_check_outs_total",
        "counter",
        "Check-outs by outcome.",
        &[
            ("{outcome=\"checked_out\"}", stats.checked_out),
            ("{outcome=\"timeout\"}", stats.check_outs_failed.timeout),
            ("{outcome=\"connection_error\"}", stats.check_outs_failed.connection_error),
            ("{outcome=\"pool_closed\"}", stats.check_outs_failed.pool_closed),
        ],
    );
    metric("cmap_connections_created_total", "counter", "Connections created.", &[("", stats.created)]);
    metric(
        "cmap_connections_closed_total",
        "counter",
        "Connections closed by reason.",
        &[
            ("{reason=\"stale\"}", stats.closed.stale),
            ("{reason=\"idle\"}", stats.closed.idle),
            ("{reason=\"error\"}", stats.closed.error),
        ],
    );
    metric("cmap_cleared_total", "counter", "Times that an error cleared the pool.", &[("", stats.cleared)]);
    text
}
