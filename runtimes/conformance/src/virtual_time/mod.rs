//! The suite in virtual time: each case under many seeds, in a simulation with its servers on the same virtual network.

mod ground;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cmap_sim::{Sim, SimRuntime, for_seeds, seeds_or};
use rustix::time::{ClockId, clock_gettime};

use self::ground::Hosts;
use crate::Harness;

/// How the suite runs in simulations.
pub struct Virtual;

/// The seeds of a case that takes little time, unless `CMAP_SIM_SEEDS` names others. Cases that take longer have one.
const SEEDS: u64 = 50;

/// The most CPU that a case with many seeds takes for one.
const LITTLE: Duration = Duration::from_millis(20);

thread_local! {
    /// The simulation of the case that runs on this thread.
    static SIM: RefCell<Option<Rc<Sim>>> = const { RefCell::new(None) };
}

impl Harness for Virtual {
    type Runtime = SimRuntime;

    const ENDS: bool = false;

    fn test(case: impl Fn()) {
        let began = cpu_time();
        for_seeds(0..1, |seed| Self::simulate(seed, &case));
        let seeds = if cpu_time() - began < LITTLE { seeds_or(SEEDS) } else { 0..1 };
        for_seeds(seeds.start.max(1)..seeds.end, |seed| Self::simulate(seed, &case));
        println!("the seeds up to {} took {:?} of CPU", seeds.end, cpu_time() - began);
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let sim = SIM.with_borrow(Clone::clone).expect("a case runs in a simulation");
        sim.run(future)
    }
}

impl Virtual {
    /// Runs `case` in a simulation of its own.
    pub fn simulate(seed: u64, case: impl Fn()) {
        /// Ends the simulation, whether its case fails or not.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                drop(SIM.take());
            }
        }

        let sim = Rc::new(Sim::new(seed));
        let hosts = Arc::new(Hosts::new(sim.runtime().clone()));
        SIM.set(Some(sim));
        let _end = End;
        crate::ground::on(hosts, case);
    }
}

/// The time that this thread has worked.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}
