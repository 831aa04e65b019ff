//! Our client as one of the programs: the same checks as those of the official drivers, on blocking sockets.
//!
//! `checks` are as short as the other programs'; `client` is one connection, as in `examples/blocking.rs` of the core,
//! over a `transport` with or without TLS; `pool` shares connections between threads.

mod checks;
pub(crate) mod client;
mod expect;
mod fail_point;
mod pool;
mod servers;
mod stream;
mod transport;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;

use self::expect::Mismatch;
use self::servers::Servers;

/// A check's function.
type Check = fn(&Servers) -> Result<(), Mismatch>;

/// The file that names the checks to make, and the servers' addresses.
#[derive(Debug, Deserialize)]
struct Input {
    servers: Servers,
    checks: Vec<String>,
}

/// Makes the checks that the file `input` names, and prints a line for each. The exit status is 0 if none failed, else 1;
/// 2 if the file cannot be used.
///
/// # Errors
/// Nothing more can be printed.
pub fn run(input: &Path, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let read = fs::read(input).and_then(|bytes| serde_json::from_slice::<Input>(&bytes).map_err(io::Error::from));
    let input = match read {
        Ok(input) => input,
        Err(error) => {
            writeln!(err, "ERROR {}: {error}", input.display())?;
            return Ok(2);
        }
    };
    let mut status = 0;
    for name in &input.checks {
        match checks::by_name(name).map(|check| check(&input.servers)) {
            Some(Ok(())) => writeln!(out, "PASS {name}")?,
            Some(Err(mismatch)) => {
                writeln!(out, "FAIL {name}: {}", one_line(&mismatch))?;
                status = 1;
            }
            None => {
                writeln!(out, "FAIL {name}: this program has no such check")?;
                status = 1;
            }
        }
        out.flush()?;
    }
    Ok(status)
}

fn one_line(mismatch: &Mismatch) -> String {
    mismatch.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
