//! Makes a script smaller that breaks a law: steps are left out, and options, as long as a law breaks. It need not be the same one: a bug
//! breaks several, and the shortest script shows it best.

use std::time::Duration;

use cmap_core::options::PoolOptions;
use cmap_core::time::Instant;

use super::driver::{Driver, Looks, client};
use super::machine::Machine;
use super::oracle::{Broken, law};
use super::panics::caught;
use super::step::{ClientCase, Script, Twin};
use super::twins::Twins;
use super::world::LAST_ELECTION;

/// Scripts of more steps have too many pairs of them.
const MOST_FOR_PAIRS: usize = 128;

/// The most scripts that are tried.
const TRIES: u32 = 20_000;

/// Plays a script on a machine, and calms it down: the client at its end, and the law that it broke.
pub(super) fn play<M: Machine>(script: &Script, machine: M) -> (Option<Driver<M>>, Result<(), Broken>) {
    let mut driver = match caught(|| Driver::new(&script.client, machine, Looks::AfterEachCall)) {
        Ok(driver) => driver,
        Err(broken) => return (None, Err(broken)),
    };
    let result = caught(|| {
        script.steps.iter().try_for_each(|(at, step)| driver.play(*at, *step))?;
        driver.reports.clear();
        driver.wait_until(script.until)?;
        driver.calm_down(LAST_ELECTION)
    });
    (Some(driver), result)
}

/// The smallest script found that breaks a law, by playing on the machines that `make` makes.
pub(super) fn shrink<M: Machine>(script: Script, make: &dyn Fn(&ClientCase) -> Option<M>) -> Script {
    let mut shrinker = Shrinker { best: script, make, tries: 0 };
    loop {
        let before = shrinker.best.steps.clone();
        shrinker.leave_out_steps();
        shrinker.leave_out_pairs();
        shrinker.leave_out_options();
        shrinker.prefer_firsts();
        if shrinker.best.steps == before || shrinker.tries >= TRIES {
            shrinker.round_times();
            return shrinker.best;
        }
    }
}

struct Shrinker<'a, M> {
    best: Script,
    make: &'a dyn Fn(&ClientCase) -> Option<M>,
    tries: u32,
}

impl<M: Machine> Shrinker<'_, M> {
    /// Keeps `script` if it breaks a law.
    fn keep(&mut self, script: Script) -> bool {
        self.tries += 1;
        let Some(machine) = (self.make)(&script.client) else { return false };
        let breaks = play(&script, machine).1.is_err();
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

    /// Leaves out two steps at a time, of a script that is not long: a check-out and its check-in mean nothing without each other.
    fn leave_out_pairs(&mut self) {
        let mut second = self.best.steps.len().min(MOST_FOR_PAIRS);
        while second > 1 {
            second = second.min(self.best.steps.len()).saturating_sub(1);
            // At most one pair for each second step; the next turn tries again.
            let _ = (0..second).rev().any(|first| {
                let mut script = self.best.clone();
                script.steps.remove(second);
                script.steps.remove(first);
                self.tries < TRIES && self.keep(script)
            });
        }
    }

    fn leave_out_options(&mut self) {
        let changes: [fn(&mut ClientCase); 19] = [
            |client| client.twin = Twin::None,
            |client| client.max_connections = 0,
            |client| client.srv_max_hosts = None,
            |client| client.lateness = Duration::ZERO,
            |client| client.pool.min_pool_size = None,
            |client| client.pool.max_idle_time = None,
            |client| client.pool.wait_queue_timeout = None,
            |client| client.pool.check_after_idle = None,
            |client| client.pool.host_timeout = None,
            |client| client.pool.backoff = Some(false),
            |client| client.pool.max_wait_queue_depth = None,
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

    /// Lets steps mean the oldest of what they could mean: then they do not depend on as many others.
    fn prefer_firsts(&mut self) {
        for at in 0..self.best.steps.len() {
            let mut script = self.best.clone();
            if script.steps.get_mut(at).is_some_and(|(_, step)| step.mean_first()) && self.tries < TRIES {
                self.keep(script);
            }
        }
    }

    /// Makes times of whole milliseconds, where that changes nothing.
    fn round_times(&mut self) {
        let round = |at: Instant| Instant::from_millis(at.as_nanos() / 1_000_000);
        let Script { client, steps, until } = &self.best;
        let steps = steps.iter().map(|(at, step)| (round(*at), *step)).collect();
        self.keep(Script { client: client.clone(), steps, until: round(*until) });
    }
}

/// The machine of a client without a bug.
pub(super) fn sound(case: &ClientCase) -> Option<cmap_core::topology::Topology<()>> {
    client(case).ok()
}

/// The same with its twin, if it has one.
pub(super) fn twins(case: &ClientCase) -> Option<Twins> {
    Some(Twins::of(case, sound(case)?, sound(case)?))
}

/// That the options fit together is not a law, but a condition.
pub(super) fn unusable() -> Broken {
    match law("the drawn options fit together", false, String::new) {
        Err(broken) => broken,
        Ok(()) => Broken { law: "", detail: String::new() },
    }
}
