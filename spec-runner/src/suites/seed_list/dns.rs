//! The records of the public DNS that the official tests count on, below `build.10gen.cc`.

use core::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

const DOMAIN: &str = ".test.build.10gen.cc";

/// The host that most records name.
const LOCALHOST: &str = "localhost.test.build.10gen.cc.";

const TIME_TO_LIVE: Duration = Duration::from_secs(86_400);

/// SRV records: service and host, which is below the domain or has all of its parts; port, target.
const SRV: &[(&str, u16, &str)] = &[
    ("_mongodb._tcp.test1", 27017, LOCALHOST),
    ("_mongodb._tcp.test1", 27018, LOCALHOST),
    ("_mongodb._tcp.test2", 27018, LOCALHOST),
    ("_mongodb._tcp.test2", 27019, LOCALHOST),
    ("_mongodb._tcp.test3", 27017, LOCALHOST),
    ("_mongodb._tcp.test5", 27017, LOCALHOST),
    ("_mongodb._tcp.test6", 27017, LOCALHOST),
    ("_mongodb._tcp.test7", 27017, LOCALHOST),
    ("_mongodb._tcp.test8", 27017, LOCALHOST),
    ("_mongodb._tcp.test9", 27017, LOCALHOST),
    ("_mongodb._tcp.test10", 27017, LOCALHOST),
    ("_mongodb._tcp.test11", 27017, LOCALHOST),
    ("_mongodb._tcp.test12", 27017, "localhost.build.10gen.cc."),
    ("_mongodb._tcp.test13", 27017, "test.build.10gen.cc."),
    ("_mongodb._tcp.test14", 27017, "localhost.not-test.build.10gen.cc."),
    ("_mongodb._tcp.test15", 27017, "localhost.test.not-build.10gen.cc."),
    ("_mongodb._tcp.test16", 27017, "localhost.test.build.not-10gen.cc."),
    ("_mongodb._tcp.test17", 27017, "localhost.test.build.10gen.not-cc."),
    ("_mongodb._tcp.test18", 27017, "localhost.sub.test.build.10gen.cc."),
    ("_mongodb._tcp.test19", 27017, "localhost.evil.build.10gen.cc."),
    ("_mongodb._tcp.test19", 27017, LOCALHOST),
    ("_mongodb._tcp.test20", 27017, LOCALHOST),
    ("_mongodb._tcp.test21", 27017, LOCALHOST),
    // the second one is missing in the README of the tests, and expected by them.
    ("_customname._tcp.test22", 27017, LOCALHOST),
    ("_customname._tcp.test22", 27018, LOCALHOST),
    ("_mongodb._tcp.test23", 8000, LOCALHOST),
    ("_mongodb._tcp.test24", 8000, LOCALHOST),
    ("_mongodb._tcp.test.build.10gen.cc", 27017, "test.build.10gen.cc."),
    ("_mongodb._tcp.build.10gen.cc", 27017, "build.10gen.cc."),
];

/// TXT records: host, pieces.
const TXT: &[(&str, &[&str])] = &[
    ("test5", &["replicaSet=repl0&authSource=thisDB"]),
    ("test6", &["replicaSet=repl0"]),
    ("test6", &["authSource=otherDB"]),
    ("test7", &["ssl=false"]),
    ("test8", &["authSource"]),
    ("test10", &["socketTimeoutMS=500"]),
    ("test11", &["replicaS", "et=rep", "l0"]),
    ("test20", &["loadBalanced=true"]),
    ("test21", &["loadBalanced=false"]),
    ("test24", &["loadBalanced=true"]),
];

/// The SRV records of `name`. `10gen.cc` itself has none.
pub(super) fn srv(name: &str) -> Vec<SrvRecord> {
    let of_name = SRV.iter().filter(|(own, ..)| name == *own || name.strip_suffix(DOMAIN) == Some(own));
    of_name.map(|(_, port, target)| SrvRecord::new(*target, *port, TIME_TO_LIVE)).collect()
}

/// The TXT records of `name`.
pub(super) fn txt(name: &str) -> Vec<TxtRecord> {
    let of_name = TXT.iter().filter(|(own, _)| name.strip_suffix(DOMAIN) == Some(own));
    of_name.map(|(_, pieces)| TxtRecord { strings: pieces.iter().map(|piece| (*piece).into()).collect() }).collect()
}
