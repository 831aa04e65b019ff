//! The status as a page.

use core::cmp::Reverse;
use core::fmt::{Result, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::activity::{CommandLine, Counts, UserCounts};
use super::super::failures::FailureLine;
use super::super::history::{Difference, Marks};
use super::super::track::Times;
use super::report::{AgentReport, MemoryReport, QueueReport, Report, UserReport};

/// How many commands a list shows.
const SHOWN: usize = 100;

/// After how many seconds the page looks again.
const AGAIN: u32 = 5;

/// The page of a report. It looks again by itself, unless it shows what has changed since some look: that is to be read.
pub(super) fn of(report: &Report) -> String {
    let mut text = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = write_page(&mut text, report);
    text
}

fn write_page(text: &mut String, report: &Report) -> Result {
    if let (Some(snapshot), None) = (report.snapshot, &report.difference) {
        writeln!(text, "<meta http-equiv=refresh content=\"{AGAIN};url=/status?from={snapshot}\">")?;
    }
    writeln!(text, "<h1>cmap-hub</h1>")?;
    let Report { uptime, connections, most_connections, strangers, sessions, queue, users, .. } = report;
    let Report { memory, activity, agents, upstream, .. } = report;
    let QueueReport { paused, running, most_running, waiting, most_waiting, waiting_bytes, most_waiting_bytes } = queue;
    writeln!(
        text,
        "<p>Up for {uptime:.0} s. {connections} clients (at most {most_connections}), {strangers} of them not logged in, {sessions} sessions. {running} commands \
         run (at most {most_running}), {waiting} wait (at most {most_waiting}), with {waiting_bytes} bytes (at most \
         {most_waiting_bytes}).</p>"
    )?;
    let MemoryReport { budget, held, most_held, waiting, gave_way } = memory;
    writeln!(
        text,
        "<p>{held} bytes of clients are held (at most {most_held}, the budget is {budget}); {waiting} wait to be read from, \
         or for room for their replies, {gave_way} gave way.</p>"
    )?;
    if *paused {
        writeln!(text, "<p>The hub is paused: only what lets go of something has turns.</p>")?;
    }
    write_counts(text, activity.counts)?;
    if let Some(snapshot) = report.snapshot {
        writeln!(text, "<p><a href=\"/status?since={snapshot}\">What has changed since this look</a></p>")?;
    }
    if let Some(difference) = &report.difference {
        write_difference(text, difference)?;
    }
    write_users(text, users)?;
    write_commands(text, "Running", activity.running.iter())?;
    write_commands(text, "Slowest", activity.slowest.iter())?;
    write_failures(text, &activity.failures)?;
    if let Some(agents) = agents {
        writeln!(text, "<h2>Agents</h2><table><tr><th>server<th>parked")?;
        for AgentReport { member, parked } in agents {
            writeln!(text, "<tr><td>{}<td>{parked}", escaped(member))?;
        }
        writeln!(text, "</table>")?;
    }
    writeln!(text, "<h2>Upstream</h2><pre>{}</pre>", escaped(&upstream.to_string()))
}

/// Who has used most of the servers first.
fn write_users(text: &mut String, users: &BTreeMap<Arc<str>, UserReport>) -> Result {
    let all: f64 = users.values().map(|user| user.counts.times.server.as_secs_f64()).sum();
    let mut sorted: Vec<_> = users.iter().collect();
    sorted.sort_by_key(|(_, user)| Reverse(user.counts.times.server));
    writeln!(
        text,
        "<h2>Users</h2><table><tr><th>user<th>clients<th>running<th>waiting<th>commands<th>failed<th>cut off<th>seconds in queue<th>for a \
         connection<th>at servers<th>taking replies<th>part of the servers"
    )?;
    for (user, UserReport { connections, running, waiting, counts }) in sorted {
        let UserCounts { commands, failed, cut_off, times, .. } = counts;
        let part = if all > 0.0 { times.server.as_secs_f64() / all * 100.0 } else { 0.0 };
        write!(text, "<tr><td>{}<td>{connections}<td>{running}<td>{waiting}", escaped(user))?;
        write!(text, "<td>{commands}<td>{failed}<td>{cut_off}")?;
        write_times(text, times)?;
        writeln!(text, "<td><meter max=100 value={part:.1}></meter> {part:.1} %")?;
    }
    writeln!(text, "</table>")
}

fn write_times(text: &mut String, times: &Times) -> Result {
    let Times { queue, pool, server, client } = times;
    for time in [queue, pool, server, client] {
        write!(text, "<td>{:.3}", time.as_secs_f64())?;
    }
    Ok(())
}

fn write_difference(text: &mut String, difference: &Difference) -> Result {
    let Difference { since, seconds, counts, users, most, slowest } = difference;
    let Marks { connections, running, waiting, waiting_bytes } = most;
    writeln!(
        text,
        "<h2>Since {since}</h2><p>In {seconds:.1} s. At most {connections} clients, {running} commands that ran, and {waiting} that \
         waited, with {waiting_bytes} bytes.</p>"
    )?;
    write_counts(text, *counts)?;
    writeln!(text, "<table><tr><th>user<th>commands")?;
    for (user, commands) in users {
        writeln!(text, "<tr><td>{}<td>{commands}", escaped(user))?;
    }
    writeln!(text, "</table>")?;
    write_commands(text, "Slowest meanwhile", slowest.iter())
}

fn write_counts(text: &mut String, counts: Counts) -> Result {
    let Counts { commands, failed, cut_off, retries, overloads, refused, failed_logins, turned_away } = counts;
    writeln!(
        text,
        "<p>{commands} commands, {failed} failed, {cut_off} cut off, {retries} retries, {overloads} overloads, {refused} refused, \
         {failed_logins} failed logins, {turned_away} turned away.</p>"
    )
}

fn write_commands<'a>(text: &mut String, title: &str, commands: impl Iterator<Item = &'a CommandLine>) -> Result {
    writeln!(
        text,
        "<h2>{title}</h2><table><tr><th>operation<th>connection<th>user<th>database<th>command<th>seconds<th>in \
         queue<th>for a connection<th>at the server<th>taking the reply<th>server"
    )?;
    for line in commands.take(SHOWN) {
        let CommandLine { operation, connection, user, database, command, took, seconds, server, .. } = line;
        let (user, database, command) = (escaped(user), escaped(database), escaped(command));
        let server = escaped(server.as_deref().unwrap_or("waits"));
        write!(text, "<tr><td>{operation}<td>{connection}<td>{user}<td>{database}<td>{command}<td>{took:.3}")?;
        write_times(text, seconds)?;
        writeln!(text, "<td>{server}")?;
    }
    writeln!(text, "</table>")
}

fn write_failures(text: &mut String, failures: &[FailureLine]) -> Result {
    writeln!(text, "<h2>Failures</h2><table><tr><th>user<th>command<th>code<th>reason<th>times<th>last, seconds ago")?;
    for FailureLine { user, command, code, reason, count, ago } in failures {
        let code = code.map_or(String::new(), |code| code.to_string());
        let (user, reason) = (escaped(user), escaped(reason));
        writeln!(text, "<tr><td>{user}<td>{command}<td>{code}<td>{reason}<td>{count}<td>{ago:.0}")?;
    }
    writeln!(text, "</table>")
}

/// Text from clients, as text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>cmap-hub</title>\
<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left}</style>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_write_is_shown_as_text() {
        assert_eq!(escaped("<script src=\"x\">&"), "&lt;script src=&quot;x&quot;&gt;&amp;");
    }
}
