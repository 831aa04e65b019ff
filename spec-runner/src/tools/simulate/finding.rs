//! A broken law: the smallest script that breaks it, and its trace.

use std::io::{self, Write};

use cmap_core::trace::{Header, Recorded, RecorderOptions};

use super::args::SimulateArgs;
use super::oracle::Broken;
use super::shrink::{play, shrink, sound, twins};
use super::step::{ClientCase, Script};

/// Room for any script that is worth reading.
const TRACE_BYTES: usize = 64 << 20;

/// What a seed has shown.
#[derive(Debug)]
pub(super) struct Finding {
    seed: u64,
    broken: Broken,
    steps: usize,
    script: Script,
}

impl Finding {
    /// Makes the script small.
    pub(super) fn of(seed: u64, broken: Broken, script: Script) -> Self {
        let steps = script.steps.len();
        let script = shrink(script, &twins);
        let again = twins(&script.client).and_then(|machine| play(&script, machine).1.err());
        Self { seed, broken: again.unwrap_or(broken), steps, script }
    }

    /// Prints it, and writes the trace.
    pub(super) fn report(&self, args: &SimulateArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        let Self { seed, broken, steps, script } = self;
        writeln!(out, "seed {seed} breaks a law: {}", broken.law)?;
        writeln!(out, "  {}", broken.detail)?;
        writeln!(out, "{} of its {steps} steps are enough:", script.steps.len())?;
        write!(out, "{script}")?;
        let Some(trace) = trace(script, &format!("seed {seed} broke a law: {}: {}", broken.law, broken.detail)) else {
            return writeln!(err, "error: this client cannot be recorded");
        };
        let file = args.out.join(format!("simulated-{seed}.trace"));
        match std::fs::write(&file, trace) {
            Ok(()) => writeln!(out, "its trace: cmap replay {} --explain slowest", file.display()),
            Err(error) => writeln!(err, "error: {}: {error}", file.display()),
        }
    }
}

/// Plays a script under a recorder: its trace, up to the call that breaks a law.
pub(super) fn trace(script: &Script, trigger: &str) -> Option<Vec<u8>> {
    let driver = play(script, recorded(&script.client)?).0?;
    let mut header = Header::default();
    header.producer = "spec-runner simulate".to_owned();
    header.trigger = trigger.to_owned();
    header.written_at = driver.now();
    driver.machine().recording().map(|recording| recording.encode(&header))
}

/// The same machine, with a recorder.
fn recorded(case: &ClientCase) -> Option<Recorded<()>> {
    let mut recorded = Recorded::from(sound(case)?);
    let mut options = RecorderOptions::default();
    options.bytes = TRACE_BYTES;
    recorded.start_recording(options);
    Some(recorded)
}
