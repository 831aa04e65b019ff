//! `cmap-hub ctl`: gives a hub that runs an order, at its control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

/// Gives an order, and prints the answer. Whether it was carried out.
pub(crate) fn order(socket: &Path, words: &[String]) -> io::Result<bool> {
    let line = words.join(" ");
    if line.contains('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an order is one line"));
    }
    let place = |error: io::Error| {
        let place = socket.display();
        io::Error::new(error.kind(), format!("{place}: {error}; does the hub run, and is it yours?"))
    };
    let mut stream = UnixStream::connect(socket).map_err(place)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let read: Value = serde_json::from_str(&answer).map_err(io::Error::from)?;
    io::stdout().write_all(answer.as_bytes())?;
    Ok(read.get("error").is_none())
}
