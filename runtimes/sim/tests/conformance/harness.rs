//! How the suite runs in a simulation: each case under many seeds, with its servers on the same virtual network.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cmap_conformance::{Harness, ground};
use cmap_sim::{Sim, SimRuntime, for_seeds};
use rustix::time::{ClockId, clock_gettime};

use crate::ground::Hosts;

pub(crate) struct Virtual;

/// The seeds of a case that takes little time. Others have one.
const SEEDS: u64 = 200;

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
        for_seeds(0..1, |seed| run(seed, &case));
        if cpu_time() - began < LITTLE {
            for_seeds(1..SEEDS, |seed| run(seed, &case));
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let sim = SIM.with_borrow(Clone::clone).expect("a case runs in a simulation");
        sim.run(future)
    }
}

fn run(seed: u64, case: impl Fn()) {
    let sim = Rc::new(Sim::new(seed));
    let hosts = Arc::new(Hosts::new(sim.runtime().clone()));
    // What a case before this one has left, if it has failed.
    let _left = SIM.replace(Some(sim));
    ground::on(hosts, case);
    let _ended = SIM.take();
}

/// The time that this thread has worked.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}
