//! The command line of `serve`.

use std::path::PathBuf;

use clap::Args;
use cmap_core::options::Secret;
use cmap_core::wire::CompressorId;
use cmap_test_server::User;

/// How to serve.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,

    /// The port; 0 is one that is free, and is printed
    #[arg(long, value_name = "N", default_value_t = 27017)]
    pub port: u16,

    /// Require a login as this user: by SCRAM on `admin`, by PLAIN on `$external`. May be given several times
    #[arg(long, value_name = "USER:PASSWORD", value_parser = Login::parse)]
    pub auth: Vec<Login>,

    /// Speak TLS on every connection
    #[arg(long)]
    pub tls: bool,

    /// Where to write the certificates that clients need; by default a temporary folder
    #[arg(long, value_name = "DIR", requires = "tls")]
    pub certificates: Option<PathBuf>,

    /// Have a certificate for another host
    #[arg(long, requires = "tls")]
    pub wrong_host: bool,

    /// The compressors to agree on, separated by commas; none if it is empty or `disabled`
    #[arg(long, value_name = "LIST", default_value = "snappy,zstd,zlib", value_parser = Compressors::parse)]
    pub compressors: Compressors,

    /// Answer a hello that says `loadBalanced: true` with a service id
    #[arg(long)]
    pub load_balanced: bool,

    /// Be the primary of a replica set of one member
    #[arg(long, value_name = "NAME")]
    pub replica_set: Option<String>,

    /// End when standard input does
    #[arg(long)]
    pub until_stdin_ends: bool,
}

/// A user and a password.
#[derive(Clone, Debug)]
pub struct Login {
    name: String,
    password: Secret,
}

/// A list of compressors.
#[derive(Clone, Debug)]
pub struct Compressors(pub Vec<CompressorId>);

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
