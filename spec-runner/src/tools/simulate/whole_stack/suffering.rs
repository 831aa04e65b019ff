//! Carries out faults: each begins at its time, whatever else goes wrong, and heals later.
//!
//! What one fault has done, the end of another may undo earlier: a crash ends when any server is restarted. After the last
//! one everything is well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cmap_core::random::Random;
use cmap_sim::bson::rawdoc;
use cmap_sim::{Data, Reachability, Runtime, SimRuntime};

use super::fault::{Fault, FaultKind};
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
        match fault.kind {
            FaultKind::Swizzle => self.swizzle(runtime, fault).await,
            FaultKind::StepDown | FaultKind::Reconfigure | FaultKind::Lag => self.change_set(runtime, fault).await,
            FaultKind::Slow | FaultKind::Spike => pace(runtime, fault).await,
            FaultKind::ClockJump => jump(runtime, fault).await,
            FaultKind::LoseData => self.lose_data(runtime, fault).await,
            FaultKind::Crash
            | FaultKind::SwitchOff
            | FaultKind::Hang
            | FaultKind::Partition
            | FaultKind::ResetConnections
            | FaultKind::LoseConnection
            | FaultKind::HalfOpen
            | FaultKind::Refuse
            | FaultKind::ResetInUse
            | FaultKind::RateLimit => {
                let Some(place) = self.place(fault.server) else { return false };
                let began = begin(&place, fault);
                runtime.sleep(fault.lasts).await;
                end(&place, fault.kind);
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
        match fault.kind {
            FaultKind::StepDown => servers.step_down(STEP_DOWN),
            FaultKind::Lag => {
                let lag = Duration::from_millis(pick(&mut fault.random(), &[1, 50, 1000]));
                servers.set_lag(member, lag);
                runtime.sleep(fault.lasts).await;
                servers.set_lag(member, Duration::ZERO);
            }
            FaultKind::Reconfigure => {
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
            FaultKind::Crash
            | FaultKind::LoseData
            | FaultKind::SwitchOff
            | FaultKind::Hang
            | FaultKind::Partition
            | FaultKind::Swizzle
            | FaultKind::ResetConnections
            | FaultKind::LoseConnection
            | FaultKind::HalfOpen
            | FaultKind::Refuse
            | FaultKind::ResetInUse
            | FaultKind::Slow
            | FaultKind::Spike
            | FaultKind::RateLimit
            | FaultKind::ClockJump => return false,
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
    match fault.kind {
        FaultKind::Crash => place.crash(),
        FaultKind::SwitchOff => place.switch_off(),
        FaultKind::Hang => place.hang(true),
        FaultKind::Partition => place.partition(),
        FaultKind::ResetConnections => place.reset_connections(),
        FaultKind::LoseConnection => return place.lose_connection(),
        FaultKind::HalfOpen => place.set_reachability(Reachability::Silent),
        FaultKind::Refuse => place.set_reachability(Reachability::Refuses),
        FaultKind::ResetInUse => place.set_reachability(Reachability::Resets),
        FaultKind::RateLimit => {
            let mut random = fault.random();
            let (rate, queue) = (pick(&mut random, &[1, 5, 50]), pick(&mut random, &[0, 3, 100]));
            return limit(place, Some((rate, queue)));
        }
        FaultKind::LoseData
        | FaultKind::Swizzle
        | FaultKind::StepDown
        | FaultKind::Reconfigure
        | FaultKind::Lag
        | FaultKind::Slow
        | FaultKind::Spike
        | FaultKind::ClockJump => return false,
    }
    true
}

fn end(place: &Place<'_>, kind: FaultKind) {
    match kind {
        FaultKind::Crash | FaultKind::SwitchOff => place.restart(),
        FaultKind::Hang => place.hang(false),
        FaultKind::Partition => place.heal(),
        FaultKind::HalfOpen | FaultKind::Refuse | FaultKind::ResetInUse => place.set_reachability(Reachability::Up),
        FaultKind::RateLimit => drop(limit(place, None)),
        FaultKind::LoseData
        | FaultKind::Swizzle
        | FaultKind::StepDown
        | FaultKind::Reconfigure
        | FaultKind::Lag
        | FaultKind::ResetConnections
        | FaultKind::LoseConnection
        | FaultKind::Slow
        | FaultKind::Spike
        | FaultKind::ClockJump => {}
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
    let (latency, bytes) = if fault.kind == FaultKind::Slow {
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
