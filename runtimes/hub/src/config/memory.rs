//! How much memory the hub may have for what clients send and take, unless it is said: a quarter of what it is allowed, or of what there is.

use std::fs;

/// Without either.
const DEFAULT: u64 = 1 << 30;

/// At least: some of the largest messages.
const LEAST: u64 = 192 << 20;

/// A quarter of the limit of the hub's control group, or of the machine's memory.
pub(super) fn default_budget() -> usize {
    let all = of_group().or_else(of_machine).map_or(DEFAULT, |all| (all / 4).max(LEAST));
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// How many bytes of the budget one of so many users may have, unless it is said. Half is for others, if there are any.
pub(super) fn per_user(asked: Option<usize>, budget: usize, users: usize) -> usize {
    asked.unwrap_or(if users > 1 { budget / 2 } else { budget })
}

/// The least limit of the process's control group and those around it, by the second version of these.
fn of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut folder = std::path::Path::new("/sys/fs/cgroup").join(own);
    let mut least = None;
    while folder.starts_with("/sys/fs/cgroup") {
        let limit = fs::read_to_string(folder.join("memory.max")).ok().and_then(|text| text.trim().parse::<u64>().ok());
        least = [least, limit].into_iter().flatten().min();
        if !folder.pop() {
            break;
        }
    }
    least
}

fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    Some(kibibytes.parse::<u64>().ok()? * 1024)
}
