//! A new process of this program, which takes over from this one. Its file may be another version by now.

use std::io;
use std::path::Path;
use std::process::{Child, Command};

use super::Arguments;

/// How to start it.
///
/// # Errors
/// The system does not say which file this program is.
pub(crate) fn start_by(
    arguments: Arguments,
) -> io::Result<impl Fn(&Path) -> io::Result<Child> + Send + Sync + 'static> {
    // Before the file is replaced: afterwards the system says that this one was deleted.
    let program = std::env::current_exe()?;
    Ok(move |control: &Path| {
        let mut command = Command::new(&program);
        command.arg("--config").arg(&arguments.config).arg("--take-over").arg(control);
        if arguments.until_stdin_ends {
            command.arg("--until-stdin-ends");
        }
        // These sockets were this process's.
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("LISTEN_FDNAMES").spawn()
    })
}
