//! Reads the configuration, and checks it.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cmap_core::options::{ClientOptions, Credential, Secret};
use cmap_core::wire::CompressorId;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::listen::{self, ListenTable};
use super::log::{Log, LogTable};
use super::memory::{default_budget, per_user};
use super::reverse::{self, ReverseTable};
use super::{Config, ConfigError, Keys, Limits, Places, PlacesAsked};
use crate::protocol::{DoorLimits, MemoryLimits, QueueLimits};
use crate::users;

/// How many connections upstream a server has if the connection string does not say.
const CONNECTIONS: u32 = 20;

/// How many strangers there may be unless it is said: drivers that open all of their connections at once are strangers for the milliseconds of
/// their login.
const MOST_STRANGERS: usize = 2_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    users: Option<PathBuf>,
    upstream: UpstreamTable,
    #[serde(default)]
    listen: Vec<ListenTable>,
    compressors: Option<Vec<String>>,
    #[serde(default)]
    status: StatusTable,
    #[serde(default)]
    control: ControlTable,
    #[serde(default)]
    log: LogTable,
    #[serde(default)]
    limits: LimitsTable,
    #[serde(default = "drain_seconds")]
    drain_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UpstreamTable {
    uri: Option<String>,
    uri_file: Option<PathBuf>,
    #[serde(default)]
    identity: BTreeMap<String, IdentityTable>,
    #[serde(default = "patience_ms")]
    patience_ms: u64,
    #[serde(default = "retries")]
    retries: bool,
    client_metadata: Option<bool>,
    reverse: Option<ReverseTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct IdentityTable {
    username: String,
    password_file: PathBuf,
    #[serde(default = "admin")]
    source: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StatusTable {
    address: Option<SocketAddr>,
    histograms: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlTable {
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct LimitsTable {
    running: Option<u32>,
    reserved: Option<u32>,
    running_per_user: Option<u32>,
    awaiting: Option<u32>,
    waiting: usize,
    waiting_per_user: usize,
    waiting_bytes: usize,
    wait_ms: u64,
    base_backoff_ms: u64,
    connections: usize,
    connections_per_address: usize,
    connections_per_user: usize,
    strangers: Option<usize>,
    strangers_per_address: Option<usize>,
    sessions_per_user: usize,
    memory_bytes: Option<usize>,
    memory_per_user: Option<usize>,
}

impl LimitsTable {
    fn places(&self) -> PlacesAsked {
        let Self { running, reserved, running_per_user, awaiting, .. } = *self;
        PlacesAsked { running, reserved, running_per_user, awaiting }
    }

    fn memory(&self, users: usize) -> MemoryLimits {
        let budget = self.memory_bytes.unwrap_or_else(default_budget);
        MemoryLimits { budget, per_user: per_user(self.memory_per_user, budget, users) }
    }
}

impl Default for LimitsTable {
    fn default() -> Self {
        Self {
            running: None,
            reserved: None,
            running_per_user: None,
            awaiting: None,
            waiting: 1_000,
            waiting_per_user: 500,
            waiting_bytes: 256 * 1024 * 1024,
            wait_ms: 10_000,
            base_backoff_ms: 100,
            connections: 10_000,
            connections_per_address: 5_000,
            connections_per_user: 5_000,
            strangers: None,
            strangers_per_address: None,
            sessions_per_user: 100_000,
            memory_bytes: None,
            memory_per_user: None,
        }
    }
}

fn drain_seconds() -> u64 {
    10
}

fn patience_ms() -> u64 {
    15_000
}

fn retries() -> bool {
    true
}

fn admin() -> String {
    "admin".into()
}

/// Reads and checks the configuration in a file, and the files that it names, relative to its folder.
///
/// # Errors
/// A file, a key or a value cannot be used.
pub fn read(path: &Path) -> Result<Config, ConfigError> {
    let text = Zeroizing::new(read_text(path)?);
    let file: File = toml::from_str(&text).map_err(|error| form(path, &text, &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let config = Check { path, folder, secret_files: RefCell::default() }.config(file)?;
    Ok(Config { keys: Keys::of(&text, folder), ..config })
}

/// Where the hub of a configuration takes orders. The rest of the file is not looked at: it may have a mistake by now.
///
/// # Errors
/// The file cannot be read, or names no control socket.
pub fn control_path(path: &Path) -> Result<PathBuf, ConfigError> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(default)]
        control: ControlTable,
    }

    let text = Zeroizing::new(read_text(path)?);
    let Only { control } = toml::from_str(&text).map_err(|error| form(path, &text, &error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let check = Check { path, folder, secret_files: RefCell::default() };
    let missing = || check.value("control.path", "(missing)", "write it, so that the hub has a control socket");
    Ok(check.folder.join(control.path.ok_or_else(missing)?))
}

/// Checks a file, and names it in every error.
pub(super) struct Check<'a> {
    path: &'a Path,
    pub(super) folder: &'a Path,
    /// The files so far that hold a secret.
    secret_files: RefCell<Vec<PathBuf>>,
}

impl Check<'_> {
    fn config(&self, file: File) -> Result<Config, ConfigError> {
        let UpstreamTable { uri, uri_file, identity, patience_ms, retries, client_metadata, reverse } = file.upstream;
        let is_here = uri.is_some();
        let uri = match (uri, uri_file) {
            (Some(uri), None) => Zeroizing::new(uri),
            (None, Some(file)) => self.secret(&file)?,
            (Some(_), Some(_)) => {
                return Err(self.value("upstream.uri-file", "..", "write it, or `uri`, and not both"));
            }
            (None, None) => return Err(self.value("upstream.uri", "(missing)", "write it, or `uri-file`")),
        };
        let (mut upstream, warnings) =
            ClientOptions::parse(&uri).map_err(|source| ConfigError::Uri { path: self.path.into(), source })?;
        if is_here && upstream.credential.as_ref().is_some_and(|own| own.password.is_some()) {
            self.secret_files.borrow_mut().push(self.path.into());
        }
        if upstream.load_balanced == Some(true) {
            let rule = "the hub keeps cursors to their servers and not to connections; name the servers themselves";
            return Err(self.value("upstream.uri", "..loadBalanced=true", rule));
        }
        if upstream.timeout.is_some() {
            let rule = "clients set the time of their commands; remove it, and see upstream.patience-ms";
            return Err(self.value("upstream.uri", "..timeoutMS=", rule));
        }
        let connections = *upstream.pool.max_pool_size.get_or_insert(CONNECTIONS);
        let identities = identity.into_iter().map(|(name, table)| Ok((name, self.identity(table)?)));
        let identities = identities.collect::<Result<BTreeMap<_, _>, ConfigError>>()?;
        file.users.iter().for_each(|path| self.note_secret(path));
        let users = file.users.map(|path| users::read(&self.folder.join(path))).transpose()?;
        let unknown = users.iter().flatten().find_map(|user| {
            let upstream = user.upstream.as_deref()?;
            (!identities.contains_key(upstream))
                .then(|| (format!("user {:?}: upstream", user.name), upstream.to_owned()))
        });
        if let Some((key, value)) = unknown {
            return Err(self.value(
                &key,
                &value,
                "write a table upstream.identity of this name into the configuration",
            ));
        }
        let count = users.iter().flatten().count();
        let listeners = listen::check(self, file.listen, users.is_some())?;
        Ok(Config {
            path: self.path.into(),
            keys: Keys::default(),
            control: file.control.path.map(|path| self.folder.join(path)),
            upstream,
            warnings,
            identities,
            reverse: reverse.map(|table| reverse::check(self, table)).transpose()?,
            patience: Duration::from_millis(self.positive("upstream.patience-ms", patience_ms)?),
            retries,
            client_metadata: client_metadata.unwrap_or(true),
            listeners,
            compressors: self.compressors(file.compressors)?,
            status: file.status.address,
            histograms: file.status.histograms.unwrap_or(true),
            users,
            limits: self.limits(&file.limits, connections, count)?,
            places: file.limits.places(),
            memory_per_user: file.limits.memory_per_user,
            secret_files: self.secret_files.take(),
            drain: Duration::from_secs(file.drain_seconds),
            log: Log::read(self, file.log)?,
        })
    }

    fn identity(&self, table: IdentityTable) -> Result<Credential, ConfigError> {
        let password = Secret::from(self.secret(&table.password_file)?);
        let credential = Credential::new(table.username.clone(), password, table.source);
        match credential.check() {
            Ok(()) => Ok(credential),
            Err(_) => Err(self.value("upstream.identity..username", &table.username, "write a user name and a source")),
        }
    }

    /// All of them, unless it is said which.
    fn compressors(&self, names: Option<Vec<String>>) -> Result<Vec<CompressorId>, ConfigError> {
        let offered = |id: &CompressorId| *id != CompressorId::Noop && id.is_built_in();
        let Some(names) = names else { return Ok(CompressorId::ALL.into_iter().filter(offered).collect()) };
        let compressor = |name: String| {
            let id = CompressorId::from_name(&name).filter(offered);
            id.ok_or_else(|| self.value("compressors", &name, "write snappy, zlib, zstd, or none of them"))
        };
        names.into_iter().map(compressor).collect()
    }

    fn limits(&self, table: &LimitsTable, connections: u32, users: usize) -> Result<Limits, ConfigError> {
        let Places { running, reserved, running_per_user, awaiting } = table.places().before(connections, users);
        for (key, value) in
            [("limits.running", running), ("limits.running-per-user", running_per_user), ("limits.awaiting", awaiting)]
        {
            self.positive(key, value.into())?;
        }
        if table.reserved.is_some_and(|reserved| reserved >= running) {
            let rule = "fewer than `running`, or ordinary commands would have no place";
            return Err(self.value("limits.reserved", &table.reserved.unwrap_or_default().to_string(), rule));
        }
        // Half of the places are for those who have logged in.
        let strangers = table.strangers.unwrap_or(table.connections.div_ceil(2).min(MOST_STRANGERS));
        let strangers_per_address = table.strangers_per_address.unwrap_or(strangers.div_ceil(2));
        for (key, value) in [
            ("limits.connections", table.connections),
            ("limits.strangers", strangers),
            ("limits.strangers-per-address", strangers_per_address),
            ("limits.connections-per-address", table.connections_per_address),
            ("limits.connections-per-user", table.connections_per_user),
            ("limits.sessions-per-user", table.sessions_per_user),
            ("limits.memory-bytes", table.memory_bytes.unwrap_or(1)),
            ("limits.memory-per-user", table.memory_per_user.unwrap_or(1)),
        ] {
            self.positive(key, value as u64)?;
        }
        let queue = QueueLimits {
            running,
            reserved,
            running_per_user,
            awaiting,
            waiting: table.waiting,
            waiting_per_user: table.waiting_per_user,
            waiting_bytes: table.waiting_bytes,
        };
        let doors = DoorLimits {
            connections: table.connections,
            per_address: table.connections_per_address,
            per_user: table.connections_per_user,
            strangers,
            strangers_per_address,
        };
        Ok(Limits {
            queue,
            doors,
            memory: table.memory(users),
            sessions_per_user: table.sessions_per_user,
            wait: Duration::from_millis(table.wait_ms),
            base_backoff: Duration::from_millis(self.positive("limits.base-backoff-ms", table.base_backoff_ms)?),
        })
    }

    pub(super) fn positive(&self, key: &str, value: u64) -> Result<u64, ConfigError> {
        if value > 0 { Ok(value) } else { Err(self.value(key, "0", "write at least 1")) }
    }

    /// The first line of a file, which holds a secret.
    pub(super) fn secret(&self, file: &Path) -> Result<Zeroizing<String>, ConfigError> {
        self.note_secret(file);
        let text = self.text(file)?;
        Ok(Zeroizing::new(text.lines().next().unwrap_or_default().trim_end().to_owned()))
    }

    /// The file holds a secret.
    pub(super) fn note_secret(&self, file: &Path) {
        self.secret_files.borrow_mut().push(self.folder.join(file));
    }

    pub(super) fn text(&self, file: &Path) -> Result<Zeroizing<String>, ConfigError> {
        Ok(Zeroizing::new(read_text(&self.folder.join(file))?))
    }

    pub(super) fn value(&self, key: &str, value: &str, rule: &'static str) -> ConfigError {
        ConfigError::Value { path: self.path.into(), key: key.into(), value: value.into(), rule }
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })
}

/// The line is named, and its key; its value may be secret.
fn form(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start));
    let place = before.map(|before| {
        let number = before.matches('\n').count();
        let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        match key {
            Some(key) => format!("line {}, {key}: ", number + 1),
            None => format!("line {}: ", number + 1),
        }
    });
    ConfigError::Form { path: path.into(), problem: format!("{}{}", place.unwrap_or_default(), error.message()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[upstream]\nuri = 'mongodb://h/'\n[[listen]]\naddress = '127.0.0.1:0'\n";

    fn read_config(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        fs::write(&path, text).unwrap();
        let shown = folder.path().display().to_string();
        read(&path).map_err(|error| error.to_string().replace(&format!("{shown}/"), ""))
    }

    #[test]
    fn the_pool_limits_what_runs_unless_it_is_said() {
        let config = read_config(LEAST).unwrap();
        assert_eq!((config.limits.queue.running, config.limits.queue.reserved), (20, 2));

        let config = read_config(&LEAST.replace("h/", "h/?maxPoolSize=1")).unwrap();
        assert_eq!((config.limits.queue.running, config.limits.queue.reserved), (1, 0));
    }

    #[test]
    fn one_user_of_several_leaves_places_to_the_others_unless_it_is_said_x_135() {
        let places = |asked: PlacesAsked, connections, users| {
            let Places { running_per_user, awaiting, .. } = asked.before(connections, users);
            (running_per_user, awaiting)
        };

        for (connections, users, expected) in [
            (20, 2, (14, 14)),
            (20, 1, (20, 14)),
            (20, 0, (20, 14)),
            (3, 2, (1, 1)),
            (1, 2, (1, 1)),
            (100, 9, (68, 68)),
        ] {
            assert_eq!(places(PlacesAsked::default(), connections, users), expected, "{connections}, {users}");
        }
        let asked = PlacesAsked { running_per_user: Some(20), awaiting: Some(3), ..PlacesAsked::default() };
        assert_eq!(places(asked, 20, 2), (20, 3));
    }

    #[test]
    fn a_pool_that_ordinary_commands_can_fill_is_warned_of_x_135() {
        let advice = |query: &str, limits: &str| {
            let text = LEAST.replace("h/", &format!("h/?{query}"));
            read_config(&format!("{text}[limits]\n{limits}")).unwrap().advice().pop()
        };

        for (query, limits) in [
            ("", ""),
            ("maxPoolSize=1", ""),
            ("maxPoolSize=20", "running = 21\nreserved = 2"),
            ("maxPoolSize=20", "running = 100\nreserved = 0"),
            ("maxPoolSize=0", "running = 100"),
        ] {
            assert_eq!(advice(query, limits), None, "{query} {limits}");
        }
        let told = advice("maxPoolSize=20", "running = 22").unwrap();
        assert!(told.contains("raise maxPoolSize in upstream.uri, or lower limits.running"), "{told}");
    }

    #[test]
    fn what_strangers_can_reach_or_read_is_warned_of() {
        let advice = |text: &str| read_config(text).unwrap().advice();
        assert_eq!(advice(LEAST), [""; 0]);

        let told = advice(&format!("{LEAST}[status]\naddress = '0.0.0.0:9217'\n"));
        assert!(told[0].starts_with("status.address 0.0.0.0:9217 can be reached from other machines"), "{told:?}");
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users.toml");
        users::add(&users, &users::NewUser { name: "app".into(), password: Secret::from("secret"), upstream: None })
            .unwrap();
        let told = advice(&format!("users = '{}'\n{}", users.display(), LEAST.replace("127.0.0.1", "0.0.0.0")));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("listen.address 0.0.0.0:0 has no certificate"), "{told:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_with_a_secret_that_everybody_can_read_is_warned_of() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let (path, password) = (folder.path().join("hub.toml"), folder.path().join("writer.password"));
        let identity = "[upstream.identity.writer]\nusername = 'writer'\npassword-file = 'writer.password'\n";
        fs::write(&path, LEAST.replace("//h", "//hub:secret@h") + identity).unwrap();
        fs::write(&password, "secret").unwrap();
        let advice = |mode| {
            for file in [&path, &password] {
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
            }
            read(&path).unwrap().advice()
        };

        assert_eq!(advice(0o640), [""; 0]);
        let told = advice(0o644);
        assert!(told[0].starts_with(&format!("{} holds a secret", path.display())), "{told:?}");
        assert!(told[1].starts_with(&format!("{} holds a secret", password.display())), "{told:?}");
    }

    #[test]
    fn a_mistake_is_named_with_file_key_value_and_rule() {
        for (text, told) in [
            (
                LEAST.replace("[[listen]]", "[[listen]]\ncert = 'x'"),
                "hub.toml: line 4, cert: unknown field `cert`, expected one of `address`, `unix`, `certificate`, `client-authorities`, `proxy-from`, `mode`, `group`",
            ),
            (
                LEAST.replace("127.0.0.1", "0.0.0.0"),
                "hub.toml: listen.address = 0.0.0.0:0: without `users` anybody who reaches the hub may use it; name a users \
                 file, or listen on 127.0.0.1 or a Unix socket",
            ),
            (
                LEAST.replace("h/", "h/?loadBalanced=true"),
                "hub.toml: upstream.uri = ..loadBalanced=true: the hub keeps cursors to their servers and not to \
                 connections; name the servers themselves",
            ),
            (
                format!("compressors = ['lz4']\n{LEAST}"),
                "hub.toml: compressors = lz4: write snappy, zlib, zstd, or none of them",
            ),
            (format!("{LEAST}[limits]\nconnections = 0\n"), "hub.toml: limits.connections = 0: write at least 1"),
            (
                format!("{LEAST}[limits]\nwaiting = 'x'\n"),
                "hub.toml: line 6, waiting: invalid type: string \"x\", expected usize",
            ),
            (
                format!("{LEAST}[limits]\nrunning = 2\nreserved = 2\n"),
                "hub.toml: limits.reserved = 2: fewer than `running`, or ordinary commands would have no place",
            ),
            (
                LEAST.replace("uri", "uri-file"),
                "mongodb://h/: the file cannot be read; does it exist, and may the hub read it?",
            ),
            (
                format!("users = 'none'\n{LEAST}"),
                "none: the users file cannot be read; does it exist, and may the hub read it?",
            ),
            (
                LEAST.replace("[[listen]]\naddress = '127.0.0.1:0'\n", ""),
                "hub.toml: listen = (missing): write a table [[listen]] with `address` or `unix`",
            ),
            (
                format!("{LEAST}proxy-from = ['10.0.0.0/33']\n"),
                "hub.toml: listen.proxy-from = 10.0.0.0/33: write the proxies' addresses or networks, such as 10.0.0.5 or 10.0.0.0/8",
            ),
            (
                format!("{LEAST}client-authorities = 'ca.pem'\n"),
                "hub.toml: listen.client-authorities = ca.pem: clients show certificates under TLS alone; name a `certificate` of the \
                 hub, too",
            ),
        ] {
            assert_eq!(read_config(&text).unwrap_err(), told, "{text}");
        }
    }

    #[test]
    fn a_mistake_of_a_token_is_named_without_its_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (path, secret) = (folder.path().join("hub.toml"), folder.path().join("secret"));
        fs::write(&secret, "tiger").unwrap();
        fs::write(folder.path().join("cert"), "").unwrap();
        let section = "[upstream.reverse]\naddress = '127.0.0.1:0'\ncertificate = 'cert'\n";
        let token = |members: &str| {
            format!("{section}[[upstream.reverse.token]]\nname = 'db'\nsecret-file = 'secret'\nmembers = [{members}]\n")
        };
        let told = |section: &str| {
            fs::write(&path, format!("{LEAST}{section}")).unwrap();
            read(&path).unwrap_err().to_string()
        };

        assert!(told(section).contains("upstream.reverse.token = (missing): nobody would be let in"));
        let short = told(&token("'db.example:27017'"));
        assert!(short.contains("the secret has at least 16 bytes") && !short.contains("tiger"), "{short}");
        fs::write(&secret, "0123456789abcdef").unwrap();
        assert!(told(&token("")).contains("upstream.reverse.token.members = []"));
        assert!(told(&token("'db:0'")).contains("upstream.reverse.token.members = db:0: write the members"));
        let named = token("'db.example:27017'");
        let second = named.strip_prefix(section).unwrap();
        assert!(
            told(&format!("{named}{second}")).contains("upstream.reverse.token.name = db: two tokens have this name")
        );
        let greedy = named.replacen("certificate", "wanted = 300\ncertificate", 1);
        assert!(told(&greedy).contains("upstream.reverse.wanted = 300: an agent may have at most 256 sockets parked"));
        fs::write(&path, format!("{LEAST}{named}")).unwrap();
        let options = read(&path).unwrap().reverse.unwrap().options;
        assert_eq!((options.wanted, options.limits.max_failures), (4, 20));
        let patient = named.replacen("certificate", "max-failures = 50\ncertificate", 1);
        fs::write(&path, format!("{LEAST}{patient}")).unwrap();
        assert_eq!(read(&path).unwrap().reverse.unwrap().options.limits.max_failures, 50);
    }

    #[test]
    fn the_control_socket_is_found_though_the_rest_has_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        fs::write(&path, "no-such-key = 1\n[control]\npath = 'control.sock'\n").unwrap();
        assert_eq!(control_path(&path).unwrap(), folder.path().join("control.sock"));

        fs::write(&path, LEAST).unwrap();
        let told = control_path(&path).unwrap_err().to_string();
        assert!(told.ends_with("control.path = (missing): write it, so that the hub has a control socket"), "{told}");
    }

    #[test]
    fn no_secret_is_in_an_error() {
        let told = read_config(&LEAST.replace("mongodb://h/", "mongodb://u:tiger@h:port/")).unwrap_err();

        assert!(told.contains("upstream.uri") && !told.contains("tiger"), "{told}");
    }
}
