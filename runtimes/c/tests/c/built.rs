//! What the tests build on: the libraries that cargo has built beside them, and the machine's C compiler.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// No warning is let through.
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The program of this name; `None` if the machine has none, which is said.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    if found.is_none() {
        // Past the harness, which keeps what a passing test prints to itself.
        let _ = writeln!(io::stderr(), "left out: there is no {name} here");
    }
    found
}

/// The shared library of these sources, for the tests' own profile.
pub(crate) fn shared() -> PathBuf {
    newest("so")
}

/// The static library.
pub(crate) fn archive() -> PathBuf {
    newest("a")
}

/// The library that cargo has built last: with a hash in its name, or without.
fn newest(extension: &str) -> PathBuf {
    let tests = env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(extension).and_then(|stem| stem.strip_suffix('.'));
        stem.is_some_and(|stem| stem == "libcmap" || stem.starts_with("libcmap-"))
    };
    let libraries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(is_it);
    let built = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).unwrap();
    libraries.max_by_key(built).unwrap_or_else(|| panic!("no libcmap.{extension} in {}", folder.display()))
}

/// A call of the compiler for one of our programs.
pub(crate) fn compile(compiler: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-g"]).args(WARNINGS).args(more);
    command.arg("-I").arg(include());
    command
}

/// Where the header is.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// A run of a program, which is ended if it hangs.
pub(crate) fn run(program: &Path) -> Command {
    let Some(timeout) = tool("timeout") else { return Command::new(program) };
    let mut command = Command::new(timeout);
    command.arg("120").arg(program);
    command
}

/// How to link a program to the shared library where it is. Its name is that of its ABI, so a link of that name lies beside it.
pub(crate) fn link_shared() -> Vec<OsString> {
    let library = shared();
    let folder = library.parent().unwrap().join("libcmap.so.0.of-tests");
    std::fs::create_dir_all(&folder).unwrap();
    // Another test may do so at this moment: each puts a whole link into its place.
    let own = folder.join(format!("{}-{:?}", std::process::id(), std::thread::current().id()).replace(['(', ')'], ""));
    std::os::unix::fs::symlink(&library, &own).unwrap();
    std::fs::rename(&own, folder.join("libcmap.so.0")).unwrap();
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(&folder);
    vec![library.into(), path, "-pthread".into()]
}

/// Runs a program that has to succeed; returns what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{errors}", output.status);
    printed
}
