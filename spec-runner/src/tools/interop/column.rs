//! The columns of the table: which program talks to which servers, and how it is called.
//!
//! The first ones are clients of the embedded server, directly and then through the hub. In the last two, our client talks to foreign servers.

use core::fmt;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use cmap_cli::process::this_program;

use super::InteropError;
use super::checks::{Check, Makers, Needs};
use super::servers::ServerSet;

/// The variable that names the user's MongoDB.
pub const URI_VARIABLE: &str = "MONGODB_URI";

/// A program, and the servers it talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// pymongo.
    Python,
    /// The package `mongodb` of npm.
    Node,
    /// go.mongodb.org/mongo-driver/v2.
    Go,
    /// org.mongodb:mongodb-driver-sync.
    Java,
    /// Our client.
    Cmap,
    /// pymongo, through the hub.
    PythonHub,
    /// The package `mongodb` of npm, through the hub.
    NodeHub,
    /// go.mongodb.org/mongo-driver/v2, through the hub.
    GoHub,
    /// org.mongodb:mongodb-driver-sync, through the hub.
    JavaHub,
    /// Our client and mongo-java-server.
    ServerJava,
    /// Our client and the MongoDB that `$MONGODB_URI` names.
    MongoDb,
}

impl Column {
    /// All columns, in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Python,
        Self::Node,
        Self::Go,
        Self::Java,
        Self::Cmap,
        Self::PythonHub,
        Self::NodeHub,
        Self::GoHub,
        Self::JavaHub,
        Self::ServerJava,
        Self::MongoDb,
    ];

    /// The names of all columns.
    pub const NAMES: [&'static str; 11] = [
        "python",
        "node",
        "go",
        "java",
        "cmap",
        "python-hub",
        "node-hub",
        "go-hub",
        "java-hub",
        "server-java",
        "mongodb",
    ];

    /// The column of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// The name, as in [`Column::NAMES`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Go => "go",
            Self::Java => "java",
            Self::Cmap => "cmap",
            Self::PythonHub => "python-hub",
            Self::NodeHub => "node-hub",
            Self::GoHub => "go-hub",
            Self::JavaHub => "java-hub",
            Self::ServerJava => "server-java",
            Self::MongoDb => "mongodb",
        }
    }

    /// Whether `check` makes sense here.
    pub fn can(self, check: &Check) -> bool {
        let (offered, is_ours) = match self {
            // Behind any load balancer this driver takes no notice of maxWriteBatchSize: its batches have 1,000 documents.
            Self::NodeHub if check.name == "large-batch" => return false,
            Self::PythonHub | Self::NodeHub | Self::GoHub | Self::JavaHub => return check.through_hub,
            Self::Python | Self::Node | Self::Go | Self::Java => (Needs::Embedded, false),
            Self::Cmap => (Needs::Embedded, true),
            Self::ServerJava => (Needs::Commands, true),
            Self::MongoDb => (Needs::MongoDb, true),
        };
        let makes = match check.makers {
            Makers::All => true,
            Makers::Ours => is_ours,
        };
        makes && check.needs <= offered
    }

    /// The program; the input file is still to be added.
    pub fn command(self) -> Result<Command, InteropError> {
        match self {
            Self::Python | Self::PythonHub => with_script("python/.venv/bin/python", "python/main.py"),
            Self::Node | Self::NodeHub => {
                installed("node/node_modules")?;
                let mut command = Command::new("node");
                command.arg(installed("node/main.js")?);
                Ok(command)
            }
            Self::Go | Self::GoHub => Ok(Command::new(installed("go/target/interop")?)),
            Self::Java | Self::JavaHub => java("java/target/interop.jar"),
            Self::Cmap | Self::ServerJava | Self::MongoDb => {
                let mut command = this_program()?;
                command.arg("interop-client");
                Ok(command)
            }
        }
    }

    /// The servers it talks to.
    pub fn servers(self) -> ServerSet {
        match self {
            Self::Python | Self::Node | Self::Go | Self::Java | Self::Cmap => ServerSet::Embedded,
            Self::PythonHub | Self::NodeHub | Self::GoHub | Self::JavaHub => ServerSet::Hub,
            Self::ServerJava => ServerSet::Java,
            Self::MongoDb => ServerSet::Named,
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the user has named a MongoDB.
pub fn is_uri_set() -> bool {
    env::var_os(URI_VARIABLE).is_some_and(|uri| !uri.is_empty())
}

/// A Java program that is packed in a file of `interop/`.
pub(super) fn java(jar: &str) -> Result<Command, InteropError> {
    let mut command = Command::new("java");
    command.arg("-jar").arg(installed(jar)?);
    Ok(command)
}

fn with_script(interpreter: &str, script: &str) -> Result<Command, InteropError> {
    let mut command = Command::new(installed(interpreter)?);
    command.arg(installed(script)?);
    Ok(command)
}

/// A path in `interop/`, where it was when this program was built, or below the current folder.
fn installed(path: &str) -> Result<PathBuf, InteropError> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
    let folders = [built, PathBuf::from("spec-runner/interop")];
    let found = folders.iter().map(|folder| folder.join(path)).find(|path| path.exists());
    found.ok_or_else(|| InteropError::NotInstalled { path: folders[1].join(path) })
}

#[cfg(test)]
mod tests {
    use super::Column;
    use crate::tools::interop::checks;

    #[test]
    fn our_client_alone_makes_the_checks_of_our_adapters() {
        let columns_of = |name: &str| {
            let check = checks::by_name(name).unwrap();
            Column::ALL.into_iter().filter(|column| column.can(check)).collect::<Vec<_>>()
        };

        assert_eq!(columns_of("ping"), Column::ALL);
        assert_eq!(columns_of("cmap-smol"), [Column::Cmap, Column::ServerJava, Column::MongoDb]);
        assert_eq!(columns_of("cmap-smol-scram-tls"), [Column::Cmap]);
        assert_eq!(columns_of("set-kill"), [Column::Python, Column::Node, Column::Go, Column::Java, Column::Cmap]);
    }
}
