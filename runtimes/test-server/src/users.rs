//! Users, and the commands that make, show, change and drop them.
//!
//! The record of a password is made when the password is set, once for each mechanism, because that is slow. A role
//! opens the data of its database, or all data if that is `admin`; the kind of role does not matter.

use std::collections::BTreeMap;
use std::fmt;

use bson::spec::BinarySubtype;
use bson::{RawArrayBuf, RawBinaryRef, RawBsonRef, RawDocumentBuf};
use cmap_core::connection::auth::{ScramHash, StoredKeys};
use cmap_core::options::Secret;
use cmap_core::random::Random;

use super::config::{ServerConfig, User};
use super::document::{array, document};
use super::failure::{Outcome, fail};
use super::request::{Arguments, Request};
use crate::store::CommandFailure;

/// The database of users whose credentials are kept elsewhere, with mechanisms of its own.
pub(super) const EXTERNAL: &str = "$external";

/// A user's name, and the database that knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UserName {
    pub(super) database: String,
    pub(super) name: String,
}

/// All users.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    accounts: BTreeMap<UserName, Account>,
    iterations: (u32, u32),
}

/// The record of one user.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    id: [u8; 16],
    roles: RawArrayBuf,
    custom_data: Option<RawDocumentBuf>,
    pub(super) sha_1: Option<StoredKeys>,
    pub(super) sha_256: Option<StoredKeys>,
    /// For PLAIN: another server would know the password.
    pub(super) password: Option<Secret>,
    /// For MONGODB-OIDC: another server would verify it.
    token: Option<Secret>,
}

impl UserName {
    pub(super) fn new(database: &str, name: &str) -> Self {
        Self { database: database.to_owned(), name: name.to_owned() }
    }

    pub(super) fn to_document(&self) -> RawDocumentBuf {
        document! { "user": self.name.as_str(), "db": self.database.as_str() }
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.database)
    }
}

impl Account {
    pub(super) fn roles(&self) -> &RawArrayBuf {
        &self.roles
    }

    /// The names of the mechanisms by which the user can log in (AUTH-6).
    pub(super) fn mechanisms(&self) -> RawArrayBuf {
        let mut names = RawArrayBuf::new();
        if self.sha_1.is_some() {
            names.push("SCRAM-SHA-1");
        }
        if self.sha_256.is_some() {
            names.push("SCRAM-SHA-256");
        }
        names
    }

    fn to_document(&self, user: &UserName) -> RawDocumentBuf {
        let mut document = document! {
            "_id": format!("{}.{}", user.database, user.name),
            "userId": RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: &self.id },
            "user": user.name.as_str(),
            "db": user.database.as_str(),
        };
        if let Some(custom_data) = &self.custom_data {
            document.append(bson::cstr!("customData"), custom_data);
        }
        document.append(bson::cstr!("roles"), &self.roles);
        document.append(bson::cstr!("mechanisms"), self.mechanisms());
        document
    }
}

impl Users {
    /// The initial users. A user whose password SASLprep prohibits has SCRAM-SHA-1 alone.
    pub(super) fn new(config: &ServerConfig, random: &mut Random) -> Self {
        let mut users = Self { accounts: BTreeMap::new(), iterations: config.iterations };
        for user in &config.users {
            match user {
                User::Password { name, password } => {
                    let account = Account {
                        id: bytes(random),
                        roles: root(),
                        sha_1: users.store(random, ScramHash::Sha1, name, password).ok(),
                        sha_256: users.store(random, ScramHash::Sha256, name, password).ok(),
                        ..Account::default()
                    };
                    users.accounts.insert(UserName::new("admin", name), account);
                    let password = Some(password.clone());
                    let external = Account { id: bytes(random), roles: root(), password, ..Account::default() };
                    users.accounts.insert(UserName::new(EXTERNAL, name), external);
                }
                User::Certificate { subject } => {
                    let account = Account { id: bytes(random), roles: root(), ..Account::default() };
                    users.accounts.insert(UserName::new(EXTERNAL, subject), account);
                }
                User::Token { name, token } => {
                    let token = Some(token.clone());
                    let account = Account { id: bytes(random), roles: root(), token, ..Account::default() };
                    users.accounts.insert(UserName::new(EXTERNAL, name), account);
                }
            }
        }
        users
    }

    /// Whether one of `logins` has a role that opens the data of `database`.
    pub(super) fn open(&self, logins: &[UserName], database: &str) -> bool {
        let opens = |role: RawBsonRef<'_>| {
            let on = role.as_document().and_then(|role| role.get_str("db").ok());
            on.is_some_and(|on| on == "admin" || on == database)
        };
        let accounts = logins.iter().filter_map(|login| self.accounts.get(login));
        accounts.flat_map(|account| &*account.roles).map_while(Result::ok).any(opens)
    }

    pub(super) fn get(&self, user: &UserName) -> Option<&Account> {
        self.accounts.get(user)
    }

    /// The user with this access token.
    pub(super) fn with_token(&self, token: &str) -> Option<&UserName> {
        let has_it = |account: &Account| account.token.as_ref().is_some_and(|own| own.expose() == token);
        self.accounts.iter().find(|(_, account)| has_it(account)).map(|(user, _)| user)
    }

    /// `createUser`.
    pub(super) fn create(&mut self, random: &mut Random, request: &Request<'_>) -> Outcome {
        let user = named(request)?;
        if self.accounts.contains_key(&user) {
            return Err(fail(51003, format!("User \"{user}\" already exists")));
        }
        let arguments = request.arguments;
        let roles =
            arguments.array("roles")?.ok_or_else(|| fail(2, "\"createUser\" command requires a \"roles\" array"))?;
        let mut account = Account { id: bytes(random), ..Account::default() };
        account.roles = roles_on(&user.database, roles);
        let is_external = user.database == EXTERNAL;
        match arguments.text("pwd")? {
            Some(_) if is_external => {
                return Err(fail(2, "Cannot set the password for users defined on the '$external' database"));
            }
            Some(password) => self.set_password(random, &user, &mut account, password, &mechanisms(arguments)?)?,
            None if is_external => {}
            None => {
                return Err(fail(
                    2,
                    "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's source db",
                ));
            }
        }
        account.custom_data = arguments.document("customData")?.map(|custom| custom.0.to_owned());
        self.accounts.insert(user, account);
        Ok(RawDocumentBuf::new())
    }

    /// `updateUser`.
    pub(super) fn update(&mut self, random: &mut Random, request: &Request<'_>) -> Outcome {
        let user = named(request)?;
        let arguments = request.arguments;
        let Some(mut account) = self.accounts.remove(&user) else { return Err(not_found(&user)) };
        let updated = self.change(random, &user, &mut account, arguments);
        self.accounts.insert(user, account);
        updated.map(|()| RawDocumentBuf::new())
    }

    fn change(
        &self,
        random: &mut Random,
        user: &UserName,
        account: &mut Account,
        arguments: Arguments<'_>,
    ) -> Result<(), CommandFailure> {
        let chosen = mechanisms(arguments)?;
        if let Some(password) = arguments.text("pwd")? {
            self.set_password(random, user, account, password, &chosen)?;
        } else if !chosen.is_empty() {
            // Without the password no other credential can be made.
            let lacks = |hash: &ScramHash| match hash {
                ScramHash::Sha1 => account.sha_1.is_none(),
                ScramHash::Sha256 => account.sha_256.is_none(),
            };
            if chosen.iter().any(lacks) {
                return Err(fail(2, "mechanisms field must be a subset of previously set mechanisms"));
            }
            account.sha_1 = account.sha_1.take().filter(|_| chosen.contains(&ScramHash::Sha1));
            account.sha_256 = account.sha_256.take().filter(|_| chosen.contains(&ScramHash::Sha256));
        }
        if let Some(roles) = arguments.array("roles")? {
            account.roles = roles_on(&user.database, roles);
        }
        if let Some(custom_data) = arguments.document("customData")? {
            account.custom_data = Some(custom_data.0.to_owned());
        }
        Ok(())
    }

    /// `dropUser`.
    pub(super) fn drop_user(&mut self, request: &Request<'_>) -> Outcome {
        let user = named(request)?;
        match self.accounts.remove(&user) {
            Some(_) => Ok(RawDocumentBuf::new()),
            None => Err(not_found(&user)),
        }
    }

    /// `dropAllUsersFromDatabase`.
    pub(super) fn drop_all(&mut self, database: &str) -> Outcome {
        let before = self.accounts.len();
        self.accounts.retain(|user, _| user.database != database);
        Ok(document! { "n": i32::try_from(before - self.accounts.len()).unwrap_or(i32::MAX) })
    }

    /// `usersInfo`: of one user, several, all of a database, or all.
    pub(super) fn info(&self, request: &Request<'_>) -> Outcome {
        let Some(wanted) = request.arguments.get(request.name) else {
            return Err(fail(2, "usersInfo needs a user, users, or 1"));
        };
        let named: Option<Vec<_>> = match (wanted.as_array(), one(wanted, request.database)) {
            (Some(several), _) => {
                Some(several.into_iter().filter_map(|item| one(item.ok()?, request.database)).collect())
            }
            (None, one) => one.map(|user| vec![user]),
        };
        let of_all = wanted.as_document().is_some_and(|how| Arguments(how).flag("forAllDBs"));
        let is_shown = |user: &UserName| match &named {
            Some(named) => named.contains(user),
            None => of_all || user.database == request.database,
        };
        let shown = self.accounts.iter().filter(|(user, _)| is_shown(user));
        let users = array(shown.map(|(user, account)| account.to_document(user)));
        Ok(document! { "users": users })
    }

    /// Makes the credentials of `hashes`, or of all if it is empty, and drops the others.
    fn set_password(
        &self,
        random: &mut Random,
        user: &UserName,
        account: &mut Account,
        password: &str,
        hashes: &[ScramHash],
    ) -> Result<(), CommandFailure> {
        if password.is_empty() {
            return Err(fail(50687, "Password cannot be empty"));
        }
        let password = Secret::from(password);
        let mut make = |hash: ScramHash| match hashes.is_empty() || hashes.contains(&hash) {
            true => self.store(random, hash, &user.name, &password).map(Some),
            false => Ok(None),
        };
        (account.sha_1, account.sha_256) = (make(ScramHash::Sha1)?, make(ScramHash::Sha256)?);
        Ok(())
    }

    /// The slow part.
    fn store(
        &self,
        random: &mut Random,
        hash: ScramHash,
        name: &str,
        password: &Secret,
    ) -> Result<StoredKeys, CommandFailure> {
        let made = match hash {
            ScramHash::Sha1 => StoredKeys::new(hash, name, password, &bytes::<16>(random), self.iterations.0),
            ScramHash::Sha256 => StoredKeys::new(hash, name, password, &bytes::<28>(random), self.iterations.1),
        };
        made.map_err(|error| fail(2, error.to_string()))
    }
}

/// Random bytes.
pub(super) fn bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    let mut bytes = [0; N];
    for piece in bytes.chunks_mut(8) {
        piece.copy_from_slice(&random.next_u64().to_le_bytes()[..piece.len()]);
    }
    bytes
}

fn root() -> RawArrayBuf {
    let mut roles = RawArrayBuf::new();
    roles.push(document! { "role": "root", "db": "admin" });
    roles
}

/// Roles as they are shown: a name alone is a role of the user's own database.
fn roles_on(database: &str, roles: &bson::RawArray) -> RawArrayBuf {
    let mut full = RawArrayBuf::new();
    for role in roles.into_iter().map_while(Result::ok) {
        match role.as_str() {
            Some(name) => full.push(document! { "role": name, "db": database }),
            None => full.push(role),
        }
    }
    full
}

fn mechanisms(arguments: Arguments<'_>) -> Result<Vec<ScramHash>, CommandFailure> {
    let Some(names) = arguments.texts("mechanisms")? else { return Ok(Vec::new()) };
    let hashes: Result<Vec<_>, _> = names
        .map(|name| match name {
            "SCRAM-SHA-1" => Ok(ScramHash::Sha1),
            "SCRAM-SHA-256" => Ok(ScramHash::Sha256),
            other => Err(fail(2, format!("Unknown auth mechanism '{other}'"))),
        })
        .collect();
    match hashes {
        Ok(hashes) if hashes.is_empty() => Err(fail(2, "mechanisms field must not be empty")),
        hashes => hashes,
    }
}

/// A user as `usersInfo` names it: by name, or by name and database.
fn one(value: RawBsonRef<'_>, database: &str) -> Option<UserName> {
    if let Some(name) = value.as_str() {
        return Some(UserName::new(database, name));
    }
    let user = value.as_document()?;
    Some(UserName::new(user.get_str("db").ok()?, user.get_str("user").ok()?))
}

fn named(request: &Request<'_>) -> Result<UserName, CommandFailure> {
    match request.arguments.text(request.name)? {
        Some(name) if !name.is_empty() => Ok(UserName::new(request.database, name)),
        Some(_) | None => Err(fail(2, "User document needs 'user' field to be non-empty")),
    }
}

fn not_found(user: &UserName) -> CommandFailure {
    fail(11, format!("User '{user}' not found"))
}
