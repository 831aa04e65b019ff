//! A replica set of three members for tests of clients: served by a process of its own, and told what to do by commands.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Program, Stdio};

use cmap_runtime::bson::{RawDocumentBuf, rawdoc};
use cmap_runtime::{Client, Runtime};

/// The members of a set, served by a process that ends with its standard input.
pub(crate) struct Members {
    #[allow(dead_code, reason = "only some tests look at it; all keep it")]
    pub(crate) process: Child,
    pub(crate) addresses: Vec<String>,
}

impl Members {
    /// Starts them by a program with the command `serve`.
    pub(crate) fn start(program: &str) -> Self {
        let mut process = Program::new(program)
            .args(["serve", "--port", "0", "--until-stdin-ends", "--replica-set", "rs0", "--members", "3"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().take(3).map(Result::unwrap);
        let addresses = lines.map(|line| line.strip_prefix("listening on ").unwrap().to_owned()).collect();
        Self { process, addresses }
    }

    pub(crate) fn uri(&self, options: &str) -> String {
        format!("mongodb://{}/?replicaSet=rs0&{options}", self.addresses.join(","))
    }

    /// The address of the primary, and that of another member.
    pub(crate) async fn primary<R: Runtime>(&self) -> (String, String) {
        let client = Client::<R>::connect(&self.uri("timeoutMS=10000")).await.unwrap();
        let primary = client.check_out().await.unwrap().address().to_string();
        let other = self.addresses.iter().find(|address| **address != primary).unwrap().clone();
        (primary, other)
    }
}

/// Runs a command at one member.
pub(crate) async fn tell<R: Runtime>(member: &str, command: RawDocumentBuf) {
    let uri = format!("mongodb://{member}/?directConnection=true&timeoutMS=10000");
    let client = Client::<R>::connect(&uri).await.unwrap();
    client.check_out().await.unwrap().run_command("admin", command).await.unwrap();
}

/// The command that kills a member, or starts it again. Another member is to be told.
pub(crate) fn order(what: &str, member: &str) -> RawDocumentBuf {
    rawdoc! { "testDeployment": what, "member": member }
}
