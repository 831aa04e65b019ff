//! An output that its reader may leave.

use std::io::{self, ErrorKind, Write};

/// Prints while the output is read. A reader such as `head` that has seen enough ends the printing, not the run: the exit
/// status is that of the whole run.
#[derive(Debug)]
pub struct WhileRead<W> {
    out: W,
    is_read: bool,
}

impl<W> WhileRead<W> {
    /// An output that is read so far.
    pub fn new(out: W) -> Self {
        Self { out, is_read: true }
    }
}

impl<W: Write> Write for WhileRead<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_read.then(|| self.out.write(bytes)) {
            Some(Err(error)) if error.kind() == ErrorKind::BrokenPipe => self.is_read = false,
            Some(written) => return written,
            None => {}
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.is_read.then(|| self.out.flush()) {
            Some(Err(error)) if error.kind() == ErrorKind::BrokenPipe => self.is_read = false,
            Some(flushed) => return flushed,
            None => {}
        }
        Ok(())
    }
}
