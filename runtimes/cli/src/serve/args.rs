//! The command line of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cmap_core::options::Secret;
use cmap_core::wire::CompressorId;
use cmap_test_server::store::StoreLimits;
use cmap_test_server::{KNOWN, MemberConfig, MemberRole, ServerVersion, SetConfig, User};

use super::ServeError;

/// How to serve.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// The port; 0 is one that is free, and is printed
    #[arg(long, value_name = "N", default_value_t = 27017)]
    pub(crate) port: u16,

    /// Require a login as this user: by SCRAM on `admin`, by PLAIN on `$external`. May be given several times
    #[arg(long, value_name = "USER:PASSWORD", value_parser = Login::parse)]
    pub(crate) auth: Vec<Login>,

    /// Speak TLS on every connection
    #[arg(long)]
    pub(crate) tls: bool,

    /// Where to write the certificates that clients need; by default a temporary folder
    #[arg(long, value_name = "DIR", requires = "tls")]
    pub(crate) certificates: Option<PathBuf>,

    /// Have a certificate for another host
    #[arg(long, requires = "tls")]
    pub(crate) wrong_host: bool,

    /// The version of MongoDB to be: 7.0, or 8.0, which has `bulkWrite`
    #[arg(long, value_name = "VERSION", default_value = ServerVersion::default().name(), value_parser = version)]
    pub server_version: ServerVersion,

    /// The compressors to agree on, separated by commas; none if it is empty or `disabled`
    #[arg(long, value_name = "LIST", default_value = "snappy,zstd,zlib", value_parser = Compressors::parse)]
    pub(crate) compressors: Compressors,

    /// Answer a hello that says `loadBalanced: true` with a service id
    #[arg(long)]
    pub(crate) load_balanced: bool,

    /// Be a replica set of this name: its primary and only member, or see --members
    #[arg(long, value_name = "NAME")]
    pub(crate) replica_set: Option<String>,

    /// The number of members, each on a port of its own: consecutive ones from --port on, or any that are free
    #[arg(long, value_name = "N", requires = "replica_set", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) members: u16,

    /// Be so many mongos of a sharded cluster, each on a port of its own, with the same documents
    #[arg(long, value_name = "N", conflicts_with_all = ["replica_set", "load_balanced"], value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(crate) sharded: Option<u16>,

    /// Have a DNS server, too, by which `mongodb+srv://NAME/?tls=false` leads to the servers; its address is printed
    #[arg(long, value_name = "NAME", conflicts_with = "tls", value_parser = srv_name)]
    pub(crate) srv: Option<String>,

    /// Replica sets of several members.
    #[command(flatten)]
    pub(crate) set: SetArgs,

    /// What clients may use.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Print where it listens as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// End when standard input does
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
}

/// Replica sets of several members.
#[derive(Args, Debug)]
#[command(next_help_heading = "Replica sets of several members")]
pub(crate) struct SetArgs {
    /// The last member is an arbiter
    #[arg(long)]
    pub(crate) arbiter: bool,

    /// A member's tags: the member's number from 0 on, and pairs. May be given several times
    #[arg(long, value_name = "N=NAME:VALUE,..", value_parser = Tags::parse)]
    pub(crate) tags: Vec<Tags>,

    /// How long the set is without a primary that was killed, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub(crate) election_timeout: u64,

    /// How much later than the primary the secondaries have what was written, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub(crate) lag: u64,
}

/// The tags of one member.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    member: usize,
    pairs: Vec<(String, String)>,
}

/// What clients may use. What goes beyond is an error of the command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Of all documents, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) memory: usize,

    /// Of the changes that change streams can still read, in MiB: only servers of a cluster have them
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub history_memory: usize,

    /// Of what one command gathers, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 100)]
    pub(crate) command_memory: usize,

    /// Of the work of one command, in milliseconds: steps are counted, 30,000 to the millisecond
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub(crate) command_time: u64,

    /// Of open cursors
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) cursors: usize,

    /// Of the results in open cursors, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub(crate) cursor_memory: usize,

    /// How long a cursor may be idle, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) cursor_timeout: u64,
}

/// A version that the test server can be.
fn version(text: &str) -> Result<ServerVersion, String> {
    let known = ServerVersion::ALL.map(ServerVersion::name).join(", ");
    ServerVersion::from_name(text).ok_or_else(|| format!("a version is needed that the test server can be: {known}"))
}

/// The host of a `mongodb+srv` connection string.
fn srv_name(text: &str) -> Result<String, &'static str> {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match text.len() <= 200 && text.split('.').all(is_part) {
        true => Ok(text.to_owned()),
        false => Err("a name of letters, digits, hyphens and dots is needed"),
    }
}

/// A user and a password.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    name: String,
    password: Secret,
}

/// A list of compressors.
#[derive(Clone, Debug)]
pub(crate) struct Compressors(pub(crate) Vec<CompressorId>);

impl Login {
    /// Splits at the first colon.
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.split_once(':') {
            Some((name, password)) if !name.is_empty() => Ok(Self { name: name.into(), password: password.into() }),
            Some(_) | None => Err("a user and a password are needed, with a colon between them"),
        }
    }

    pub(super) fn to_user(&self) -> User {
        User::Password { name: self.name.clone(), password: self.password.clone() }
    }
}

impl SetArgs {
    /// Refuses what would have no effect.
    ///
    /// # Errors
    /// An option needs more members.
    pub(super) fn check(&self, members: u16) -> Result<(), ServeError> {
        let given = [("--arbiter", self.arbiter), ("--tags", !self.tags.is_empty()), ("--lag", self.lag > 0)];
        if let Some((option, _)) = given.into_iter().find(|&(_, is_given)| is_given && members < 2) {
            return Err(ServeError::OneMember { option });
        }
        match self.tags.iter().find(|tags| tags.member >= usize::from(members)) {
            Some(tags) => Err(ServeError::NoMember { member: tags.member, last: members.saturating_sub(1) }),
            None => Ok(()),
        }
    }

    /// The set of these members.
    pub(super) fn to_set(&self, name: &str, hosts: Vec<String>) -> SetConfig {
        let last = hosts.len().saturating_sub(1);
        let member = |(index, host): (usize, String)| {
            let mut member = MemberConfig::new(i32::try_from(index).unwrap_or(i32::MAX), host);
            if self.arbiter && index == last && index > 0 {
                member = member.with_role(MemberRole::Arbiter);
            }
            let tags = self.tags.iter().filter(|tags| tags.member == index).flat_map(|tags| &tags.pairs);
            tags.fold(member, |member, (name, value)| member.with_tag(name, value))
        };
        SetConfig::new(name, hosts.into_iter().enumerate().map(member).collect())
    }
}

impl Tags {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "a member's number is needed, and after `=` pairs such as `dc:ny,use:reporting`";
        let (member, pairs) = text.split_once('=').ok_or(FORM)?;
        let pair =
            |pair: &str| pair.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or(FORM);
        let pairs = pairs.split(',').map(pair).collect::<Result<_, _>>()?;
        Ok(Self { member: member.parse().map_err(|_| FORM)?, pairs })
    }
}

impl LimitArgs {
    pub(super) fn to_limits(&self) -> StoreLimits {
        const MIB: usize = 1 << 20;
        let mut limits = StoreLimits::default();
        limits.bytes = self.memory.saturating_mul(MIB);
        limits.history_bytes = self.history_memory.saturating_mul(MIB);
        limits.command_bytes = self.command_memory.saturating_mul(MIB);
        limits.command_time = Duration::from_millis(self.command_time);
        limits.cursors = self.cursors;
        limits.cursor_bytes = self.cursor_memory.saturating_mul(MIB);
        limits.cursor_timeout = Duration::from_secs(self.cursor_timeout);
        limits
    }
}

/// The end of `--help`: an example, and the names that the server knows.
pub(crate) fn help() -> String {
    let mut text = format!("{EXAMPLE}\nWhat it knows; anything else is refused:\n");
    for known in KNOWN {
        let mut line = format!("  {}:", known.subject);
        for (index, name) in known.names.iter().enumerate() {
            if line.len() + name.len() + 2 > WIDTH {
                text.push_str(&line);
                text.push('\n');
                line = "   ".to_owned();
            }
            line.push(' ');
            line.push_str(name);
            if index + 1 < known.names.len() {
                line.push(',');
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(DEPLOYMENTS);
    text + "\nDetails are in the README of cmap-test-server."
}

const EXAMPLE: &str = "\
Example:
  cmap serve --port 0 --auth app:secret --replica-set rs0 --members 3

Exit status: 0 when standard input has ended, 2 if it cannot serve.
";

/// The commands about deployments, for `--help`.
const DEPLOYMENTS: &str = "\
Administrators may change a deployment of several servers:
  { replSetStepDown: SECONDS }, { replSetStepUp: 1 }, { replSetFreeze: SECONDS }
  { replSetReconfig: CONFIG }: add, remove and hide members, change tags; there
    is a server at the host of a member that was added
  { testDeployment: \"kill\", member: \"HOST:PORT\" }: it listens no more
  { testDeployment: \"restart\", member: \"HOST:PORT\" }: with what it had
  { testDeployment: \"lag\", member: \"HOST:PORT\", milliseconds: N }
";

/// The width of a terminal.
const WIDTH: usize = 80;

impl Compressors {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == "disabled" {
            return Ok(Self(Vec::new()));
        }
        let known =
            |name: &str| CompressorId::from_name(name).ok_or_else(|| format!("there is no compressor `{name}`"));
        text.split(',').map(known).collect::<Result<_, _>>().map(Self)
    }
}
