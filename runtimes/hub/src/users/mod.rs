//! The hub's users: what proves them, who they are upstream, and what they may do.
//!
//! | file | content |
//! |---|---|
//! | `file` | the users file, and its errors |
//! | `rules` | which commands a user may run on which collections |
//! | `ordinary` | what a star may allow, and what only operators may do |
//! | `operators` | which of the others the hub knows |
//! | `pattern` | names with stars |
//! | `share` | what a user or a group may have at once |
//! | `certificate` | the subjects of certificates |
//! | `edit` | `cmap-hub user add`, `passwd`, `remove` |

mod certificate;
mod edit;
mod file;
mod operators;
mod ordinary;
mod pattern;
mod rules;
mod share;

use std::collections::BTreeMap;
use std::sync::Arc;

use cmap_core::connection::auth::{ScramHash, StoredKeys};
use zeroize::Zeroizing;

pub use certificate::{Certificate, canonical};
pub use edit::{EditUsersError, NewUser, add, remove, set_password};
pub use file::{UsersFileError, read};
pub use ordinary::{ORDINARY_COMMANDS, is_known, listed_name};
pub use pattern::Pattern;
pub use rules::{Rule, Rules};
pub use share::{Group, Share};

/// All users.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Arc<str>, Arc<User>>,
    /// Makes the records of users that do not exist.
    decoys: Vec<u8>,
    /// What a client may do that has not logged in, if it may do anything.
    anonymous: Option<Arc<User>>,
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// The name.
    pub name: Arc<str>,
    /// The identity upstream, by its name in the configuration; `None` is that of the connection string.
    pub upstream: Option<Arc<str>>,
    /// What the user may do.
    pub rules: Rules,
    /// What the user may have at once.
    pub share: Share,
    /// What proves the user, by mechanism.
    pub(crate) keys: Vec<StoredKeys>,
    /// The subject of the certificate that proves the user.
    pub(crate) certificate: Option<Arc<str>>,
}

impl User {
    /// Whether the same proves it as proves another one, and both are the same upstream: who has logged in as that one is this one.
    pub(crate) fn is_proven_as(&self, other: &Self) -> bool {
        let keys = |user: &Self| user.keys.iter().map(StoredKeys::to_text).map(Zeroizing::new).collect::<Vec<_>>();
        self.upstream == other.upstream && self.certificate == other.certificate && keys(self) == keys(other)
    }
}

impl Users {
    /// These users. `decoys` is secret and random, and stays the same while the hub runs.
    pub fn new(users: impl IntoIterator<Item = User>, decoys: [u8; 32]) -> Self {
        let by_name = users.into_iter().map(|user| (Arc::clone(&user.name), Arc::new(user))).collect();
        Self { by_name, decoys: decoys.to_vec(), anonymous: None }
    }

    /// Nobody logs in, and everybody may do what these rules allow.
    pub fn open(rules: Rules) -> Self {
        let user = User {
            name: "".into(),
            upstream: None,
            rules,
            share: Share::default(),
            keys: Vec::new(),
            certificate: None,
        };
        Self { by_name: BTreeMap::new(), decoys: Vec::new(), anonymous: Some(Arc::new(user)) }
    }

    /// The user that a client is before it logs in.
    pub fn anonymous(&self) -> Option<&Arc<User>> {
        self.anonymous.as_ref()
    }

    /// The user of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name).or_else(|| self.anonymous.as_ref().filter(|user| &*user.name == name))
    }

    /// The user whose certificate has this subject.
    pub fn of_certificate(&self, subject: &str) -> Option<&Arc<User>> {
        self.by_name.values().find(|user| user.certificate.as_deref() == Some(subject))
    }

    /// All users, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// What each user may have at once.
    pub fn shares(&self) -> impl Iterator<Item = (Arc<str>, Share)> {
        self.by_name.values().map(|user| (Arc::clone(&user.name), user.share.clone()))
    }

    /// The users of a group.
    pub fn of_group(&self, group: &Group) -> impl Iterator<Item = &Arc<str>> {
        let those = self.by_name.values().filter(move |user| user.share.group.as_deref() == Some(group));
        those.map(|user| &user.name)
    }

    /// What proves a user of this name; for one that does not exist, a record that nothing proves.
    pub fn keys(&self, name: &str, hash: ScramHash) -> StoredKeys {
        let keys = self.by_name.get(name).and_then(|user| user.keys.iter().find(|keys| keys.hash() == hash));
        keys.cloned().unwrap_or_else(|| StoredKeys::decoy(hash, name, &self.decoys))
    }
}
