//! The status of a client: one value for a page or a log, and a table for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::OptionValue;
use cmap_core::pool::{Durations, PoolState, Stats};
use cmap_core::server::ServerType;
use serde::Serialize;

use super::holder::Who;
use super::{Holder, Place, WaitingCheckOut};

/// What a client does at one moment, taken from its state as a whole. `Display` and `Debug` print a table.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClientStatus {
    /// Time since the client was made.
    pub uptime: Duration,
    /// The options that the user set, by their names in a connection string, without secrets.
    pub options: Vec<(&'static str, String)>,
    /// The servers that belong to the deployment, each followed by the pools of further users there.
    pub servers: Vec<ServerLine>,
    /// How long check-outs, establishments and uses took, and how long connections were idle, where
    /// [holders are watched](crate::Builder::watch_holders). Of the first four pools.
    pub durations: Option<Box<Durations>>,
    /// Who holds connections, the longest use first.
    pub in_use: Vec<Holder>,
    /// The check-outs that wait, in the order in which they are served.
    pub waiting: Vec<WaitingCheckOut>,
    /// How often a check-out had a label that there was no room for.
    pub folded_labels: u64,
}

/// One server in a status.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerLine {
    /// The server.
    pub address: Arc<ServerAddress>,
    /// The user whose pool it is, unless it is that of the client's options: the name, or `identity 1` for one without.
    pub user: Option<Arc<str>>,
    /// Its type.
    pub server_type: ServerType,
    /// Whether its pool is ready, paused or closed.
    pub state: PoolState,
    /// Its pool's counts, totals and high-water marks.
    pub stats: Stats,
}

/// Connections, or check-outs, of one kind.
struct Group {
    label: Option<Arc<str>>,
    place: Option<Place>,
    number: usize,
    longest: Duration,
}

/// An option's value as it would stand in a connection string; secrets are not shown.
pub(crate) fn shown(value: &OptionValue) -> String {
    match value {
        OptionValue::Boolean(value) => value.to_string(),
        OptionValue::Integer(value) => value.to_string(),
        OptionValue::Text(text) => text.escape_debug().to_string(),
        OptionValue::List(texts) => texts.join(",").escape_debug().to_string(),
        OptionValue::TagSets(sets) => format!("{sets:?}"),
        OptionValue::Secret(_) | OptionValue::Properties(_) => "(not shown)".into(),
    }
}

/// What a pool is called: by its server, and by its user if that is not the one of the options.
pub(crate) fn pool_name(address: &ServerAddress, user: Option<&str>) -> String {
    match user {
        Some(user) => format!("{address} as {}", user.escape_debug()),
        None => address.to_string(),
    }
}

/// Most lines of a list in the table.
const LINES: usize = 20;

impl ClientStatus {
    fn write_servers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.servers.iter().map(|server| pool_name(&server.address, server.user.as_deref())).collect();
        let width = names.iter().map(String::len).max().unwrap_or_default().max("server".len());
        writeln!(
            f,
            "{:width$}  {:7} {:>7} {:>9} {:>7} {:>7} {:>11} {:>9} {:>8}",
            "server", "pool", "in use", "available", "pending", "waiting", "most in use", "time-outs", "cleared"
        )?;
        for (name, server) in names.iter().zip(&self.servers) {
            let Stats { counts, high_water, check_outs_failed, cleared, .. } = &server.stats;
            let state = match server.state {
                PoolState::Paused => "paused",
                PoolState::Ready => "ready",
                PoolState::Closed => "closed",
            };
            writeln!(
                f,
                "{name:width$}  {state:7} {:>7} {:>9} {:>7} {:>7} {:>11} {:>9} {cleared:>8}",
                counts.in_use,
                counts.available,
                counts.pending,
                counts.waiting,
                high_water.in_use,
                check_outs_failed.timeout
            )?;
        }
        Ok(())
    }

    fn write_holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = Group::all(self.in_use.iter().map(|it| (it.label.clone(), it.place, it.held_for)));
        write_groups(f, "in use by", &groups)?;
        let of_note = self.in_use.iter().take(LINES);
        of_note.clone().try_for_each(|holder| writeln!(f, "  {holder}"))?;
        write_rest(f, self.in_use.len())
    }

    fn write_waiters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = Group::all(self.waiting.iter().map(|it| (it.label.clone(), it.place, it.waited)));
        write_groups(f, "waiting", &groups)?;
        let first = self.waiting.iter().take(3);
        first.clone().try_for_each(|waiter| writeln!(f, "  {waiter}"))
    }
}

impl Group {
    /// Those of a list, the longest time first.
    fn all(list: impl Iterator<Item = (Option<Arc<str>>, Option<Place>, Duration)>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (label, place, time) in list {
            match groups.iter_mut().find(|own| (&own.label, &own.place) == (&label, &place)) {
                Some(own) => (own.number, own.longest) = (own.number + 1, own.longest.max(time)),
                None => groups.push(Self { label, place, number: 1, longest: time }),
            }
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.longest));
        groups
    }
}

fn write_groups(f: &mut fmt::Formatter<'_>, title: &str, groups: &[Group]) -> fmt::Result {
    writeln!(f, "{title}: {}", groups.iter().map(|group| group.number).sum::<usize>())?;
    for Group { label, place, number, longest } in groups.iter().take(LINES) {
        let who = Who { label: label.as_deref(), place: *place };
        writeln!(f, "  {number} by {who}, the longest for {longest:.3?}")?;
    }
    write_rest(f, groups.len())
}

fn write_rest(f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
    match number.saturating_sub(LINES) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

impl fmt::Debug for ClientStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ClientStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up for {:.3?}", self.uptime)?;
        self.options.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))?;
        writeln!(f)?;
        self.write_servers(f)?;
        if let Some(durations) = &self.durations {
            write!(f, "{durations}")?;
        }
        self.write_holders(f)?;
        self.write_waiters(f)?;
        match self.folded_labels {
            0 => Ok(()),
            folded => writeln!(f, "labels beyond the 128 that are known were given {folded} times"),
        }
    }
}

#[cfg(test)]
mod tests {
    use cmap_core::options::ClientOptions;

    use super::*;

    #[test]
    fn a_status_shows_no_password() {
        let (options, _) = ClientOptions::parse("mongodb://user:tiger@h/?maxPoolSize=5&compressors=zlib").unwrap();

        let text: Vec<_> = options.set_by_user().map(|(name, value)| format!("{name}={}", shown(&value))).collect();

        assert!(text.contains(&"maxPoolSize=5".to_owned()) && !text.concat().contains("tiger"), "{text:?}");
    }
}
