//! Draws a trace: for Perfetto, as a page, or both.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cmap_core::trace::Trace;

use super::args::ReplayArgs;
use super::picture::Picture;
use super::{page, perfetto};

/// Writes the files that are asked for. The exit status is that of `replay`; 2 also where a file cannot be written.
pub(super) fn run(trace: &Trace, args: &ReplayArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let picture = match Picture::draw(trace, page::WAITS) {
        Ok(picture) => picture,
        Err(divergence) => return writeln!(err, "error: {divergence}").map(|()| 1),
    };
    let drawings: [(Option<&Path>, Draw, &str); 2] = [
        (args.perfetto.as_deref(), perfetto::write, "open it at https://ui.perfetto.dev, which sends it nowhere"),
        (args.html.as_deref(), page::write, "open it with a browser; it needs no network"),
    ];
    for (path, draw, hint) in drawings {
        let Some(path) = path else { continue };
        match write(path, |file| draw(trace, &picture, file)) {
            Ok(()) => writeln!(
                out,
                "{}: {} pools, {} waits; {hint}",
                path.display(),
                picture.pools.len(),
                picture.waits.len()
            )?,
            Err(error) => {
                return writeln!(err, "error: {} cannot be written: {error}", path.display()).map(|()| 2);
            }
        }
    }
    Ok(0)
}

type Draw = fn(&Trace, &Picture, &mut dyn Write) -> io::Result<()>;

fn write(path: &Path, draw: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    draw(&mut file)?;
    file.flush()
}
