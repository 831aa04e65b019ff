//! Whether every start among a run's events has its end, once the pool is closed and everything was returned.

/// The starts without an end, or the other way round; `count` is how often a type of event happened.
pub(super) fn imbalances(count: impl Fn(&str) -> usize) -> Vec<String> {
    let failed = count("ConnectionCheckOutFailed");
    let balances = [
        ("ConnectionCreated", "ConnectionClosed", count("ConnectionClosed")),
        ("ConnectionCheckedOut", "ConnectionCheckedIn", count("ConnectionCheckedIn")),
        (
            "ConnectionCheckOutStarted",
            "ConnectionCheckedOut or ConnectionCheckOutFailed",
            count("ConnectionCheckedOut") + failed,
        ),
    ];
    let differ = balances.into_iter().filter(|(begin, _, ended)| count(begin) != *ended);
    differ
        .map(|(begin, end, ended)| format!("events do not balance: {} {begin}, {ended} {end}", count(begin)))
        .collect()
}
