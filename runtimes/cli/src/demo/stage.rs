//! The scenes, played on one runtime.
//!
//! The thread that plays them only watches, and stops and starts the server; the client and all tasks live in the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cmap_core::options::ClientOptions;
use cmap_core::pool::ConnectionId;
use cmap_runtime::{Client, Runtime};

use super::callers::{Caller, Ledger, keep};
use super::figures::{Outcome, Played};
use super::screen::Screen;
use super::{DemoArgs, story};
use crate::server_process::ServerProcess;
use crate::soak::failure::Surroundings;
use crate::soak::session::{SessionError, wait_for};

/// What is played on every runtime.
pub(super) struct Plan {
    pub(super) tasks: u32,
    /// maxPoolSize; 0 is no limit.
    pub(super) connections: u32,
    options: ClientOptions,
    time: Duration,
}

/// One runtime's turn.
pub(super) struct Stage<'a, 'b> {
    pub(super) plan: &'a Plan,
    pub(super) server: Option<&'a mut ServerProcess>,
    pub(super) screen: &'a mut Screen<'b>,
    /// The row of the runtime in the table.
    pub(super) number: usize,
}

/// A client at work.
struct Cast<R: Runtime> {
    runtime: R,
    client: Client<R>,
    ledger: Arc<Ledger>,
}

/// How often the table is drawn.
const STEP: Duration = Duration::from_millis(100);

/// How long a server may take to answer or to recover, and the tasks to end.
const PATIENCE: Duration = Duration::from_secs(10);

impl Plan {
    /// The plan.
    ///
    /// # Errors
    /// The connection string cannot be used.
    pub(super) fn new(args: &DemoArgs, server: Option<&ServerProcess>) -> Result<Self, SessionError> {
        let uri = match (&args.uri, server) {
            (None, Some(server)) => server.uri(""),
            (uri, _) => uri.clone().unwrap_or_default(),
        };
        let (mut options, _warnings) = ClientOptions::parse(&uri)?;
        options.server_selection_timeout.get_or_insert(PATIENCE);
        let connections = *options.pool.max_pool_size.get_or_insert(10);
        Ok(Self { tasks: 200, connections, options, time: Duration::from_secs(args.seconds) })
    }

    fn part(&self, percent: u32) -> Duration {
        self.time * percent / 100
    }
}

impl Stage<'_, '_> {
    /// Plays all scenes.
    ///
    /// # Errors
    /// The server does not answer, or nothing more can be printed.
    pub(super) fn play<R: Runtime>(&mut self, runtime: R) -> Result<Outcome, SessionError> {
        let builder = Client::builder(self.plan.options.clone()).runtime(runtime.clone()).watch_holders(true);
        let client = wait_for(&runtime, builder.build())??;
        let cast = Cast { runtime, client, ledger: Arc::default() };
        cast.greet()?;
        let tasks = cast.begin(self.plan.tasks);
        cast.await_ping();

        let busy = self.scene(&cast, "busy", self.plan.part(35), 40)?;
        let surroundings = if self.server.is_some() { Surroundings::Killed } else { Surroundings::Slow };
        let mut result = Outcome { busy, surroundings, ..Outcome::default() };
        self.say::<R>(&story::busy(&result.busy, self.plan))?;

        let (kept, id) = self.keep_a_connection(&cast)?;
        self.say::<R>(&story::kept(&kept, id))?;
        result.kept = kept;

        self.restart(&cast, &mut result)?;
        cast.ledger.end();
        (result.stuck, result.cut_off) = cast.wind_up(self.plan.tasks, &tasks)?;
        result.end = cast.client.stats();
        self.screen.show(self.number, |row| {
            row.progress = 100;
            row.scene = "closed";
            (row.in_use, row.waiting, row.pings_per_second) = (0, 0, result.busy.pings_per_second());
        })?;
        self.say::<R>(&story::closed(&result))?;
        Ok(result)
    }

    fn say<R: Runtime>(&mut self, text: &str) -> Result<(), SessionError> {
        let progress = self.screen.progress();
        Ok(self.screen.say(&format!("[{progress:3} %] {}: {text}", R::NAME))?)
    }

    fn keep_a_connection<R: Runtime>(
        &mut self,
        cast: &Cast<R>,
    ) -> Result<(Played, Option<ConnectionId>), SessionError> {
        let time = self.plan.part(25);
        let (sender, kept) = channel();
        let (tell_held, held) = channel();
        let is_released = Arc::new(AtomicBool::new(false));
        let keeping = keep(cast.client.clone(), cast.runtime.clone(), tell_held, Arc::clone(&is_released));
        cast.runtime.spawn(async move {
            // The receiver waits below.
            let _ = sender.send(keeping.await);
        });
        // One that fails does not tell.
        let _ = held.recv_timeout(PATIENCE);
        let played = self.scene(cast, "one kept", time, 65)?;
        let status = cast.client.status().to_string();
        is_released.store(true, Ordering::Relaxed);
        self.screen.say(status.trim_end())?;
        let id = match kept.recv_timeout(PATIENCE) {
            Ok(Ok(id)) => Some(id),
            Ok(Err(failure)) => {
                cast.ledger.scene().failed(&failure);
                None
            }
            // A connection that never comes back is found at the end.
            Err(_) => None,
        };
        Ok((played, id))
    }

    /// Stops the server, if it is ours, and starts it again.
    fn restart<R: Runtime>(&mut self, cast: &Cast<R>, result: &mut Outcome) -> Result<(), SessionError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        cast.ledger.outages().begin();
        result.restarts = 1;
        server.kill();
        let outage = self.scene(cast, "stopped", self.plan.part(10), 75)?;
        self.say::<R>(&story::outage(&outage))?;

        server.start_again()?;
        let back = cast.runtime.now();
        cast.ledger.outages().server_is_up(back);
        let patience_ends = back + PATIENCE;
        while cast.ledger.outages().unrecovered() > 0 && cast.runtime.now() < patience_ends {
            thread::sleep(STEP / 10);
        }
        result.recovery = cast.ledger.outages().recoveries().first().copied();
        let rest = self.plan.part(30).saturating_sub(cast.runtime.now().saturating_duration_since(back));
        let after = self.scene(cast, "back", rest.max(self.plan.part(10)), 95)?;
        self.say::<R>(&story::recovery(&after, result.recovery))?;
        result.outage = Some((outage, after));
        Ok(())
    }

    /// Lets the tasks work, and moves the runtime's row. `until` is its progress at the end, in per cent.
    fn scene<R: Runtime>(
        &mut self,
        cast: &Cast<R>,
        name: &'static str,
        time: Duration,
        until: usize,
    ) -> Result<Played, SessionError> {
        let start = cast.runtime.now();
        let mut before = 0;
        self.screen.show(self.number, |row| {
            (before, row.scene) = (row.progress, name);
        })?;
        let mut played = Played::default();
        loop {
            let elapsed = cast.runtime.now().saturating_duration_since(start);
            let counts = cast.client.stats().counts;
            (played.waiting, played.in_use) = (counts.waiting, counts.in_use);
            let (pings, failures) = {
                let scene = cast.ledger.scene();
                (scene.pings(), scene.failures())
            };
            let percent = (100 * elapsed.as_millis()).checked_div(time.as_millis()).unwrap_or(100).min(100);
            let percent = usize::try_from(percent).unwrap_or(100);
            self.screen.show(self.number, |row| {
                row.progress = before + until.saturating_sub(before) * percent / 100;
                row.pings_per_second = pings as f64 / elapsed.as_secs_f64().max(0.001);
                (row.in_use, row.waiting) = (counts.in_use, counts.waiting);
                row.errors = row.errors.max(failures);
            })?;
            if elapsed >= time {
                break;
            }
            thread::sleep(STEP.min(time - elapsed));
        }
        played.scene = core::mem::take(&mut *cast.ledger.scene());
        played.time = cast.runtime.now().saturating_duration_since(start);
        Ok(played)
    }
}

impl<R: Runtime> Cast<R> {
    /// Waits for the first connection: without a server there is nothing to show.
    fn greet(&self) -> Result<(), SessionError> {
        let client = self.client.clone();
        let greeted = wait_for(&self.runtime, async move { client.check_out().await.map(drop) })?;
        Ok(greeted?)
    }

    /// Starts the tasks. The receiver hears of each that comes to its end.
    fn begin(&self, tasks: u32) -> Receiver<()> {
        let (over, ends) = channel();
        for _ in 0..tasks {
            let (client, runtime) = (self.client.clone(), self.runtime.clone());
            let caller = Caller { client, runtime, ledger: Arc::clone(&self.ledger), over: over.clone() };
            self.runtime.spawn(caller.run());
        }
        ends
    }

    /// Waits for the first ping: a scene may be short, and the machine slow.
    fn await_ping(&self) {
        let patience_ends = self.runtime.now() + PATIENCE;
        while self.ledger.scene().pings() == 0 && self.runtime.now() < patience_ends {
            thread::sleep(STEP / 10);
        }
    }

    /// Waits for the tasks and closes the client; returns how many did not end, and connections that were cut off.
    fn wind_up(&self, tasks: u32, ends: &Receiver<()>) -> Result<(u32, u32), SessionError> {
        let patience_ends: Instant = self.runtime.now() + PATIENCE;
        let mut stuck = tasks;
        while stuck > 0 {
            let left = patience_ends.saturating_duration_since(self.runtime.now());
            if ends.recv_timeout(left).is_err() {
                break;
            }
            stuck -= 1;
        }
        let cut_off = wait_for(&self.runtime, self.client.close(PATIENCE))??;
        Ok((stuck, cut_off))
    }
}
