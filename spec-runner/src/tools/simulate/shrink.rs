//! Makes a script smaller that breaks a law: steps are left out, and options, as long as the same law breaks.

use std::time::Duration;

use cmap_core::options::PoolOptions;
use cmap_core::time::Instant;

use super::driver::{Driver, client};
use super::machine::Machine;
use super::oracle::{Broken, law};
use super::step::{ClientCase, Script, Step};
use super::world::LAST_ELECTION;

/// The most scripts that are tried.
const TRIES: u32 = 20_000;

/// Plays a script on a machine, and calms it down: the client at its end, and the law that it broke.
pub(super) fn play<M: Machine>(script: &Script, machine: M) -> (Option<Driver<M>>, Result<(), Broken>) {
    let mut driver = match Driver::new(&script.client, machine) {
        Ok(driver) => driver,
        Err(broken) => return (None, Err(broken)),
    };
    let mut played = Ok(());
    for (at, step) in &script.steps {
        played = played.and_then(|()| driver.play(*at, *step));
    }
    driver.reports.clear();
    let result = played.and_then(|()| driver.calm_down(LAST_ELECTION));
    (Some(driver), result)
}

/// The smallest script found that breaks `law`, by playing on the machines that `make` makes.
pub(super) fn shrink<M: Machine>(script: Script, law: &'static str, make: &dyn Fn(&ClientCase) -> Option<M>) -> Script {
    let mut shrinker = Shrinker { best: script, law, make, tries: 0 };
    loop {
        let before = (shrinker.best.steps.len(), shrinker.tries);
        shrinker.leave_out_steps();
        shrinker.leave_out_options();
        if shrinker.best.steps.len() == before.0 || shrinker.tries >= TRIES {
            shrinker.round_times();
            return shrinker.best;
        }
    }
}

struct Shrinker<'a, M> {
    best: Script,
    law: &'static str,
    make: &'a dyn Fn(&ClientCase) -> Option<M>,
    tries: u32,
}

impl<M: Machine> Shrinker<'_, M> {
    /// Keeps `script` if it breaks the law, too.
    fn keep(&mut self, script: Script) -> bool {
        self.tries += 1;
        let Some(machine) = (self.make)(&script.client) else { return false };
        let breaks = play(&script, machine).1.is_err_and(|broken| broken.law == self.law);
        if breaks {
            self.best = script;
        }
        breaks
    }

    fn leave_out_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 && self.tries < TRIES {
            let mut from = self.best.steps.len();
            while from > 0 && self.tries < TRIES {
                let begin = from.saturating_sub(size);
                let mut script = self.best.clone();
                script.steps.drain(begin..from.min(script.steps.len()));
                self.keep(script);
                from = begin;
            }
            size /= 2;
        }
    }

    fn leave_out_options(&mut self) {
        let changes: [fn(&mut ClientCase); 18] = [
            |client| client.max_connections = 0,
            |client| client.lateness = Duration::ZERO,
            |client| client.pool.min_pool_size = None,
            |client| client.pool.max_idle_time = None,
            |client| client.pool.wait_queue_timeout = None,
            |client| client.pool.check_after_idle = None,
            |client| client.pool.host_timeout = None,
            |client| client.pool.backoff = Some(false),
            |client| client.pool.max_wait_queue_depth = None,
            |client| client.pool.wait_order = None,
            |client| client.pool.reuse = None,
            |client| client.pool.max_new_connections_per_second = None,
            |client| client.pool.max_lifetime = None,
            |client| client.pool.max_uses = None,
            |client| client.pool.affinity = None,
            |client| client.pool.refresh_requirement = None,
            |client| client.pool.max_connecting = None,
            |client| client.pool = PoolOptions::default(),
        ];
        for change in changes {
            let mut script = self.best.clone();
            change(&mut script.client);
            self.keep(script);
        }
    }

    /// Makes times of whole milliseconds, where that changes nothing.
    fn round_times(&mut self) {
        let round = |(at, step): &(Instant, Step)| {
            let millis = at.as_nanos() / 1_000_000;
            (Instant::from_millis(millis), *step)
        };
        let steps = self.best.steps.iter().map(round).collect();
        self.keep(Script { client: self.best.client.clone(), steps });
    }
}

/// The machine of a client without a bug.
pub(super) fn sound(case: &ClientCase) -> Option<cmap_core::topology::Topology<()>> {
    client(case).ok()
}

/// That the options fit together is not a law, but a condition.
pub(super) fn unusable() -> Broken {
    match law("the drawn options fit together", false, String::new) {
        Err(broken) => broken,
        Ok(()) => Broken { law: "", detail: String::new() },
    }
}
