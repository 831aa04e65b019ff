//! Carries out faults: each begins at its time, whatever else goes wrong, and heals later.
//!
//! What one fault has done, the end of another may undo earlier: a crash ends when any server is restarted. After the last
//! one everything is well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cmap_core::random::Random;
use cmap_sim::bson::rawdoc;
use cmap_sim::{Data, Reachability, Runtime, SimRuntime};

use super::fault::{Fault, Trouble};
use super::place::Place;
use super::plan::pick;
use super::servers::{Target, configuration};

/// For how long a primary that stepped down is not elected.
const STEP_DOWN: Duration = Duration::from_secs(10);

/// The network's latency when all is well.
const USUAL: (u64, u64) = (50, 500);

impl Target {
    /// Lets a fault happen, from its beginning to its end. Returns whether it could.
    pub(super) async fn suffer(&self, runtime: &SimRuntime, fault: Fault) -> bool {
        match fault.trouble {
            Trouble::Swizzle => self.swizzle(runtime, fault).await,
            Trouble::StepDown | Trouble::Reconfigure | Trouble::Lag => self.change_set(runtime, fault).await,
            Trouble::Slow | Trouble::Spike => pace(runtime, fault).await,
            Trouble::ClockJump => jump(runtime, fault).await,
            Trouble::LoseData => self.lose_data(runtime, fault).await,
            Trouble::Crash
            | Trouble::SwitchOff
            | Trouble::Hang
            | Trouble::Partition
            | Trouble::ResetConnections
            | Trouble::LoseConnection
            | Trouble::HalfOpen
            | Trouble::Refuse
            | Trouble::ResetInUse
            | Trouble::RateLimit => {
                let Some(place) = self.place(fault.server) else { return false };
                let began = begin(&place, fault);
                runtime.sleep(fault.lasts).await;
                end(&place, fault.trouble);
                began
            }
        }
    }

    /// Cuts every server off, one after the other, and heals them in another order.
    async fn swizzle(&self, runtime: &SimRuntime, fault: Fault) -> bool {
        let (mut random, places) = (fault.random(), self.places());
        let steps = u32::try_from(2 * places.len()).unwrap_or(u32::MAX);
        let step = fault.lasts / steps.max(1);
        for number in shuffled(&mut random, places.len()) {
            places.get(number).into_iter().for_each(Place::partition);
            runtime.sleep(step).await;
        }
        for number in shuffled(&mut random, places.len()) {
            places.get(number).into_iter().for_each(Place::heal);
            runtime.sleep(step).await;
        }
        true
    }

    /// What happens to replica sets only.
    async fn change_set(&self, runtime: &SimRuntime, fault: Fault) -> bool {
        let Some(servers) = self.several() else { return false };
        let Some((member, _)) = servers.members().get(fault.server).cloned() else { return false };
        match fault.trouble {
            Trouble::StepDown => servers.step_down(STEP_DOWN),
            Trouble::Lag => {
                let lag = Duration::from_millis(pick(&mut fault.random(), &[1, 50, 1000]));
                servers.set_lag(member, lag);
                runtime.sleep(fault.lasts).await;
                servers.set_lag(member, Duration::ZERO);
            }
            Trouble::Reconfigure => {
                // One member at a time, or a majority of one configuration need not have anything of the next one's. Odd
                // versions have all members.
                let version = self.version.load(Ordering::Relaxed);
                if version % 2 == 0 {
                    return false;
                }
                self.version.store(version + 1, Ordering::Relaxed);
                servers.reconfigure(configuration(servers, version + 1, Some(fault.server)));
                runtime.sleep(fault.lasts).await;
                servers.reconfigure(configuration(servers, version + 2, None));
                self.version.store(version + 2, Ordering::Relaxed);
            }
            Trouble::Crash
            | Trouble::LoseData
            | Trouble::SwitchOff
            | Trouble::Hang
            | Trouble::Partition
            | Trouble::Swizzle
            | Trouble::ResetConnections
            | Trouble::LoseConnection
            | Trouble::HalfOpen
            | Trouble::Refuse
            | Trouble::ResetInUse
            | Trouble::Slow
            | Trouble::Spike
            | Trouble::RateLimit
            | Trouble::ClockJump => return false,
        }
        true
    }

    async fn lose_data(&self, runtime: &SimRuntime, fault: Fault) -> bool {
        let Some(server) = self.alone() else { return false };
        server.crash();
        runtime.sleep(fault.lasts).await;
        server.restart(Data::Lost);
        // Before anybody can look.
        self.fill();
        true
    }
}

fn begin(place: &Place<'_>, fault: Fault) -> bool {
    match fault.trouble {
        Trouble::Crash => place.crash(),
        Trouble::SwitchOff => place.switch_off(),
        Trouble::Hang => place.hang(true),
        Trouble::Partition => place.partition(),
        Trouble::ResetConnections => place.reset_connections(),
        Trouble::LoseConnection => return place.lose_connection(),
        Trouble::HalfOpen => place.set_reachability(Reachability::Silent),
        Trouble::Refuse => place.set_reachability(Reachability::Refuses),
        Trouble::ResetInUse => place.set_reachability(Reachability::Resets),
        Trouble::RateLimit => {
            let mut random = fault.random();
            let (rate, queue) = (pick(&mut random, &[1, 5, 50]), pick(&mut random, &[0, 3, 100]));
            return limit(place, Some((rate, queue)));
        }
        Trouble::LoseData
        | Trouble::Swizzle
        | Trouble::StepDown
        | Trouble::Reconfigure
        | Trouble::Lag
        | Trouble::Slow
        | Trouble::Spike
        | Trouble::ClockJump => return false,
    }
    true
}

fn end(place: &Place<'_>, trouble: Trouble) {
    match trouble {
        Trouble::Crash | Trouble::SwitchOff => place.restart(),
        Trouble::Hang => place.hang(false),
        Trouble::Partition => place.heal(),
        Trouble::HalfOpen | Trouble::Refuse | Trouble::ResetInUse => place.set_reachability(Reachability::Up),
        Trouble::RateLimit => drop(limit(place, None)),
        Trouble::LoseData
        | Trouble::Swizzle
        | Trouble::StepDown
        | Trouble::Reconfigure
        | Trouble::Lag
        | Trouble::ResetConnections
        | Trouble::LoseConnection
        | Trouble::Slow
        | Trouble::Spike
        | Trouble::ClockJump => {}
    }
}

/// Sets the rate of new connections, and how many may wait; or no limit. Returns whether the server is up.
fn limit(place: &Place<'_>, limit: Option<(i32, i32)>) -> bool {
    let (rate, queue) = limit.unwrap_or((i32::MAX, 0));
    let set = rawdoc! {
        "setParameter": 1,
        "ingressConnectionEstablishmentRatePerSec": rate,
        "ingressConnectionEstablishmentBurstCapacitySecs": 1.0,
        "ingressConnectionEstablishmentMaxQueueDepth": queue,
        "ingressConnectionEstablishmentRateLimiterEnabled": limit.is_some(),
    };
    place.run_command("admin", &set).is_some()
}

/// Makes the network slow for a while.
async fn pace(runtime: &SimRuntime, fault: Fault) -> bool {
    let mut random = fault.random();
    let (latency, bytes) = if fault.trouble == Trouble::Slow {
        (USUAL, Some(pick(&mut random, &[5_000, 50_000, 500_000])))
    } else {
        let least = pick(&mut random, &[2_000, 30_000, 300_000]);
        ((least, 3 * least), None)
    };
    let set = |(least, most), bytes| {
        runtime.set_pace(Duration::from_micros(least)..=Duration::from_micros(most), bytes);
    };
    set(latency, bytes);
    runtime.sleep(fault.lasts).await;
    set(USUAL, None);
    true
}

/// Sets the client's clock, forwards or backwards, and back later.
async fn jump(runtime: &SimRuntime, fault: Fault) -> bool {
    let mut random = fault.random();
    let by = Duration::from_millis(random.up_to(172_800_000));
    let is_forwards = random.up_to(1) == 0;
    for is_forwards in [is_forwards, !is_forwards] {
        let now = runtime.unix_time();
        runtime.set_unix_time(if is_forwards { now.saturating_add(by) } else { now.saturating_sub(by) });
        runtime.sleep(fault.lasts).await;
    }
    true
}

/// The numbers below `count`, in an order of chance.
fn shuffled(random: &mut Random, count: usize) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        let other = usize::try_from(random.up_to(last as u64)).unwrap_or_default();
        numbers.swap(last, other);
    }
    numbers
}
