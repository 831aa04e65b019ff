//! The users of a test: that of its pool's options, and those that `server.users` adds.

use std::collections::BTreeMap;

use cmap_core::options::{Credential, Secret};
use cmap_core::pool::IdentityId;
use cmap_runtime::{Pool, Runtime};
use cmap_test_server::User;

use crate::suites::cmap::format::{Case, Login};

/// The user of the options.
const USER: &str = "user";

/// The password that the server knows of each user.
const PASSWORD: &str = "secret";

/// A password that no user has.
const MISTYPED: &str = "mistyped";

/// The users that the server of `case` knows.
pub(super) fn at_server(case: &Case) -> Vec<User> {
    let further = case.server.users.keys().map(String::as_str);
    std::iter::once(USER).chain(further).map(|name| User::with_password(name, PASSWORD)).collect()
}

/// The user and password of the connection string for `case`.
pub(super) fn login(case: &Case) -> String {
    if case.server.auth { format!("{USER}:{PASSWORD}@") } else { String::new() }
}

/// The user of the options, with another password than the server knows.
pub(super) fn mistyped() -> Credential {
    Credential::new(USER, Secret::from(MISTYPED), "admin")
}

/// Adds the further users of `case` to its pool, by their names in the test.
pub(super) fn add<R: Runtime>(case: &Case, pool: &Pool<R>) -> Result<BTreeMap<String, IdentityId>, String> {
    let add = |(name, login): (&String, &Login)| {
        let password = match login {
            Login::Accepted => PASSWORD,
            Login::Refused => MISTYPED,
        };
        let added = pool.add_identity(Credential::new(name, Secret::from(password), "admin"));
        added.map(|user| (name.clone(), user)).map_err(|error| error.to_string())
    };
    case.server.users.iter().map(add).collect()
}
