//! Why a test cannot be carried out on real sockets: the first of its operations or options that only a simulation has.

use std::time::Duration;

use super::Servers;
use crate::suites::cmap::format::{Case, Operation};

/// A test that waits for longer than this altogether is left to virtual time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason why `case` cannot be carried out against `servers`, if there is one.
pub(super) fn of(case: &Case, servers: &Servers) -> Option<String> {
    let is_named = !servers.are_embedded();
    let wishes = case.server.auth || !case.server.service_ids.is_empty() || case.pool_options.load_balanced.is_some();
    let reason = if uses(case, |operation| matches!(operation, Operation::Network { .. })) {
        "needs the virtual network"
    } else if uses(case, |operation| matches!(operation, Operation::HangUp { .. })) {
        "needs a server that hangs up when it is told to"
    } else if case.server.service_ids.len() > 1 {
        "needs several services behind a load balancer"
    } else if case.virtual_time {
        "needs virtual time: it bounds times from above"
    } else if waits(case) > PATIENCE {
        "needs virtual time: it takes long"
    } else if sets_fail_points(case) && has_failing_operations(case) {
        "needs two fail points at once"
    } else if is_named && wishes {
        "needs a server with options of its own, as only the embedded one can have"
    } else if (sets_fail_points(case) || has_failing_operations(case)) && !servers.have_fail_points() {
        "needs fail points, which the server does not set (mongod: --setParameter enableTestCommands=1)"
    } else {
        return None;
    };
    Some(reason.into())
}

/// Whether the test sets the server's fail point.
pub(super) fn sets_fail_points(case: &Case) -> bool {
    case.fail_point.is_some() || uses(case, |operation| matches!(operation, Operation::FailPoint { .. }))
}

/// Whether operations on connections fail in the test, which takes a fail point, too.
pub(super) fn has_failing_operations(case: &Case) -> bool {
    uses(case, |operation| matches!(operation, Operation::CheckIn { error: Some(_), .. }))
}

fn uses(case: &Case, is_it: impl Fn(&Operation) -> bool) -> bool {
    case.operations.iter().any(|step| is_it(&step.operation))
}

fn waits(case: &Case) -> Duration {
    let waits = case.operations.iter().map(|step| match &step.operation {
        Operation::Wait { ms } => *ms,
        Operation::Start { .. }
        | Operation::WaitForThread { .. }
        | Operation::WaitForEvent { .. }
        | Operation::CheckOut { .. }
        | Operation::CheckIn { .. }
        | Operation::Clear { .. }
        | Operation::Close {}
        | Operation::Ready {}
        | Operation::Resize { .. }
        | Operation::EndAffinity { .. }
        | Operation::RenewCredential { .. }
        | Operation::ReplaceConnections { .. }
        | Operation::WarmUp { .. }
        | Operation::Resume {}
        | Operation::Cancel { .. }
        | Operation::HangUp { .. }
        | Operation::Network { .. }
        | Operation::FailPoint { .. }
        | Operation::AssertCounts { .. } => 0,
    });
    Duration::from_millis(waits.map(u64::from).sum())
}
