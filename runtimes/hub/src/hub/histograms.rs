//! How long commands take, of each user and command: counts for Prometheus, whose buckets are those of OpenTelemetry for databases.

use core::fmt::{self, Write};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::track::Times;
use crate::users::listed_name;

/// Upper ends, in microseconds.
const BUCKETS: [u64; 9] = [1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000];

/// Times in buckets.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

/// The times of one user's commands.
#[derive(Clone, Debug, Default)]
pub(super) struct OfUser {
    by_command: BTreeMap<&'static str, Histogram>,
    queue: Histogram,
}

impl Histogram {
    fn note(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get_mut(BUCKETS.partition_point(|end| *end < micros)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += time;
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) -> fmt::Result {
        let mut below = 0;
        for (end, count) in BUCKETS.iter().zip(self.buckets) {
            below += count;
            let end = Duration::from_micros(*end).as_secs_f64();
            writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {below}")?;
        }
        let Self { count, sum, .. } = self;
        writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
        writeln!(text, "{name}_sum{{{labels}}} {}", sum.as_secs_f64())?;
        writeln!(text, "{name}_count{{{labels}}} {count}")
    }
}

impl OfUser {
    /// A command has ended.
    pub(super) fn note(&mut self, command: &str, times: &Times) {
        self.queue.note(times.queue);
        if let Some(histogram) = self.by_command.get_mut(command) {
            return histogram.note(times.total());
        }
        self.by_command.entry(listed_name(command)).or_default().note(times.total());
    }
}

/// The histograms of all users, and how long the commands of each were at servers, as Prometheus reads them.
pub(super) fn text_of(users: &BTreeMap<Arc<str>, OfUser>, at_servers: &[(Arc<str>, Duration)]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, users, at_servers);
    text
}

fn write(text: &mut String, users: &BTreeMap<Arc<str>, OfUser>, at_servers: &[(Arc<str>, Duration)]) -> fmt::Result {
    let name = "cmap_hub_user_server_seconds_total";
    writeln!(text, "# HELP {name} How long the commands of a user were at servers.")?;
    writeln!(text, "# TYPE {name} counter")?;
    for (user, time) in at_servers {
        writeln!(text, "{name}{{user=\"{}\"}} {}", escaped(user), time.as_secs_f64())?;
    }
    let name = "cmap_hub_command_duration_seconds";
    writeln!(text, "# HELP {name} From a command\'s arrival at the hub until its client has taken the reply.")?;
    writeln!(text, "# TYPE {name} histogram")?;
    for (user, of_user) in users {
        for (command, histogram) in &of_user.by_command {
            histogram.write(text, name, &format!("user=\"{}\",command=\"{command}\"", escaped(user)))?;
        }
    }
    let name = "cmap_hub_command_queue_seconds";
    writeln!(text, "# HELP {name} How long commands wait at the hub for their turn or for a server.")?;
    writeln!(text, "# TYPE {name} histogram")?;
    for (user, of_user) in users {
        of_user.queue.write(text, name, &format!("user=\"{}\"", escaped(user)))?;
    }
    Ok(())
}

/// A label\'s value.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_client_made_up_is_another_one_and_the_time_in_the_queue_stands_apart() {
        let mut of_user = OfUser::default();
        let [queue, server] = [4_500, 1].map(Duration::from_millis);
        of_user.note("insert", &Times { queue, server, ..Times::default() });
        of_user.note("xyz\"}", &Times { server, ..Times::default() });

        let text = text_of(&BTreeMap::from([("a\"b".into(), of_user)]), &[("a".into(), 2 * server)]);

        for line in [
            "cmap_hub_command_duration_seconds_bucket{user=\"a\\\"b\",command=\"insert\",le=\"5\"} 1",
            "cmap_hub_command_duration_seconds_bucket{user=\"a\\\"b\",command=\"insert\",le=\"1\"} 0",
            "cmap_hub_command_duration_seconds_count{user=\"a\\\"b\",command=\"other\"} 1",
            "cmap_hub_command_queue_seconds_bucket{user=\"a\\\"b\",le=\"0.001\"} 1",
            "cmap_hub_user_server_seconds_total{user=\"a\"} 0.002",
            "cmap_hub_command_queue_seconds_sum{user=\"a\\\"b\"} 4.5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
