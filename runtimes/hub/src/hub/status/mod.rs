//! The status: a page for people, JSON, Prometheus' text, and whether the hub is well.
//!
//! | file | content |
//! |---|---|
//! | `report` | what the hub is at, and what has changed since an earlier look |
//! | `page` | the same for people |
//!
//! Nothing here waits for upstream, and nothing shows what commands contain.

mod page;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use cmap_tokio::Metrics;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tokio::task::JoinSet;

use super::activity::Reason;
use super::error::StartError;
use super::shared::Shared;
use super::sockets::Socket;
use super::stage::Stage;
use super::track::Phase;
pub(super) use report::Report;

/// What the handlers share.
struct Watcher {
    shared: Arc<Shared>,
    /// The hub's own, since a process may have several hubs, or a recorder for other things.
    recorder: PrometheusRecorder,
    metrics: Mutex<Metrics>,
}

/// Serves the status, in a task of `tasks`, until that is aborted; returns its address.
pub(super) fn serve(
    tasks: &mut JoinSet<()>,
    address: SocketAddr,
    socket: Socket,
    shared: Arc<Shared>,
) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Listen { place: address.to_string(), source };
    let listener = match socket {
        Socket::Tcp(listener) => listener,
        #[cfg(unix)]
        Socket::Unix(_) => return Err(failed(std::io::ErrorKind::InvalidInput.into())),
    };
    let address = listener.local_addr().map_err(failed)?;
    let mut succeeded = shared.succeeded.subscribe();
    let recorder = PrometheusBuilder::new().build_recorder();
    let watcher = Arc::new(Watcher { shared, recorder, metrics: Mutex::new(Metrics::new()) });
    let app = Router::new()
        .route("/status", get(status))
        .route("/status.json", get(json))
        .route("/metrics", get(prometheus))
        .route("/healthz", get(health))
        .with_state(watcher);
    tasks.spawn(async move {
        // Who has a connection to it would have the answers of a hub that drains, and not those of the one that follows.
        let is_followed = async move {
            // The sender is in `shared`.
            let _ = succeeded.wait_for(|is_so| *is_so).await;
        };
        // It only ends by an error of the listener otherwise.
        let _ = axum::serve(listener, app).with_graceful_shutdown(is_followed).await;
    });
    Ok(address)
}

async fn health(State(watcher): State<Arc<Watcher>>) -> (StatusCode, &'static str) {
    if *watcher.shared.stage().borrow() != Stage::Open {
        return (StatusCode::SERVICE_UNAVAILABLE, "the hub ends\n");
    }
    let description = watcher.shared.upstream.client.description();
    match description.servers.iter().any(|server| server.server_type.is_data_bearing()) {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no server upstream is known\n"),
    }
}

/// The page, or JSON for those who accept that and no page.
async fn status(State(watcher): State<Arc<Watcher>>, uri: Uri, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("application/json") && !accepts.contains("text/html") {
        return json(State(watcher), uri).await;
    }
    match Report::look(&watcher.shared, uri.query()) {
        Ok(report) => Html(page::of(&report)).into_response(),
        Err(gone) => (StatusCode::GONE, gone.to_string()).into_response(),
    }
}

async fn json(State(watcher): State<Arc<Watcher>>, uri: Uri) -> Response {
    let (status, text) = match Report::look(&watcher.shared, uri.query()) {
        Ok(report) => (StatusCode::OK, serde_json::to_string_pretty(&report)),
        Err(gone) => {
            (StatusCode::GONE, serde_json::to_string_pretty(&serde_json::json!({ "error": gone.to_string() })))
        }
    };
    (status, [(header::CONTENT_TYPE, "application/json")], text.unwrap_or_default()).into_response()
}

async fn prometheus(State(watcher): State<Arc<Watcher>>) -> String {
    metrics::with_local_recorder(&watcher.recorder, || record(&watcher));
    let exporter = watcher.recorder.handle();
    exporter.run_upkeep();
    exporter.render() + &watcher.shared.activity.histograms()
}

/// Tells the recorder of this thread what the hub has counted.
fn record(watcher: &Watcher) {
    let report = Report::take(&watcher.shared);
    let counts = report.activity.counts;
    for (name, help, value) in [
        ("cmap_hub_commands", "Commands that have begun.", counts.commands),
        ("cmap_hub_commands_failed", "Commands that have failed.", counts.failed),
        ("cmap_hub_commands_cut_off", "Commands whose client has gone, or that were killed.", counts.cut_off),
        ("cmap_hub_retries", "How often the hub has repeated a command.", counts.retries),
        ("cmap_hub_overloads", "Commands for which drivers were asked to back off.", counts.overloads),
        ("cmap_hub_refused", "Commands and logins that were refused.", counts.refused),
        ("cmap_hub_failed_logins", "Logins that have failed.", counts.failed_logins),
        ("cmap_hub_turned_away", "Connections that were one too many.", counts.turned_away),
    ] {
        metrics::describe_counter!(name, help);
        metrics::counter!(name).absolute(value);
    }
    let commands = report.activity.running.len();
    let waiting = report.activity.running.iter().filter(|line| matches!(line.at, Phase::Queue | Phase::Pool)).count();
    metrics::describe_gauge!("cmap_hub_connections", "Clients, by what they are at.");
    for (state, value) in [
        ("stranger", report.strangers),
        ("idle", report.connections.saturating_sub(report.strangers + commands)),
        ("running", commands - waiting),
        ("waiting", waiting),
    ] {
        metrics::gauge!("cmap_hub_connections", "state" => state).set(count(value));
    }
    let servers = &watcher.shared.upstream.client.description().servers;
    let usable = servers.iter().filter(|server| server.server_type.is_data_bearing()).count();
    metrics::describe_gauge!("cmap_hub_servers", "Servers upstream that can be used.");
    metrics::gauge!("cmap_hub_servers").set(count(usable));
    metrics::describe_gauge!("cmap_hub_build_info", "1, with the version.");
    metrics::gauge!("cmap_hub_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    for (name, help, value) in [
        ("cmap_hub_sessions", "Sessions that are known.", report.sessions),
        ("cmap_hub_waiting", "Commands that wait for their turn or for a server.", report.queue.waiting),
        ("cmap_hub_running", "Commands that have a place.", report.queue.running),
        ("cmap_hub_waiting_bytes", "Bytes of the commands that wait.", report.queue.waiting_bytes),
    ] {
        metrics::describe_gauge!(name, help);
        metrics::gauge!(name).set(count(value));
    }
    metrics::describe_gauge!("cmap_hub_memory_bytes", "Bytes of clients that are held, and the budget for them.");
    for (what, bytes) in [("held", report.memory.held), ("budget", report.memory.budget)] {
        metrics::gauge!("cmap_hub_memory_bytes", "use" => what).set(bytes as f64);
    }
    metrics::describe_counter!("cmap_hub_commands_total", "Commands that have ended, by user and outcome.");
    for (user, counts) in report.activity.of_user {
        let user = user.to_string();
        for (outcome, count) in [("ok", counts.ok), ("failed", counts.failed), ("cut-off", counts.cut_off)] {
            metrics::counter!("cmap_hub_commands_total", "user" => user.clone(), "outcome" => outcome).absolute(count);
        }
    }
    metrics::describe_counter!("cmap_hub_refused_total", "Commands that were refused, by user and reason.");
    // A counter that appears with its first refusal has not increased by it.
    let users = watcher.shared.users();
    let none = users.all().map(|user| &user.name).chain(report.users.keys());
    let mut refused: BTreeMap<_, _> =
        none.flat_map(|user| Reason::ALL.map(|reason| ((Arc::clone(user), reason), 0))).collect();
    refused.extend(report.activity.refused);
    for ((user, reason), count) in refused {
        metrics::counter!("cmap_hub_refused_total", "user" => user.to_string(), "reason" => reason.name())
            .absolute(count);
    }
    watcher.metrics.lock().unwrap_or_else(PoisonError::into_inner).record(&watcher.shared.upstream.client);
}

fn count(value: usize) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}
