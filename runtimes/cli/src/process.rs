//! Servers as processes: each is started, says where it listens, and ends when this process does.

use core::mem;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;

/// How long a server may take until it listens. A JVM on a busy machine needs some seconds.
const START: Duration = Duration::from_secs(30);

/// The first words of the line that a server prints when it accepts connections.
const LISTENING: &str = "listening on ";

/// Why a process is not there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The operating system did not start it.
    #[error("{} cannot be started", program.display())]
    Start {
        /// What should have been started.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A server did not say that it listens.
    #[error("the server {name:?} does not listen; it printed:\n{output}")]
    NotListening {
        /// The server's name.
        name: &'static str,
        /// All that it printed.
        output: String,
    },
}

/// The command that starts this program again.
///
/// # Errors
/// The operating system does not say where this program is.
pub fn this_program() -> Result<Command, ProcessError> {
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|source| ProcessError::Start { program: "this program".into(), source })
}

/// A server's process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Output,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts it, and waits until it prints its address: returns `host:port`, too.
    ///
    /// # Errors
    /// It was not started, or does not listen in time.
    pub fn start(name: &'static str, mut command: Command) -> Result<(Self, String), ProcessError> {
        // Its standard input ends when this process ends, in any way.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|source| ProcessError::Start { program: command.get_program().into(), source })?;
        let (sender, lines) = channel();
        let output = Output::default();
        let readers = [
            child.stdout.take().map(|stdout| output.collect(stdout, Some(sender))),
            child.stderr.take().map(|stderr| output.collect(stderr, None)),
        ];
        let mut process = Self { child, output, readers: readers.into_iter().flatten().collect() };
        match lines.recv_timeout(START) {
            Ok(address) => Ok((process, address)),
            Err(_) => {
                process.stop();
                Err(ProcessError::NotListening { name, output: process.output.text() })
            }
        }
    }

    /// What it has printed so far.
    pub fn output(&self) -> &Output {
        &self.output
    }

    fn stop(&mut self) {
        // It may have ended on its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in mem::take(&mut self.readers) {
            // A reader that panicked has nothing more to read.
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The output of a process, on both its streams.
#[derive(Clone, Debug, Default)]
pub struct Output(Arc<Mutex<String>>);

impl Output {
    /// Reads `from` to its end, in a thread. The address in the first line that has one goes to `listening`.
    pub fn collect(&self, from: impl Read + Send + 'static, mut listening: Option<Sender<String>>) -> JoinHandle<()> {
        let own = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix(LISTENING)
                    && let Some(listening) = listening.take()
                {
                    // The receiver is gone if it took too long.
                    let _ = listening.send(address.to_owned());
                } else {
                    own.push(&line);
                }
            }
        })
    }

    /// Adds a line.
    pub fn push(&self, line: &str) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(line);
        text.push('\n');
    }

    /// All lines so far.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
