//! The checks, in the order of the table. What each one does is written in the programs, under the same name.

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name in the programs, in the table and on the command line.
    pub name: &'static str,
    /// What it asks of the servers.
    pub needs: Needs,
    /// Which programs make it.
    pub makers: Makers,
    /// Whether it is made through the hub, too: it is about commands and logins, and needs no fail points.
    pub through_hub: bool,
}

/// Which programs make a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makers {
    /// All of them.
    All,
    /// Only ours: it is about our adapters.
    Ours,
}

/// What a check asks of the servers. Each includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Commands that any server of the protocol has.
    Commands,
    /// The exact behaviour of MongoDB.
    MongoDb,
    /// Servers that were started for the checks, with options and fail points.
    Embedded,
}

/// All checks.
pub const ALL: &[Check] = &[
    embedded("scram-sha-1").through_hub(),
    embedded("scram-sha-256").through_hub(),
    embedded("scram-sha-256-saslprep").through_hub(),
    embedded("scram-default").through_hub(),
    embedded("plain"),
    embedded("x509"),
    embedded("encrypted-client-key"),
    embedded("wrong-password").through_hub(),
    embedded("unknown-x509-user"),
    embedded("wrong-certificate"),
    embedded("wrong-host-name"),
    embedded("compressor-snappy"),
    embedded("compressor-zlib"),
    embedded("compressor-zstd"),
    commands("ping").through_hub(),
    commands("crud").through_hub(),
    embedded("create-user"),
    commands("unknown-command").through_hub(),
    mongodb("unacknowledged-write").through_hub(),
    commands("large-document").through_hub(),
    mongodb("too-large-document").through_hub(),
    commands("large-batch").through_hub(),
    mongodb("cursor-get-mores").through_hub(),
    commands("kill-cursors").through_hub(),
    embedded("fail-point-error-code"),
    embedded("fail-point-close-connection"),
    embedded("fail-point-block-connection"),
    embedded("fail-point-times"),
    embedded("fail-point-app-name"),
    embedded("error-labels"),
    embedded("streaming-hello"),
    embedded("replica-set"),
    embedded("load-balanced").through_hub(),
    commands("threads-32").through_hub(),
    commands("pool-events"),
    embedded("set-secondary-reads"),
    embedded("set-step-down"),
    embedded("set-kill"),
    embedded("set-change-stream"),
    embedded("set-srv"),
    Check { makers: Makers::Ours, ..commands("cmap-tokio") },
    Check { makers: Makers::Ours, ..commands("cmap-async-std") },
    Check { makers: Makers::Ours, ..commands("cmap-smol") },
    Check { makers: Makers::Ours, ..embedded("cmap-tokio-scram-tls") },
    Check { makers: Makers::Ours, ..embedded("cmap-async-std-scram-tls") },
    Check { makers: Makers::Ours, ..embedded("cmap-smol-scram-tls") },
];

/// The check of this name.
pub fn by_name(name: &str) -> Option<&'static Check> {
    ALL.iter().find(|check| check.name == name)
}

/// The names of all checks.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|check| check.name)
}

const fn commands(name: &'static str) -> Check {
    Check { name, needs: Needs::Commands, makers: Makers::All, through_hub: false }
}

const fn mongodb(name: &'static str) -> Check {
    Check { name, needs: Needs::MongoDb, makers: Makers::All, through_hub: false }
}

const fn embedded(name: &'static str) -> Check {
    Check { name, needs: Needs::Embedded, makers: Makers::All, through_hub: false }
}

impl Check {
    const fn through_hub(self) -> Self {
        Self { through_hub: true, ..self }
    }
}
