//! The status: a page for people, JSON, Prometheus' text, and whether the hub is well.
//!
//! Nothing here waits for upstream, and nothing shows what commands contain.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use cmap_tokio::{ClientStatus, Metrics};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::StartError;
use super::activity::{ActivityReport, CommandLine};
use super::shared::Shared;

/// What the hub is at, at one moment.
#[derive(Serialize)]
struct Report {
    /// Seconds since the start.
    uptime: f64,
    connections: usize,
    most_connections: usize,
    sessions: usize,
    queue: QueueReport,
    users: BTreeMap<Arc<str>, UserReport>,
    #[serde(flatten)]
    activity: ActivityReport,
    upstream: ClientStatus,
}

#[derive(Serialize)]
struct QueueReport {
    running: u32,
    waiting: usize,
    most_waiting: usize,
}

#[derive(Default, Serialize)]
struct UserReport {
    connections: usize,
    waiting: usize,
    commands: u64,
}

/// What the handlers share.
struct Watcher {
    shared: Arc<Shared>,
    exporter: PrometheusHandle,
    metrics: Mutex<Metrics>,
}

/// Serves the status, in a task of `tasks`; returns its address.
pub(super) async fn serve(
    tasks: &mut JoinSet<()>,
    address: SocketAddr,
    shared: Arc<Shared>,
) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Listen { place: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let recorder = PrometheusBuilder::new().build_recorder();
    let exporter = recorder.handle();
    // The first hub of a process has the process's recorder: a program has one hub.
    let _ = metrics::set_global_recorder(recorder);
    let watcher = Arc::new(Watcher { shared, exporter, metrics: Mutex::new(Metrics::new()) });
    let app = Router::new()
        .route("/status", get(page))
        .route("/status.json", get(json))
        .route("/metrics", get(prometheus))
        .route("/healthz", get(health))
        .with_state(watcher);
    tasks.spawn(async move {
        // It ends with the hub.
        let _ = axum::serve(listener, app).await;
    });
    Ok(address)
}

async fn health(State(watcher): State<Arc<Watcher>>) -> (StatusCode, &'static str) {
    let description = watcher.shared.upstream.client.description();
    match description.servers.iter().any(|server| server.server_type.is_data_bearing()) {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no server upstream is known\n"),
    }
}

async fn json(State(watcher): State<Arc<Watcher>>) -> impl IntoResponse {
    let text = serde_json::to_string_pretty(&Report::take(&watcher.shared)).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

async fn page(State(watcher): State<Arc<Watcher>>) -> Html<String> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = Report::take(&watcher.shared).write_page(&mut text);
    Html(text)
}

async fn prometheus(State(watcher): State<Arc<Watcher>>) -> String {
    let report = Report::take(&watcher.shared);
    let counts = report.activity.counts;
    for (name, value) in [
        ("cmap_hub_commands", counts.commands),
        ("cmap_hub_commands_failed", counts.failed),
        ("cmap_hub_commands_cut_off", counts.cut_off),
        ("cmap_hub_retries", counts.retries),
        ("cmap_hub_overloads", counts.overloads),
        ("cmap_hub_refused", counts.refused),
        ("cmap_hub_failed_logins", counts.failed_logins),
        ("cmap_hub_turned_away", counts.turned_away),
    ] {
        metrics::counter!(name).absolute(value);
    }
    for (name, value) in [
        ("cmap_hub_connections", report.connections),
        ("cmap_hub_sessions", report.sessions),
        ("cmap_hub_waiting", report.queue.waiting),
        ("cmap_hub_running", report.queue.running as usize),
    ] {
        metrics::gauge!(name).set(f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
    }
    watcher.metrics.lock().unwrap_or_else(PoisonError::into_inner).record(&watcher.shared.upstream.client);
    watcher.exporter.run_upkeep();
    watcher.exporter.render()
}

impl Report {
    fn take(shared: &Shared) -> Self {
        let (depth, activity) = (shared.gate.depth(), shared.activity.report(shared.now()));
        let mut users: BTreeMap<Arc<str>, UserReport> = BTreeMap::new();
        for (user, connections) in shared.connections_of_users() {
            users.entry(user).or_default().connections = connections;
        }
        for (user, commands) in &activity.commands_of_user {
            users.entry(Arc::clone(user)).or_default().commands = *commands;
        }
        for (user, report) in &mut users {
            report.waiting = shared.gate.waiting_of(user);
        }
        Self {
            uptime: shared.uptime().as_secs_f64(),
            connections: shared.connections(),
            most_connections: shared.most_connections(),
            sessions: shared.sessions(),
            queue: QueueReport { running: depth.running, waiting: depth.waiting, most_waiting: depth.most_waiting },
            users,
            activity,
            upstream: shared.upstream.client.status(),
        }
    }

    fn write_page(&self, text: &mut String) -> core::fmt::Result {
        text.push_str(HEAD);
        let Self { uptime, connections, most_connections, sessions, queue, users, activity, upstream } = self;
        let QueueReport { running, waiting, most_waiting } = queue;
        writeln!(
            text,
            "<p>Up for {uptime:.0} s. {connections} clients (at most {most_connections}), {sessions} sessions. {running} commands \
             run, {waiting} wait (at most {most_waiting}).</p>"
        )?;
        let counts = activity.counts;
        writeln!(
            text,
            "<p>{} commands, {} failed, {} cut off, {} retries, {} overloads, {} refused, {} failed logins, {} turned away.</p>",
            counts.commands,
            counts.failed,
            counts.cut_off,
            counts.retries,
            counts.overloads,
            counts.refused,
            counts.failed_logins,
            counts.turned_away,
        )?;
        writeln!(text, "<h2>Users</h2><table><tr><th>user<th>clients<th>waiting<th>commands")?;
        for (user, report) in users {
            let UserReport { connections, waiting, commands } = report;
            writeln!(text, "<tr><td>{}<td>{connections}<td>{waiting}<td>{commands}", escaped(user))?;
        }
        writeln!(text, "</table>")?;
        write_commands(text, "Running", &activity.running)?;
        write_commands(text, "Slowest", &activity.slowest)?;
        writeln!(text, "<h2>Upstream</h2><pre>{}</pre>", escaped(&upstream.to_string()))
    }
}

fn write_commands(text: &mut String, title: &str, commands: &[CommandLine]) -> core::fmt::Result {
    writeln!(text, "<h2>{title}</h2><table><tr><th>user<th>database<th>command<th>seconds<th>server")?;
    for CommandLine { user, database, command, took, server } in commands.iter().take(100) {
        let (user, database, command) = (escaped(user), escaped(database), escaped(command));
        let server = escaped(server.as_deref().unwrap_or_default());
        writeln!(text, "<tr><td>{user}<td>{database}<td>{command}<td>{took:.3}<td>{server}")?;
    }
    writeln!(text, "</table>")
}

/// Text from clients, as text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>cmap-hub</title>\
<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}</style>\
<h1>cmap-hub</h1>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_write_is_shown_as_text() {
        assert_eq!(escaped("<script src=\"x\">&"), "&lt;script src=&quot;x&quot;&gt;&amp;");
    }
}
