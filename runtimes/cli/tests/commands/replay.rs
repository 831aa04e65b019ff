//! `cmap replay` from outside: a client's file is repeated and explained by another process, in both encodings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use crate::program::{cmap, stderr, stdout};
use cmap_cli::serve::Host;
use cmap_core::options::ClientOptions;
use cmap_core::trace::{BEHAVIOUR, Question, Trace, explain};
use cmap_runtime::{Client, Recorder};
use cmap_smol::Smol;
use cmap_test_server::ServerConfig;
use tempfile::TempDir;

/// A directory with the file of a client: one caller has leaked a connection, and another one waited for it in vain.
struct Incident {
    directory: TempDir,
    /// Where the leak is.
    line: u32,
}

impl Incident {
    fn happen() -> Self {
        let host = Host::start().unwrap();
        let server = host.serve(|address| ServerConfig::new(address.to_string())).unwrap();
        let uri = format!("mongodb://{}/?maxPoolSize=1", server.address());
        let directory = tempfile::tempdir().unwrap();
        let (file, line) = smol::block_on(async {
            let (options, _) = ClientOptions::parse(&uri).unwrap();
            let builder = Client::<Smol>::builder(options).recorder(Recorder::new()).watch_holders(true);
            let client = builder.build().await.unwrap();
            let (line, leaked) = (line!(), client.check_out().label("nightly export").await.unwrap());
            client.check_out_within(Duration::from_millis(500)).label("web").await.unwrap_err();
            let file = client.trace().unwrap();
            drop(leaked);
            client.close(Duration::from_secs(1)).await.unwrap();
            (file, line)
        });
        fs::write(directory.path().join("incident.trace"), file).unwrap();
        Self { directory, line }
    }

    fn replay(&self, more: &[&str]) -> Output {
        replay(&self.directory.path().join("incident.trace"), more)
    }
}

fn replay(trace: &Path, more: &[&str]) -> Output {
    cmap(&[&["replay", trace.to_str().unwrap()], more].concat(), &[])
}

#[test]
fn the_file_alone_repeats_and_is_summed_up() {
    let output = Incident::happen().replay(&[]);

    let text = stdout(&output);
    assert!(text.contains("written because of: asked for\n"), "{text}");
    assert!(text.contains("all as recorded\n") && text.contains("at the end: 1 in use"), "{text}");
    assert!(text.contains("; 1 failed\n"), "{text}");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn the_failure_names_who_leaked_the_connection() {
    let incident = Incident::happen();

    let output = incident.replay(&["--explain", "failures"]);

    let text = stdout(&output);
    assert!(text.contains(" by web at ") && text.contains("and failed: "), "{text}");
    let cause = "cause: maxPoolSize: all 1 connections were in use: connection 1 by nightly export at ";
    assert!(text.contains(cause) && text.contains(&format!("replay.rs:{}:", incident.line)), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_explanation_is_json_for_programs_and_its_intervals_add_up() {
    let output = Incident::happen().replay(&["--explain", "slowest:1", "--json"]);

    let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    let wait = &told[0];
    assert_eq!(wait["cause"], "maxPoolSize");
    let intervals = wait["wait"]["intervals"].as_array().unwrap();
    let sum: u64 = intervals.iter().map(|it| it["to"].as_u64().unwrap() - it["from"].as_u64().unwrap()).sum();
    assert_eq!(wait["nanoseconds"], sum);
}

#[test]
fn json_lines_are_the_same_trace() {
    let incident = Incident::happen();
    let lines = incident.replay(&["--json"]);
    let copy = incident.directory.path().join("incident.jsonl");
    fs::write(&copy, stdout(&lines)).unwrap();

    for options in [&[][..], &["--timeline"], &["--explain", "slowest"]] {
        assert_eq!(stdout(&replay(&copy, options)), stdout(&incident.replay(options)), "{options:?}");
    }
    assert!(stdout(&lines).lines().next().unwrap().starts_with("{\"header\":"));
}

#[test]
fn json_lines_of_another_behaviour_are_refused() {
    let incident = Incident::happen();
    let lines = incident.replay(&["--json"]);
    let copy = incident.directory.path().join("incident.jsonl");
    let (this, other) = (format!("\"behaviour\":{BEHAVIOUR},"), format!("\"behaviour\":{},", BEHAVIOUR + 1));
    fs::write(&copy, stdout(&lines).replacen(&this, &other, 1)).unwrap();

    let output = replay(&copy, &[]);

    let reason = format!("at byte 0, it was recorded with behaviour {}", BEHAVIOUR + 1);
    assert!(stderr(&output).contains(&reason), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_timeline_has_every_call_until_a_time() {
    let incident = Incident::happen();

    let whole = incident.replay(&["--timeline"]);
    let is_check_out = |line: &&str| line.contains("CheckOut(Criteria");
    let first = stdout(&whole).lines().find(is_check_out).unwrap();
    let at: f64 = first.split_whitespace().nth(1).unwrap().parse().unwrap();
    let beginning = incident.replay(&["--timeline", "--until", &format!("{:.6}", at - 0.000_001)]);

    let text = stdout(&beginning);
    assert!(text.lines().next().unwrap().contains("Open -> Done"), "{text}");
    assert!(!text.lines().any(|line| is_check_out(&line)), "{text}");
    assert!(stdout(&whole).starts_with(text));
}

#[test]
fn the_state_is_that_before_the_first_call_after_a_time() {
    // A check-out began to wait at 20.007 s, and failed half a second later.
    let output = replay(&incidents().join("leak.trace"), &["--until", "20.3"]);

    let text = stdout(&output);
    assert!(text.contains("29 calls in 20.007s repeated"), "{text}");
    assert!(text.contains("at the end: 2 in use, 0 available, 0 pending, 1 waiting"), "{text}");
}

#[test]
fn an_empty_line_counts_in_the_number_of_a_broken_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broken.jsonl");
    let lines = replay(&incidents().join("leak.trace"), &["--json"]);
    let header = stdout(&lines).lines().next().unwrap();
    fs::write(&path, format!("{header}\n\nbroken\n")).unwrap();

    let output = replay(&path, &[]);

    assert!(stderr(&output).contains("line 3 is not of a trace"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_is_no_trace_is_refused_with_offset_and_reason() {
    let incident = Incident::happen();
    let path = incident.directory.path().join("incident.trace");
    let mut damaged = fs::read(&path).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&path, damaged).unwrap();

    let output = replay(&path, &[]);
    let missing = replay(Path::new("/nowhere"), &[]);

    assert_eq!((output.status.code(), missing.status.code()), (Some(2), Some(2)));
    assert!(
        stderr(&output).contains("cannot be read: at byte ") && stderr(&output).contains("damaged"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&missing).starts_with("error: /nowhere: the file cannot be read"), "{}", stderr(&missing));
}

#[test]
fn a_question_that_is_none_is_refused() {
    let output = Incident::happen().replay(&["--explain", "quickest"]);

    assert!(stderr(&output).contains("neither `slowest` nor `failures`"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_call_that_began_no_wait_is_told_and_an_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let sparse = sparse("leak", directory.path());
    let whole = incidents().join("leak.trace");

    for (trace, more) in
        [(&whole, &[][..]), (&whole, &["--json"]), (&whole, &["--what-if", "standard"]), (&sparse, &[])]
    {
        let output = replay(trace, &[&["--explain", "999999"], more].concat());

        assert!(stderr(&output).contains("error: call 999999 began no check-out that waited"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{more:?}");
    }
}

#[test]
fn a_label_of_somebodys_trace_is_printed_without_control_characters() {
    let incident = Incident::happen();
    let lines = incident.replay(&["--json"]);
    // A recorder writes none.
    let labelled = stdout(&lines).replace("nightly export", "nightly\\u001b[2J\\nexport");
    let copy = incident.directory.path().join("incident.jsonl");
    fs::write(&copy, labelled).unwrap();

    for options in [&["--timeline"][..], &["--explain", "failures"]] {
        let output = replay(&copy, options);
        let text = stdout(&output);
        assert!(text.contains("nightly\\u{1b}[2J\\nexport") && !text.contains('\u{1b}'), "{options:?}: {text}");
    }
}

#[test]
fn the_timeline_shows_hellos_as_documents() {
    let output = Incident::happen().replay(&["--timeline"]);

    let text = stdout(&output);
    assert!(text.contains("reply: { \"") && !text.contains("reply: ["), "{text}");
}

/// The incidents that are kept as files.
fn incidents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(BEHAVIOUR.to_string())
}

/// What a sparse recorder would have kept of an incident, as a file.
fn sparse(name: &str, directory: &Path) -> PathBuf {
    let path = directory.join("sparse.trace");
    let original = incidents().join(name).with_extension("trace");
    let output = replay(&original, &["--sparse", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    path
}

#[test]
fn what_a_sparse_recorder_wrote_is_summed_up_told_and_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = sparse("failover", directory.path());

    let [summary, timeline, explained] =
        [&[][..], &["--timeline"], &["--explain", "slowest:1"]].map(|options| replay(&path, options));
    let [summary, timeline, explained] = [&summary, &timeline, &explained].map(stdout);

    assert!(summary.starts_with("recorded sparsely by cmap-runtime"), "{summary}");
    assert!(summary.contains("check-outs served at once") && summary.contains("waits are explained"), "{summary}");
    assert!(timeline.contains("served at once") && timeline.contains("is Unknown"), "{timeline}");
    assert!(explained.contains("cause: no server suited"), "{explained}");
}

#[test]
fn what_needs_calls_is_refused_where_a_sparse_recorder_kept_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = sparse("leak", directory.path());

    for options in [&["--verify"][..], &["--json"], &["--explain", "slowest", "--what-if", "standard"]] {
        let output = replay(&path, options);

        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains("needs the calls, and a sparse recorder keeps none"), "{}", stderr(&output));
    }
}

#[test]
fn options_of_which_one_would_have_no_effect_are_refused_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    let refused = |options: &[&str]| {
        let output = replay(&incidents().join("leak.trace"), options);

        assert!(stderr(&output).contains("cannot be used with"), "{options:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{options:?}");
    };

    for second in ["--sparse", "--perfetto", "--html"] {
        refused(&["--hash-hosts", &one, second, &other]);
    }
    for second in ["--perfetto", "--html"] {
        refused(&["--sparse", &one, second, &other]);
    }
    for writer in ["--hash-hosts", "--sparse", "--perfetto", "--html"] {
        refused(&["--until", "1", writer, &one]);
    }
    refused(&["--until", "1", "--explain", "slowest"]);
    refused(&["--until", "1", "--json"]);
}

#[test]
fn the_timeline_of_what_a_sparse_recorder_wrote_may_end_early() {
    let directory = tempfile::tempdir().unwrap();
    let path = sparse("failover", directory.path());

    let [whole, beginning] =
        [&["--timeline"][..], &["--timeline", "--until", "0.5"]].map(|options| replay(&path, options));

    assert_eq!(beginning.status.code(), Some(0), "{}", stderr(&beginning));
    assert!(stdout(&whole).starts_with(stdout(&beginning)) && stdout(&whole) != stdout(&beginning));
}

#[test]
fn a_copy_of_what_a_sparse_recorder_wrote_names_no_host() {
    let directory = tempfile::tempdir().unwrap();
    let path = sparse("failover", directory.path());
    let copy = directory.path().join("copy.trace");

    let output = replay(&path, &["--hash-hosts", copy.to_str().unwrap()]);

    assert!(output.status.success(), "{}", stderr(&output));
    let has_name = |path: &Path| fs::read(path).unwrap().windows(7).any(|bytes| bytes == b"example");
    assert!(has_name(&path) && !has_name(&copy));
    let longest = |path: &Path| stdout(&replay(path, &["--explain", "slowest:1"])).lines().next().map(str::to_owned);
    assert_eq!(longest(&copy), longest(&path));
}

#[test]
fn a_copy_has_other_names_for_hosts_and_the_same_explanation() {
    for entry in fs::read_dir(incidents()).unwrap() {
        let original = entry.unwrap().path();
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("copy.trace");

        let output = replay(&original, &["--hash-hosts", copy.to_str().unwrap()]);

        assert!(output.status.success(), "{}: {}", original.display(), stderr(&output));
        let bytes = fs::read(&copy).unwrap();
        let names = ["example", "router0", "10.0.0."];
        let has = |name: &str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(
            names.into_iter().all(|name| !has(name)),
            "{}: {}",
            original.display(),
            stdout(&replay(&copy, &["--json"]))
        );
        let waits = |path: &Path| -> Vec<_> {
            let trace = Trace::read(&fs::read(path).unwrap()).unwrap();
            let waits = explain(&trace, Question::Slowest(usize::MAX)).unwrap();
            waits.iter().map(|wait| (wait.duration(), wait.by_limit(), wait.occurrences.len())).collect()
        };
        assert_eq!(waits(&copy), waits(&original), "{}", original.display());
    }
}

fn what_if(incident: &str, changes: &[&str], more: &[&str]) -> Output {
    let trace = incidents().join(incident).with_extension("trace");
    let changes: Vec<&str> = changes.iter().flat_map(|change| ["--what-if", change]).collect();
    replay(&trace, &[&["--explain", "slowest:1"], &changes[..], more].concat())
}

#[test]
fn known_remedies_help_in_the_estimates_x_114() {
    for (incident, change) in [("pool-too-small", "maxPoolSize"), ("storm", "maxConnecting")] {
        let output = what_if(incident, &["standard"], &["--json"]);

        let told: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
        let estimates = told["estimates"].as_array().unwrap();
        let helped = estimates.iter().find(|it| it["change"].as_str().unwrap().starts_with(change)).unwrap();
        let [recorded, estimated] = ["recorded", "estimated"].map(|key| helped["all"][key].as_u64().unwrap());
        assert!(estimated < recorded * 9 / 10, "{incident}: {estimated} instead of {recorded}");
    }
}

#[test]
fn an_option_that_does_not_matter_does_not_help_and_says_so_x_114() {
    let output = what_if("leak", &["maxConnecting=8", "waitQueueTimeoutMS=10000"], &[]);

    let text = stdout(&output);
    assert!(text.contains("estimates, with late wake-ups left out:\n"), "{text}");
    assert!(text.contains("  maxConnecting 8: all: ") && text.ends_with("  nothing of this helps\n"), "{text}");
}

#[test]
fn changes_that_are_none_or_contradict_are_refused_x_114() {
    let unknown = what_if("leak", &["colour=4"], &[]);
    let contradicting = what_if("leak", &["maxPoolSize=2,minPoolSize=4"], &[]);

    assert!(stderr(&unknown).contains("colour=4 is no change: give maxPoolSize"), "{}", stderr(&unknown));
    assert!(stderr(&contradicting).contains("option minPoolSize is 4"), "{}", stderr(&contradicting));
    assert_eq!((unknown.status.code(), contradicting.status.code()), (Some(2), Some(2)));
}
