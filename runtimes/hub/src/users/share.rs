//! What a user, or a group of users, may have of the hub at once, and how its turns count next to those of others.

use std::sync::Arc;

/// A user's part of the hub. What is `None` follows from the configuration's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part of the servers' time where others want it, too, relative to their weights: 1 to 1,000.
    pub weight: u32,
    /// Most commands that run at once.
    pub running: Option<u32>,
    /// Most commands that wait.
    pub waiting: Option<usize>,
    /// Most connections.
    pub connections: Option<usize>,
    /// The group whose part it has a part of.
    pub group: Option<Arc<Group>>,
}

/// Users who have one part of the hub together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name.
    pub name: Arc<str>,
    /// Its part of the servers' time, relative to the weights of other groups and of users without one: 1 to 1,000.
    pub weight: u32,
    /// Most commands of all its users that run at once; `None` for any number.
    pub running: Option<u32>,
    /// Most commands that wait.
    pub waiting: Option<usize>,
    /// Most connections.
    pub connections: Option<usize>,
}

impl Share {
    /// The largest weight.
    pub const MOST_WEIGHT: u32 = 1_000;
}

impl Default for Share {
    /// That of a user of whom nothing is said.
    fn default() -> Self {
        Self { weight: 1, running: None, waiting: None, connections: None, group: None }
    }
}
