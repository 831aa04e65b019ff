//! The hub as a program, and what it costs.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cmap_hub::users::{self, NewUser};

/// A process that is killed when it is dropped.
pub(crate) struct Program(pub(crate) Child);

/// A hub that runs in a process of its own.
pub(crate) struct HubProgram {
    pub(crate) process: Program,
    pub(crate) address: SocketAddr,
}

impl HubProgram {
    /// Starts one. Its files go into `folder`; each user has the password `secret`; `more` are lines of the configuration.
    pub(crate) fn start(folder: &Path, upstream: &str, users: &[String], more: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_cmap-hub")), folder, upstream, users, more)
    }

    /// With a limit of open files, soft (`-S`), hard (`-H`) or both (``).
    #[cfg(unix)]
    pub(crate) fn start_within(
        kind: &str,
        files: u32,
        folder: &Path,
        upstream: &str,
        users: &[String],
        more: &str,
    ) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit {kind} -n {files} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_cmap-hub")]);
        Self::start_by(shell, folder, upstream, users, more)
    }

    /// With a log of what `filter` says, in the file `log`.
    #[cfg(unix)]
    pub(crate) fn start_with_log(
        filter: &str,
        log: &Path,
        folder: &Path,
        upstream: &str,
        users: &[String],
        more: &str,
    ) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("RUST_LOG={filter} exec \"$0\" \"$@\" 2>'{}'", log.display());
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_cmap-hub")]);
        Self::start_by(shell, folder, upstream, users, more)
    }

    /// With traces in a folder.
    pub(crate) fn start_with_traces(traces: &Path, folder: &Path, upstream: &str, more: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
        command.env("CMAP_TRACE_DIR", traces);
        Self::start_by(command, folder, upstream, &[], more)
    }

    fn start_by(mut command: Command, folder: &Path, upstream: &str, users: &[String], more: &str) -> Self {
        let mut text = String::new();
        if !users.is_empty() {
            text.push_str("users = 'users.toml'\n");
            let path = folder.join("users.toml");
            for name in users {
                let user = NewUser { name: name.clone(), password: "secret".into(), upstream: None };
                users::add(&path, &user).unwrap();
            }
        }
        write!(text, "upstream.uri = '{upstream}'\nlisten = [{{ address = '127.0.0.1:0' }}]\n{more}").unwrap();
        let config = folder.join("cmap-hub.toml");
        fs::write(&config, text).unwrap();
        command.arg("--config").arg(config).env("RUST_LOG", "error").stdout(Stdio::piped());
        let mut process = Program(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { process, address }
    }
}

impl Program {
    /// For how long its threads have worked, in its own code and in the system's. Only Linux says it.
    pub(crate) fn work(&self) -> Duration {
        work_of(&self.0.id().to_string())
    }

    /// How much memory it has, in bytes. Only Linux says it.
    pub(crate) fn resident(&self) -> u64 {
        let Ok(text) = fs::read_to_string(format!("/proc/{}/status", self.0.id())) else { return 0 };
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// The same of this process.
pub(crate) fn own_work() -> Duration {
    work_of("self")
}

fn work_of(process: &str) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return Duration::ZERO };
    let nanos = |task: fs::DirEntry| -> u64 {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.map(|task| nanos(task.unwrap())).sum())
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
