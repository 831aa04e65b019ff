"""Compares the results of the same tests: compare.py WITHOUT.xml WITH.xml. Fails if a test passes without the hub and not with it, and no
reason is known."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

# Tests that look for what a hub is there to hide, or that reach behind it.
REASONS = [
    (
        r"TestLoadBalancer(Cursors|Transactions|EventMonitoring)|TestLoadBalancerSdamErrorHandling::test_stale|"
        r"does_not_retry_retryable_errors|isClientError_considers_network_errors|bulk_write_command_(network_)?error|"
        r"test_backoff_is_not_applied_for_non_overload|test_overload_then_nonoverload",
        "a connection that is lost upstream, or a server that changes its state, is an error of the operation alone (X-134)",
    ),
    (
        r"TestUnifiedHandshakeError|TestLoadBalancerSdamErrorHandling::test_errors_during",
        "a fail point in handshakes meets the hub's connections, and not the driver's",
    ),
    (
        r"TestPooling::test_\w*timeout_message|TestClientBackpressure::test_01|TestOperationIdRetry",
        "a fail point for an application's name does not meet the hub, which has a name of its own upstream",
    ),
    (
        r"add_TransientTransactionError_label_to_connection_errors",
        "a transaction that has lost its connection is over: the hub refuses its later commands, and a fail point for them meets what follows",
    ),
    (r"TestPooling::", "its connections say hello without loadBalanced, which a hub refuses (X-130)"),
    (r"TestClient::test_(auth_from_uri|username_and_password)", "users that clients create upstream are none of the hub's"),
    (r"test_exhaust$", "exhaust cursors get ordinary batches"),
    (r"raw_transaction$|TestClusterTime::test_cluster_time$", "the hub's own hello has no cluster time, so a driver learns it later"),
    (r"recoveryToken", "a replica set has no recovery tokens; the other server poses as a router"),
    (r"test_try_next_runs_one_getmore|TestCollectionChangeStream::test_kill_cursors|after_nonempty_getMore", "a cursor is killed by the connection that opened it alone (X-132)"),
    (r"testversion2|not_part_of_the_versioned_API", "a hub passes on only commands that it knows, or a rule names (X-133)"),
    (r"Aggregate_with_\$(out|merge)_includes_read_preference", "the test server does not take writing pipelines on secondaries, as MongoDB does"),
]


def read(path):
    """The outcome of each test, and what it said."""
    outcomes = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        faults = [part for part in case if part.tag in ("failure", "error")]
        skipped = any(part.tag == "skipped" for part in case)
        outcome = "failed" if faults else "skipped" if skipped else "passed"
        outcomes[name] = (outcome, " ".join((part.get("message") or "")[:300] for part in faults))
    return outcomes


def main():
    without, through = read(sys.argv[1]), read(sys.argv[2])
    for title, outcomes in (("without the hub", without), ("through the hub", through)):
        counts = Counter(outcome for outcome, _ in outcomes.values())
        print(f"{title}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    known, unknown = Counter(), []
    for name, (outcome, _) in sorted(without.items()):
        other, message = through.get(name, ("missing", ""))
        if outcome == "passed" and other != "passed":
            reason = next((reason for pattern, reason in REASONS if re.search(pattern, name)), None)
            if reason:
                known[reason] += 1
            else:
                unknown.append(f"{other} {name}: {message}")
    for reason, count in known.most_common():
        print(f"{count} fail through the hub, because {reason}")
    for line in unknown:
        print(line)
    # A suite that could not run passes nothing.
    if unknown or len(without) != len(through) or sum(outcome == "passed" for outcome, _ in without.values()) < 2000:
        sys.exit(1)


main()
