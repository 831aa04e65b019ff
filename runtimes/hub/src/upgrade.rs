//! A new process of this program, which takes over from this one. Its file may be another version by now.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::Arguments;

/// The program's file, as it was called: a link may lead to another version later. To be asked before the file can be replaced: then the
/// system says that this one was deleted.
///
/// # Errors
/// The system does not say it.
pub(crate) fn program() -> io::Result<PathBuf> {
    match std::env::args_os().next().map(PathBuf::from).filter(|called| called.components().count() > 1) {
        Some(called) => std::path::absolute(called),
        None => std::env::current_exe(),
    }
}

/// How to start it.
pub(crate) fn start_by(
    program: PathBuf,
    arguments: Arguments,
) -> impl Fn(&Path) -> io::Result<Child> + Send + Sync + 'static {
    move |control: &Path| {
        if std::process::id() == 1 {
            let why = "with this process, the first one of its container, all others of it end; start another container, and drain this one";
            return Err(io::Error::other(why));
        }
        let mut command = Command::new(&program);
        command.arg("--config").arg(&arguments.config).arg("--take-over").arg(control);
        if arguments.until_stdin_ends {
            command.arg("--until-stdin-ends");
        }
        // These sockets were this process's.
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("LISTEN_FDNAMES").spawn()
    }
}
