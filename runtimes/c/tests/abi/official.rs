//! The official files of the format CMAP, through the functions of the header, in virtual time.
//!
//! Threads of a test are queues of operations here. While one of them can go on, time stands still; when all wait, it jumps to the next
//! moment at which something happens. The server answers at once, unless a fail point is in the way.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use cmap::*;
use serde_json::{Map, Value, json};

use crate::pool::{AbiPool, Seen};

const MILLISECOND: u64 = 1_000_000;

/// The folders of the specifications, where `spec-runner` looks for them, too.
fn specifications() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = env::var_os("MONGODB_SPECS").map(|named| env::split_paths(&named).collect::<Vec<_>>());
    let shared = ["../shared/specs", "../shared/specs-next", "../shared/specs-later"];
    let usual = [&["specifications/source"][..], &shared];
    let usual = usual.map(|folders| folders.iter().map(|folder| root.join(folder)).collect::<Vec<_>>());
    let tests = |folders: Vec<PathBuf>| {
        let tests =
            folders.into_iter().map(|folder| folder.join("connection-monitoring-and-pooling/tests/cmap-format"));
        tests.filter(|folder| folder.is_dir()).collect::<Vec<_>>()
    };
    named.into_iter().chain(usual).map(tests).find(|folders| !folders.is_empty()).unwrap_or_default()
}

#[test]
fn the_official_files_pass_through_the_abi() {
    let mut files = BTreeMap::new();
    for folder in specifications() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                files.insert(path.file_name().unwrap().to_owned(), path);
            }
        }
    }
    if files.is_empty() {
        // Past the harness, which keeps what a passing test prints to itself.
        let _ = writeln!(
            io::stderr(),
            "left out: no official files; git clone --depth 1 https://github.com/mongodb/specifications"
        );
        return;
    }
    assert!(files.len() >= 33, "{files:?}");
    let mut failed = Vec::new();
    for (name, path) in files {
        let case: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        for latency in [0, MILLISECOND] {
            if let Err(problem) = Session::new(&case, latency).run() {
                failed.push(format!("{name:?} with a latency of {latency} ns: {problem}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// One test while it runs.
struct Session<'a> {
    case: &'a Value,
    pool: AbiPool,
    now: u64,
    latency: u64,
    threads: BTreeMap<&'a str, Thread<'a>>,
    /// The hellos under way, by the times of their ends and the numbers of their connections.
    schedule: BTreeMap<(u64, u64), Hello>,
    fail_point: Option<FailPoint>,
    labels: BTreeMap<&'a str, Seen>,
    /// The deliveries that were not checked in.
    held: Vec<Seen>,
    /// How check-outs ended whose thread has not gone on yet.
    ended: Vec<(CheckOut, Seen)>,
    events: Vec<Value>,
}

#[derive(Default)]
struct Thread<'a> {
    steps: VecDeque<&'a Value>,
    is_started: bool,
    wait: Option<Wait<'a>>,
    error: Option<(&'static str, String)>,
}

#[derive(Clone)]
enum Wait<'a> {
    Until(u64),
    Event { name: &'a str, count: u64, until: u64 },
    Thread(&'a str),
    CheckOut { check_out: CheckOut, label: Option<&'a str> },
}

/// The end of an establishment.
struct Hello {
    connection: Connection,
    number: u64,
    /// The fault and the server's code, if it fails.
    failure: Option<(u32, i32)>,
}

struct FailPoint {
    times: u64,
    delay: u64,
    failure: Option<(u32, i32)>,
}

impl FailPoint {
    fn read(command: &Value) -> Self {
        let data = &command["data"];
        let code = data["errorCode"].as_i64().map(|code| (CMAP_FAULT_SERVER, i32::try_from(code).unwrap()));
        let closes = data["closeConnection"] == true;
        Self {
            times: command["mode"]["times"].as_u64().unwrap_or(u64::MAX),
            delay: if data["blockConnection"] == true {
                data["blockTimeMS"].as_u64().unwrap() * MILLISECOND
            } else {
                0
            },
            failure: if closes { Some((CMAP_FAULT_NETWORK, 0)) } else { code },
        }
    }
}

const MAIN: &str = "";

impl<'a> Session<'a> {
    fn new(case: &'a Value, latency: u64) -> Self {
        let mut options = case["poolOptions"].as_object().cloned().unwrap_or_default();
        options.remove("appName");
        if let Some(interval) = options.remove("backgroundThreadIntervalMS") {
            options.insert("maintenanceMS".into(), interval);
        }
        let steps = case["operations"].as_array().unwrap().iter().collect();
        let mut session = Self {
            case,
            pool: AbiPool::new(&Value::Object(options).to_string(), 0).unwrap(),
            now: 0,
            latency,
            threads: BTreeMap::from([(MAIN, Thread { steps, is_started: true, ..Thread::default() })]),
            schedule: BTreeMap::new(),
            fail_point: case.get("failPoint").map(FailPoint::read),
            labels: BTreeMap::new(),
            held: Vec::new(),
            ended: Vec::new(),
            events: Vec::new(),
        };
        session.drain();
        session
    }

    fn run(mut self) -> Result<(), String> {
        while !self.is_done(MAIN) {
            if !self.advance() {
                return Err("every thread waits, and nothing will happen".into());
            }
        }
        self.check_error()?;
        self.check_events()?;
        self.check_end()
    }

    fn is_done(&self, name: &str) -> bool {
        let done = |thread: &Thread<'_>| thread.error.is_some() || (thread.wait.is_none() && thread.steps.is_empty());
        self.threads.get(name).is_none_or(|thread| thread.is_started && done(thread))
    }

    /// Lets a thread go on, or the next thing happen.
    fn advance(&mut self) -> bool {
        let at_work = |(_, thread): &(&&'a str, &Thread<'a>)| {
            thread.is_started && thread.error.is_none() && thread.wait.is_none() && !thread.steps.is_empty()
        };
        // The main thread, whose name is the first, is the last.
        let name = self.threads.iter().rev().find(at_work).map(|(name, _)| *name);
        if let Some(name) = name {
            let step = self.threads.get_mut(name).and_then(|thread| thread.steps.pop_front()).unwrap();
            match step["thread"].as_str().filter(|&other| other != name) {
                Some(other) => self.threads.entry(other).or_default().steps.push_back(step),
                None => self.carry_out(name, step),
            }
            return true;
        }
        let waits = self.threads.iter().filter_map(|(name, thread)| Some((*name, thread.wait.clone()?)));
        for (name, wait) in waits.collect::<Vec<_>>() {
            if self.try_to_go_on(name, wait) {
                return true;
            }
        }
        self.pass_time()
    }

    fn pass_time(&mut self) -> bool {
        let timers = self.threads.values().filter_map(|thread| match thread.wait {
            Some(Wait::Until(until) | Wait::Event { until, .. }) => Some(until),
            Some(Wait::Thread(_) | Wait::CheckOut { .. }) | None => None,
        });
        let server = self.schedule.first_key_value().map(|((at, _), _)| *at);
        let (timeout, _) = self.pool.poll_timeout();
        let next = timers.chain(server).chain([timeout]).min().unwrap_or(CMAP_NEVER);
        if next == CMAP_NEVER {
            return false;
        }
        self.now = self.now.max(next);
        if let Some(entry) = self.schedule.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let Hello { connection, number, failure } = entry.remove();
            let reported = match failure {
                None => self.pool.established(self.now, connection, number),
                Some((fault, code)) => {
                    let failure = (CMAP_PHASE_HELLO, fault, code, CMAP_REACTION_BY_RULES);
                    self.pool.establish_failed(self.now, connection, failure, "the hello failed")
                }
            };
            reported.unwrap();
        } else if timeout <= self.now {
            self.pool.handle_timeout(self.now).unwrap();
        }
        self.drain();
        true
    }

    fn carry_out(&mut self, thread: &'a str, step: &'a Value) {
        let millis = |value: &Value| value.as_u64().unwrap() * MILLISECOND;
        let wait = match step["name"].as_str().unwrap() {
            "start" => {
                self.threads.entry(step["target"].as_str().unwrap()).or_default().is_started = true;
                None
            }
            "wait" => Some(Wait::Until(self.now + millis(&step["ms"]))),
            "waitForThread" => Some(Wait::Thread(step["target"].as_str().unwrap())),
            "waitForEvent" => {
                let limit = step.get("timeout").map_or(10_000 * MILLISECOND, millis);
                let (name, count) = (step["event"].as_str().unwrap(), step["count"].as_u64().unwrap());
                Some(Wait::Event { name, count, until: self.now + limit })
            }
            "checkOut" => {
                let (check_out, delivery) = self.pool.check_out(self.now, None, None);
                self.take(delivery);
                Some(Wait::CheckOut { check_out, label: step["label"].as_str() })
            }
            "checkIn" => {
                let delivered = self.labels.remove(step["connection"].as_str().unwrap()).unwrap();
                self.check_in(&delivered);
                None
            }
            "clear" => {
                let interrupts = step["interruptInUseConnections"] == true;
                self.pool.clear(self.now, None, interrupts, "the test").unwrap();
                None
            }
            "ready" => {
                self.pool.ready(self.now).unwrap();
                None
            }
            "close" => {
                self.pool.close(self.now).unwrap();
                None
            }
            unknown => panic!("the operation {unknown} is unknown"),
        };
        self.threads.get_mut(thread).unwrap().wait = wait;
        self.drain();
    }

    fn check_in(&mut self, delivered: &Seen) {
        let Seen { check_out, connection, socket, .. } = *delivered;
        self.held.retain(|held| held.check_out != check_out);
        let next = self.pool.check_in(self.now, check_out, connection, socket, CMAP_CONDITION_USABLE).unwrap();
        self.take(next);
        self.drain();
    }

    fn try_to_go_on(&mut self, name: &'a str, wait: Wait<'a>) -> bool {
        let error = match wait {
            Wait::Until(until) if until <= self.now => None,
            Wait::Event { name, count, .. } if self.occurred(name) >= count => None,
            Wait::Event { name, until, .. } if until <= self.now => Some(("", format!("waited in vain for {name}"))),
            Wait::Thread(target) if self.is_done(target) => self.threads[target].error.clone(),
            Wait::CheckOut { check_out, label } => {
                let Some(place) = self.ended.iter().position(|(ended, _)| *ended == check_out) else { return false };
                let (_, seen) = self.ended.swap_remove(place);
                if seen.kind == CMAP_DELIVER {
                    if let Some(label) = label {
                        self.labels.insert(label, seen);
                    }
                    None
                } else {
                    Some((error_type(seen.reason), seen.text))
                }
            }
            Wait::Until(_) | Wait::Event { .. } | Wait::Thread(_) => return false,
        };
        let thread = self.threads.get_mut(name).unwrap();
        (thread.wait, thread.error) = (None, error);
        true
    }

    fn occurred(&self, name: &str) -> u64 {
        self.events.iter().filter(|event| event["type"] == name).count() as u64
    }

    fn drain(&mut self) {
        loop {
            let seen = self.pool.poll();
            if seen == Seen::NOTHING {
                return;
            }
            self.take(seen);
        }
    }

    fn take(&mut self, seen: Seen) {
        match seen.kind {
            CMAP_CONNECT => {
                let (delay, failure) = match &mut self.fail_point {
                    Some(FailPoint { times, delay, failure }) if *times > 0 => {
                        *times -= 1;
                        (*delay, *failure)
                    }
                    Some(_) | None => (0, None),
                };
                let hello = Hello { connection: seen.connection, number: seen.number, failure };
                self.schedule.insert((self.now + self.latency + delay, seen.number), hello);
            }
            CMAP_CHECK => {
                self.pool.checked(self.now, seen.connection, true).unwrap();
            }
            CMAP_DELIVER => {
                assert_eq!(seen.socket, seen.number);
                self.held.push(seen.clone());
                self.ended.push((seen.check_out, seen));
            }
            CMAP_FAIL => self.ended.push((seen.check_out, seen)),
            // An establishment that is given up is not reported.
            CMAP_INTERRUPT => self.schedule.retain(|_, hello| hello.connection != seen.connection),
            CMAP_NOTHING | CMAP_CLOSE => {}
            kind => self.events.push(event(kind, &seen)),
        }
    }

    fn check_error(&self) -> Result<(), String> {
        let error = self.threads[MAIN].error.as_ref();
        match (self.case.get("error"), error) {
            (None, None) => Ok(()),
            (Some(expected), Some((name, text)))
                if expected["type"] == *name && text.starts_with(expected["message"].as_str().unwrap_or_default()) =>
            {
                Ok(())
            }
            (expected, error) => Err(format!("expected the error {expected:?}, got {error:?}")),
        }
    }

    fn check_events(&self) -> Result<(), String> {
        let ignored = self.case["ignore"].as_array().cloned().unwrap_or_default();
        let mut actual = self.events.iter().filter(|event| !ignored.contains(&event["type"]));
        for expected in self.case["events"].as_array().unwrap() {
            let actual = actual.next().ok_or_else(|| format!("{expected} is missing"))?;
            if !matches(expected, actual) {
                return Err(format!("expected {expected}, got {actual}"));
            }
        }
        Ok(())
    }

    /// Nothing is left when all has come back.
    fn check_end(mut self) -> Result<(), String> {
        self.threads.clear();
        self.pool.close(self.now).unwrap();
        self.drain();
        for held in core::mem::take(&mut self.held) {
            self.check_in(&held);
        }
        while !self.schedule.is_empty() {
            self.pass_time();
        }
        let statistics = self.pool.statistics(self.now);
        let closed: u64 = statistics["closed"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let is_over = self.pool.poll_timeout() == (CMAP_NEVER, CMAP_TIMEOUT_NONE);
        let nothing = json!({ "pending": 0, "available": 0, "inUse": 0, "waiting": 0 });
        if statistics["created"] != closed || statistics["counts"] != nothing || !is_over {
            return Err(format!("at the end: {statistics}"));
        }
        Ok(())
    }
}

fn error_type(reason: u32) -> &'static str {
    match reason {
        CMAP_FAILED_POOL_CLOSED => "PoolClosedError",
        CMAP_FAILED_POOL_CLEARED => "PoolClearedError",
        CMAP_FAILED_WAIT_QUEUE_TIMEOUT | CMAP_FAILED_DEADLINE => "WaitQueueTimeoutError",
        _ => "",
    }
}

/// An event as the files have them.
fn event(kind: u32, seen: &Seen) -> Value {
    let closed = ["", "stale", "idle", "error", "poolClosed", "surplus"];
    let failed = ["", "poolClosed", "connectionError", "timeout", "timeout", "connectionError", "connectionError"];
    let (name, fields) = match kind {
        CMAP_EVENT_POOL_CREATED => {
            ("ConnectionPoolCreated", json!({ "options": serde_json::from_str::<Value>(&seen.text).unwrap() }))
        }
        CMAP_EVENT_POOL_READY => ("ConnectionPoolReady", json!({})),
        CMAP_EVENT_POOL_CLEARED => {
            let interrupts = seen.flags & CMAP_FLAG_INTERRUPT != 0;
            ("ConnectionPoolCleared", json!({ "interruptInUseConnections": interrupts }))
        }
        CMAP_EVENT_POOL_CLOSED => ("ConnectionPoolClosed", json!({})),
        CMAP_EVENT_CONNECTION_CREATED => ("ConnectionCreated", json!({ "connectionId": seen.number })),
        CMAP_EVENT_CONNECTION_READY => {
            ("ConnectionReady", json!({ "connectionId": seen.number, "duration": seen.nanos }))
        }
        CMAP_EVENT_CONNECTION_CLOSED => {
            ("ConnectionClosed", json!({ "connectionId": seen.number, "reason": closed[seen.reason as usize] }))
        }
        CMAP_EVENT_CHECK_OUT_STARTED => ("ConnectionCheckOutStarted", json!({})),
        CMAP_EVENT_CHECK_OUT_FAILED => (
            "ConnectionCheckOutFailed",
            json!({ "reason": failed[seen.reason as usize], "duration": seen.nanos, "error": seen.text }),
        ),
        CMAP_EVENT_CHECKED_OUT => {
            ("ConnectionCheckedOut", json!({ "connectionId": seen.number, "duration": seen.nanos }))
        }
        CMAP_EVENT_CHECKED_IN => ("ConnectionCheckedIn", json!({ "connectionId": seen.number })),
        kind => panic!("an output of kind {kind}"),
    };
    let mut event = Map::from_iter([("type".into(), name.into()), ("address".into(), "db.example:27017".into())]);
    event.extend(fields.as_object().unwrap().clone());
    Value::Object(event)
}

/// Whether an event is as expected: 42 stands for anything.
fn matches(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            expected.iter().all(|(key, value)| actual.get(key).is_some_and(|actual| matches(value, actual)))
        }
        (expected, actual) => *expected == 42 || *expected == "42" || expected == actual,
    }
}
