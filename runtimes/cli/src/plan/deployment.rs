//! The connections that the clients of one application have at each server.
//!
//! A client has a pool for each server, and connections of its monitor next to the pool. Which server is the busiest changes:
//! after a failover another member gets the writes, and the pool of the old primary keeps its idle connections. So at most
//! every pool is full at every server.

use serde::Serialize;

use super::deploy::Deploy;

/// An application and the servers that it uses.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deployment {
    /// The hosts that the connection string names.
    pub(crate) hosts: Vec<String>,
    /// The number of servers.
    pub(crate) servers: u32,
    /// Processes of the application.
    pub(crate) processes: u32,
    /// Clients in each.
    pub(crate) clients_per_process: u32,
    /// minPoolSize.
    pub(crate) min_pool_size: u32,
    /// maxPoolSize; `None` is no limit.
    pub(crate) max_pool_size: Option<u32>,
    /// Most connections that all pools of a client have together; `None` is no limit.
    pub(crate) max_connections: Option<u32>,
    /// Connections that the monitor of one server has: for hellos, and for round-trip times where it streams.
    pub(crate) monitors: u32,
    /// The servers that each client uses: all, or as many as srvMaxHosts says, which it draws.
    pub(crate) servers_of_client: u32,
    /// How a new version replaces the old one.
    pub(crate) deploy: Deploy,
    /// Connections from elsewhere at each server.
    pub(crate) others: u32,
    /// Connections that each server takes, if that is known.
    pub(crate) limit: Option<u32>,
}

/// The connections at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Load {
    /// While the application is idle.
    pub(crate) at_least: u64,
    /// When every pool is full; `None` if the pools have no limit.
    pub(crate) at_most: Option<u64>,
    /// When every pool is full while a new version replaces the old one; `None` if the pools have no limit.
    pub(crate) while_deploying: Option<u64>,
    /// `at_most` without the connections of monitors.
    pub(crate) pools_at_most: Option<u64>,
}

/// The connections that one process opens, at all servers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessLoad {
    /// While it is idle.
    pub(crate) at_least: u64,
    /// When every pool is full; `None` if the pools have no limit.
    pub(crate) at_most: Option<u64>,
    /// When every pool is full, without the connections of monitors; `None` if the pools have no limit.
    pub(crate) pools_at_most: Option<u64>,
}

impl Deployment {
    /// The connections at each server. All servers are alike: each may become the busiest.
    pub(crate) fn load(&self) -> Load {
        let idle = self.idle_pool() + u64::from(self.monitors);
        let at_least = if self.is_drawn() { 0 } else { self.clients() * idle };
        let full = |clients| {
            let of_client = u64::from(self.full_pool()?) + u64::from(self.monitors);
            Some(u64::from(self.others) + clients * of_client)
        };
        Load {
            at_least: u64::from(self.others) + at_least,
            at_most: full(self.clients()),
            while_deploying: full(self.clients_while_deploying()),
            pools_at_most: self.full_pool().map(|size| u64::from(self.others) + self.clients() * u64::from(size)),
        }
    }

    /// The connections that one process opens, at all servers together.
    pub(crate) fn load_of_process(&self) -> ProcessLoad {
        let clients = u64::from(self.clients_per_process);
        let monitors = clients * self.monitors_of_client();
        let pools_at_most = self.pools_of_client(self.full_pool()).map(|pools| clients * pools);
        ProcessLoad {
            at_least: clients * self.pools_of_client(Some(self.min_pool_size)).unwrap_or_default() + monitors,
            at_most: pools_at_most.map(|pools| pools + monitors),
            pools_at_most,
        }
    }

    /// The connections at all servers together when every client has as many as it may; `None` if the pools have no limit.
    pub(crate) fn at_all_servers(&self) -> Option<u64> {
        let pools = self.pools_of_client(self.full_pool())?;
        let others = u64::from(self.others) * u64::from(self.servers);
        Some(others + self.clients() * (pools + self.monitors_of_client()))
    }

    /// Whether each client uses some of the servers only, by chance.
    pub(crate) fn is_drawn(&self) -> bool {
        self.servers_of_client < self.servers
    }

    /// The connections of all pools of a client when each has `size`, as far as its own limit allows; `None` if there is no size.
    fn pools_of_client(&self, size: Option<u32>) -> Option<u64> {
        let pools = u64::from(size?) * u64::from(self.servers_of_client);
        Some(self.max_connections.map_or(pools, |most| pools.min(most.into())))
    }

    fn monitors_of_client(&self) -> u64 {
        u64::from(self.monitors) * u64::from(self.servers_of_client)
    }

    /// The fewest connections of one pool of an idle client: what its other pools leave of its own limit, at most minPoolSize.
    fn idle_pool(&self) -> u64 {
        let size = u64::from(self.min_pool_size);
        let of_others = size * u64::from(self.servers_of_client.saturating_sub(1));
        self.max_connections.map_or(size, |most| size.min(u64::from(most).saturating_sub(of_others)))
    }

    /// The most connections of one pool: a client's own limit may all be spent at one server.
    pub(crate) fn full_pool(&self) -> Option<u32> {
        self.max_pool_size.into_iter().chain(self.max_connections).min()
    }

    /// The largest maxPoolSize with which `clients` stay within `limit` at each server.
    pub(crate) fn fitting_size(&self, clients: u64, limit: u32) -> Option<u64> {
        let left = u64::from(limit).checked_sub(u64::from(self.others))?;
        (left / clients).checked_sub(u64::from(self.monitors)).filter(|size| *size > 0)
    }

    /// All clients of the application.
    pub(crate) fn clients(&self) -> u64 {
        u64::from(self.processes) * u64::from(self.clients_per_process)
    }

    /// All clients of the application while a new version replaces the old one.
    pub(crate) fn clients_while_deploying(&self) -> u64 {
        let processes = u64::from(self.processes) + u64::from(self.deploy.additional(self.processes));
        processes * u64::from(self.clients_per_process)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Ten processes of one client on three servers, with the defaults of the options.
    pub(in super::super) fn deployment() -> Deployment {
        Deployment {
            hosts: ["a:27017", "b:27017", "c:27017"].map(String::from).to_vec(),
            servers: 3,
            processes: 10,
            clients_per_process: 1,
            min_pool_size: 0,
            max_pool_size: Some(100),
            max_connections: None,
            monitors: 2,
            servers_of_client: 3,
            deploy: Deploy::BlueGreen,
            others: 0,
            limit: None,
        }
    }

    #[test]
    fn every_pool_may_be_full_and_monitors_count_too() {
        let load = deployment().load();

        let pools_at_most = Some(1000);
        assert_eq!(load, Load { at_least: 20, at_most: Some(1020), while_deploying: Some(2040), pools_at_most });
    }

    #[test]
    fn a_process_opens_what_its_clients_have_at_all_servers() {
        let of_process = |deployment: Deployment| {
            let ProcessLoad { at_least, at_most, pools_at_most } = deployment.load_of_process();
            (at_least, at_most, pools_at_most)
        };

        assert_eq!(of_process(deployment()), (6, Some(306), Some(300)));
        let two_clients = Deployment { clients_per_process: 2, min_pool_size: 5, ..deployment() };
        assert_eq!(of_process(two_clients), (2 * 3 * 7, Some(612), Some(600)));
        let limited = Deployment { max_connections: Some(60), ..deployment() };
        assert_eq!(of_process(limited), (6, Some(66), Some(60)));
        assert_eq!(of_process(Deployment { max_pool_size: None, ..deployment() }), (6, None, None));
    }

    #[test]
    fn several_clients_a_floor_and_others_add_up() {
        let load = Deployment { clients_per_process: 3, min_pool_size: 5, others: 7, ..deployment() }.load();

        assert_eq!(
            load,
            Load {
                at_least: 7 + 30 * 7,
                at_most: Some(7 + 30 * 102),
                while_deploying: Some(7 + 60 * 102),
                pools_at_most: Some(7 + 30 * 100),
            }
        );
    }

    #[test]
    fn pools_without_a_limit_have_no_upper_bound() {
        let load = Deployment { max_pool_size: None, ..deployment() }.load();

        assert_eq!((load.at_most, load.while_deploying), (None, None));
    }

    #[test]
    fn a_clients_own_limit_may_all_be_spent_at_one_server_but_not_at_each() {
        let limited = Deployment { max_connections: Some(60), ..deployment() };

        assert_eq!(limited.load().at_most, Some(10 * 62));
        assert_eq!(limited.at_all_servers(), Some(10 * (60 + 3 * 2)));
        assert_eq!(deployment().at_all_servers(), Some(10 * 3 * 102));
    }

    #[test]
    fn a_clients_own_limit_bounds_pools_that_have_none() {
        let limited = Deployment { max_pool_size: None, max_connections: Some(60), ..deployment() };

        assert_eq!((limited.load().at_most, limited.at_all_servers()), (Some(620), Some(660)));
        assert_eq!(Deployment { max_connections: None, ..limited }.at_all_servers(), None);
    }

    #[test]
    fn clients_that_draw_their_servers_may_all_leave_one_out_or_all_use_it() {
        let load = Deployment { servers_of_client: 2, min_pool_size: 5, ..deployment() }.load();

        assert_eq!((load.at_least, load.at_most), (0, Some(1020)));
    }

    #[test]
    fn clients_that_draw_their_servers_have_no_connections_at_the_others() {
        let drawn = Deployment { servers: 10, servers_of_client: 2, others: 7, ..deployment() };

        let ProcessLoad { at_least, at_most, pools_at_most } = drawn.load_of_process();
        assert_eq!((at_least, at_most, pools_at_most), (4, Some(204), Some(200)));
        assert_eq!(drawn.at_all_servers(), Some(10 * 7 + 10 * 204));
    }

    #[test]
    fn a_clients_own_limit_bounds_what_it_has_at_least() {
        let limited = |most, servers| {
            let limits = Deployment { min_pool_size: 50, max_connections: Some(most), ..deployment() };
            Deployment { servers, servers_of_client: servers, processes: 1, ..limits }
        };
        let at_least = |it: &Deployment| (it.load().at_least, it.load_of_process().at_least);

        assert_eq!(at_least(&limited(60, 3)), (2, 66), "two pools may have spent it, or one and a part of another");
        assert_eq!(at_least(&limited(120, 3)), (2 + 20, 126));
        assert_eq!(at_least(&limited(30, 1)), (2 + 30, 32));
        assert_eq!(at_least(&limited(200, 3)), (2 + 50, 156), "it is more than enough");
    }

    #[test]
    fn the_size_that_fits_is_the_largest_within_the_limit() {
        let deployment = Deployment { others: 10, ..deployment() };

        let size = deployment.fitting_size(20, 1010).unwrap();

        assert_eq!(size, 48);
        let with = |size| Deployment { max_pool_size: Some(size), ..deployment.clone() }.load().while_deploying;
        assert!(with(48) <= Some(1010) && with(49) > Some(1010));
        assert_eq!(deployment.fitting_size(20, 60), None, "the monitors leave no room");
        assert_eq!(deployment.fitting_size(20, 5), None, "others have taken all");
    }
}
