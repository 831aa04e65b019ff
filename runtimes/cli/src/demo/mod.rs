//! `cmap demo`: the pool at work, in a few seconds on each runtime.
//!
//! Many tasks share few connections to a server. One task keeps a connection for long, the server is stopped and comes back,
//! and the client is closed. After each scene the demo says what happened, and why; while the
//! connection is kept, the client's status names who holds it.
//!
//! 1. `args` says how long, and with which server;
//! 2. `stage` plays the scenes on one runtime, with the tasks of `callers`;
//! 3. `figures` counts what callers saw, and what is missing at the end;
//! 4. `story` puts it into words, `screen` prints them: above a table that moves on a terminal, as plain lines elsewhere.

mod args;
mod callers;
mod figures;
mod screen;
mod stage;
mod story;

pub(crate) use self::args::DemoArgs;

use std::io::{self, Write};
use std::time::Duration;

use cmap_async_std::AsyncStd;
use cmap_smol::Smol;
use cmap_tokio::Tokio;

use self::figures::Outcome;
use self::screen::Screen;
use self::stage::{Plan, Stage};
use crate::server_process::ServerProcess;
use crate::soak::args::Adapter;
use crate::soak::session::SessionError;
use crate::terminal::Terminal;

/// The runtimes, in the order in which they are shown.
const RUNTIMES: [Adapter; 3] = [Adapter::Tokio, Adapter::AsyncStd, Adapter::Smol];

/// Shows the pool at work. The exit status: 0 if nothing is missing, 1 if something is, 2 if a runtime could not be shown.
///
/// # Errors
/// Nothing more can be printed.
pub(crate) fn run(args: &DemoArgs, out: &mut dyn Write, err: &mut dyn Write, terminal: Terminal) -> io::Result<u8> {
    let mut screen = Screen::new(out, terminal, &RUNTIMES.map(Adapter::name));
    let mut results = Vec::new();
    let played = play(args, &mut screen, &mut results);
    screen.clear()?;
    match played {
        Ok(()) => {}
        Err(SessionError::Print(error)) => return Err(error),
        Err(error) => return writeln!(err, "error: {error}").map(|()| 2),
    }
    screen.say(&story::table(&results))?;
    let is_whole = results.iter().all(|(_, result)| result.problems().is_empty());
    screen.say(&terminal.verdict(is_whole, story::end(is_whole))).map(|()| u8::from(!is_whole))
}

fn play(args: &DemoArgs, screen: &mut Screen<'_>, results: &mut Vec<(Adapter, Outcome)>) -> Result<(), SessionError> {
    let mut server = match args.uri {
        None => Some(ServerProcess::start()?),
        Some(_) => None,
    };
    let plan = Plan::new(args, server.as_ref())?;
    screen.say(&story::beginning(&plan, server.is_some()))?;
    for (number, adapter) in RUNTIMES.into_iter().enumerate() {
        let mut stage = Stage { plan: &plan, server: server.as_mut(), screen, number };
        let result = match adapter {
            Adapter::Tokio => {
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let runtime = runtime.map_err(SessionError::Runtime)?;
                let result = stage.play(Tokio::new(runtime.handle().clone()));
                runtime.shutdown_timeout(Duration::from_secs(1));
                result
            }
            Adapter::AsyncStd => stage.play(AsyncStd),
            Adapter::Smol => stage.play(Smol),
        };
        results.push((adapter, result?));
    }
    Ok(())
}
