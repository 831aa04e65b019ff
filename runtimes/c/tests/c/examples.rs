//! The examples in C, built by the machine's compiler and run against the test server: as they are, under valgrind, and under the
//! compiler's sanitisers.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::{built, server};

const EXAMPLES: [&str; 2] = ["blocking", "epoll"];

/// An example that was built; `None` if there is no compiler here.
struct Example {
    _folder: TempDir,
    program: PathBuf,
}

impl Example {
    fn build(name: &str, flags: &[&str], link: Vec<std::ffi::OsString>) -> Option<Self> {
        let gcc = built::tool("gcc")?;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).with_extension("c");
        built::succeed(built::compile(&gcc, flags).arg(source).arg("-o").arg(&program).args(link));
        Some(Self { _folder: folder, program })
    }

    /// What it says of its pool after so many clients have sent so many pings.
    fn run(&self, under: &[&str], clients: u32, pings: u32) -> Value {
        let server = server::Server::start();
        let mut command = match under {
            [] => built::run(&self.program),
            [tool, flags @ ..] => {
                let mut command = built::run(Path::new(tool));
                command.args(flags).arg(&self.program);
                command
            }
        };
        let (ip, port) = (server.address.ip().to_string(), server.address.port().to_string());
        let printed = built::succeed(command.args([ip, port, clients.to_string(), pings.to_string()]));
        serde_json::from_str(&printed).unwrap()
    }
}

fn assert_all_was_done(name: &str, statistics: &Value, pings: u64) {
    assert_eq!(statistics["checkedIn"], pings, "{name}: {statistics}");
    // Whether the third connection is ready before the work is done is up to the machine.
    assert!(matches!(statistics["highWater"]["inUse"].as_u64(), Some(1..=3)), "{name}: {statistics}");
    assert!(statistics["highWaterTotal"].as_u64().is_some_and(|most| most <= 3), "{name}: {statistics}");
    assert_eq!(statistics["created"], statistics["closed"]["poolClosed"], "{name}: {statistics}");
    for count in statistics["counts"].as_object().unwrap().values() {
        assert_eq!(*count, 0, "{name}: {statistics}");
    }
}

#[test]
fn each_example_is_less_than_200_lines_long() {
    for name in EXAMPLES {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).with_extension("c");
        let lines = std::fs::read_to_string(source).unwrap().lines().count();
        assert!(lines < 200, "{name}: {lines}");
    }
}

#[test]
fn eight_clients_of_the_examples_share_at_most_three_connections() {
    for name in EXAMPLES {
        let Some(example) = Example::build(name, &[], built::link_shared()) else { return };
        assert_all_was_done(name, &example.run(&[], 8, 200), 1600);
    }
}

#[test]
fn an_example_without_a_server_ends_with_failures_and_no_mistake() {
    // Nobody listens at a port that was free just now.
    let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for name in EXAMPLES {
        let Some(example) = Example::build(name, &[], built::link_shared()) else { return };
        let port = address.port().to_string();
        let output = built::run(&example.program).args(["127.0.0.1", &port, "1", "1"]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("the server cannot be reached"), "{name}: {errors}");
        assert_eq!(output.status.code(), Some(1), "{name}: {errors}");
    }
}

#[test]
fn an_example_works_with_the_static_library() {
    let mut link = vec![built::archive().into()];
    link.extend(["-pthread", "-ldl", "-lm"].map(std::ffi::OsString::from));
    let Some(example) = Example::build("epoll", &[], link) else { return };

    assert_all_was_done("epoll", &example.run(&[], 8, 20), 160);
}

#[test]
#[ignore = "full: needs valgrind"]
fn the_examples_are_clean_under_valgrind() {
    if built::tool("valgrind").is_none() {
        return;
    }
    let valgrind =
        ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"];
    for name in EXAMPLES {
        let Some(example) = Example::build(name, &[], built::link_shared()) else { return };
        assert_all_was_done(name, &example.run(&valgrind, 4, 25), 100);
    }
}

#[test]
#[ignore = "full: needs gcc's sanitisers"]
fn the_examples_are_clean_under_the_sanitisers() {
    for name in EXAMPLES {
        let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"];
        let Some(example) = Example::build(name, &flags, built::link_shared()) else { return };
        assert_all_was_done(name, &example.run(&[], 8, 50), 400);
    }
}

#[test]
#[ignore = "full: needs cargo-c"]
fn an_installed_library_is_found_by_pkg_config() {
    let (Some(_), Some(pkg_config)) = (built::tool("cargo-cinstall"), built::tool("pkg-config")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().to_str().unwrap();
    let mut install = Command::new("cargo");
    install.args(["cinstall", "--package", "cmap-c", "--prefix", prefix, "--libdir", &format!("{prefix}/lib")]);
    built::succeed(install.current_dir(env!("CARGO_MANIFEST_DIR")));

    let mut found = Command::new(pkg_config);
    found.args(["--cflags", "--libs", "cmap"]).env("PKG_CONFIG_PATH", format!("{prefix}/lib/pkgconfig"));
    let found = built::succeed(&mut found);
    let mut link: Vec<_> = found.split_whitespace().map(std::ffi::OsString::from).collect();
    link.push(format!("-Wl,-rpath,{prefix}/lib").into());
    let Some(example) = Example::build("epoll", &[], link) else { return };

    assert_all_was_done("epoll", &example.run(&[], 8, 20), 160);
}
