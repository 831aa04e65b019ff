//! A plan as text for people, and as JSON for programs.

use std::io::{self, Write};

use super::Plan;
use super::deployment::Deployment;

/// Prints the plan as JSON.
pub(super) fn json(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, plan)?;
    writeln!(out)
}

/// Prints a row for each server, then the sizes and the warnings.
pub(super) fn text(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let deployment = &plan.deployment;
    writeln!(out, "{}\n", premises(deployment))?;
    let load = plan.at_each_server;
    let names = names(deployment);
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().max("server".len());
    writeln!(out, "{:width$}  at least   at most  while deploying  at most without monitors", "server")?;
    for name in names {
        let [most, deploying, pools] = [load.at_most, load.while_deploying, load.pools_at_most].map(bound);
        writeln!(out, "{name:width$}  {:8}  {most:>8}  {deploying:>15}  {pools:>24}", load.at_least)?;
    }
    if deployment.max_connections.is_some() || deployment.is_drawn() {
        let most = bound(deployment.at_all_servers());
        writeln!(out, "all servers together, with what each client may have: at most {most}")?;
    }
    if let Some(limit) = deployment.limit {
        writeln!(out, "{:width$}  {limit:8}  {limit:8}  {limit:15}", "limit")?;
    }
    let of_process = plan.of_each_process;
    let [most, pools] = [of_process.at_most, of_process.pools_at_most].map(bound);
    writeln!(
        out,
        "\neach process opens, at all servers together: at least {}, at most {most}, at most {pools} without monitors",
        of_process.at_least
    )?;
    match deployment.limit {
        Some(_) => {}
        None => writeln!(out, "\nno limit was given: --limit says how many connections each server takes")?,
    }
    if let Some(needed) = plan.needed {
        writeln!(
            out,
            "\nmeasured: {:.2} connections of a client in use on average; at most 1 check-out in 1000 waits with maxPoolSize {}, and \
             minPoolSize {} keeps enough ready",
            needed.mean_in_use, needed.max_pool_size, needed.min_pool_size
        )?;
    }
    for (number, warning) in plan.warnings.iter().enumerate() {
        writeln!(out, "{}warning: {warning}", if number == 0 { "\n" } else { "" })?;
    }
    Ok(())
}

/// What is counted, in a sentence.
fn premises(deployment: &Deployment) -> String {
    let Deployment { processes, clients_per_process, min_pool_size, monitors, deploy, others, .. } = deployment;
    let max_pool_size = deployment.max_pool_size.map_or_else(|| "without a limit".into(), |size| size.to_string());
    let additional = deploy.additional(*processes);
    format!(
        "processes: {processes}, and {additional} more while deploying ({deploy}); clients in each: {clients_per_process}\n\
         at each server, a client has: minPoolSize {min_pool_size}, maxPoolSize {max_pool_size}, {monitors} for monitoring; others \
         have {others}"
    )
}

/// A name for each server: the hosts, then numbers for those that the connection string does not name.
fn names(deployment: &Deployment) -> Vec<String> {
    let numbered = (deployment.hosts.len()..).map(|index| format!("server {}", index + 1));
    let servers = usize::try_from(deployment.servers).unwrap_or(usize::MAX);
    deployment.hosts.iter().cloned().chain(numbered).take(servers).collect()
}

fn bound(connections: Option<u64>) -> String {
    connections.map_or_else(|| "unbounded".into(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Concurrency;
    use super::super::deployment::tests::deployment;
    use super::*;

    fn printed(print: fn(&Plan, &mut dyn Write) -> io::Result<()>, plan: &Plan) -> String {
        let mut out = Vec::new();
        print(plan, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_server_has_a_row_and_each_warning_a_line() {
        let deployment = Deployment { servers: 4, servers_of_client: 4, limit: Some(1500), ..deployment() };

        let text = printed(text, &Plan::new(deployment, Some(Concurrency::of_mean(3.5))));

        let expected = "\
processes: 10, and 10 more while deploying (blue-green); clients in each: 1
at each server, a client has: minPoolSize 0, maxPoolSize 100, 2 for monitoring; others have 0

server    at least   at most  while deploying  at most without monitors
a:27017         20      1020             2040                      1000
b:27017         20      1020             2040                      1000
c:27017         20      1020             2040                      1000
server 4        20      1020             2040                      1000
limit         1500      1500             1500

each process opens, at all servers together: at least 8, at most 408, at most 400 without monitors

measured: 3.50 connections of a client in use on average; at most 1 check-out in 1000 waits with maxPoolSize 12, and minPoolSize 4 keeps \
enough ready

warning: while deploying, up to 2040 connections come to a server that takes 1500: set maxPoolSize to at most 73, or run fewer processes
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_clients_own_limit_counts_at_all_servers_together() {
        let text = printed(text, &Plan::new(Deployment { max_connections: Some(60), ..deployment() }, None));

        assert!(text.contains("all servers together, with what each client may have: at most 660\n"), "{text}");
    }

    #[test]
    fn servers_that_clients_draw_count_at_all_servers_together() {
        let drawn = Deployment { servers: 10, servers_of_client: 2, ..deployment() };

        let text = printed(text, &Plan::new(drawn, None));

        assert!(text.contains("all servers together, with what each client may have: at most 2040\n"), "{text}");
        assert!(
            text.contains("at all servers together: at least 4, at most 204, at most 200 without monitors\n"),
            "{text}"
        );
    }

    #[test]
    fn json_has_the_same_figures() {
        let plan = Plan::new(Deployment { max_pool_size: None, ..deployment() }, None);

        let value: serde_json::Value = serde_json::from_str(&printed(json, &plan)).unwrap();

        let at_each_server =
            serde_json::json!({ "atLeast": 20, "atMost": null, "whileDeploying": null, "poolsAtMost": null });
        assert_eq!(value["atEachServer"], at_each_server);
        let of_each_process = serde_json::json!({ "atLeast": 6, "atMost": null, "poolsAtMost": null });
        assert_eq!(value["ofEachProcess"], of_each_process);
        assert_eq!(value["deployment"]["hosts"][0], "a:27017");
        assert_eq!(value["needed"], serde_json::Value::Null);
        assert_eq!(value["warnings"], serde_json::json!([{ "kind": "noMaxPoolSize" }]));
    }
}
