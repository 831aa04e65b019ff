//! The program from outside: its output, and its exit status.

use crate::program::{Folder, spec_runner, stderr, stdout};
use cmap_cli::serve::Host;
use cmap_test_server::ServerConfig;

/// The pool is made ready; the test expects it to be `second` after its creation.
fn ready(second: &str) -> String {
    format!(
        r#"{{
            "version": 1,
            "style": "unit",
            "description": "made ready",
            "operations": [{{ "name": "ready" }}],
            "events": [{{ "type": "ConnectionPoolCreated", "options": 42 }}, {{ "type": "{second}" }}]
        }}"#
    )
}

fn with_operation(operation: &str) -> String {
    format!(r#"{{ "version": 1, "style": "unit", "description": "d", "operations": [{operation}] }}"#)
}

#[track_caller]
fn unusable(test: &str, text: &str, problem: &str) {
    let folder = Folder::new(test);
    let path = folder.write("bad.json", text);
    let output = spec_runner(&["run"], &[&path]);
    let start = format!("ERROR {}: {problem}", path.display());
    assert!(stderr(&output).starts_with(&start), "\n expected: {start}\n   actual: {}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert_eq!(stdout(&output), "0 passed, 0 failed, 0 skipped\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unknown_operation() {
    let text = with_operation(r#"{ "name": "ready" }, { "name": "explode" }"#);
    unusable("operation", &text, "operations[1]: unknown operation `explode`");
}

#[test]
fn unknown_field() {
    unusable("field", &with_operation(r#"{ "name": "wait", "ms": 1, "s": 1 }"#), "operations[0].s: unknown field `s`");
}

#[test]
fn unknown_option() {
    let text = r#"{ "version": 1, "style": "unit", "description": "d", "operations": [],
        "poolOptions": { "maxPoolsize": 1 } }"#;
    unusable("option", text, "poolOptions.maxPoolsize: unknown field `maxPoolsize`");
}

#[test]
fn unknown_event_type() {
    unusable("event", &ready("ConnectionPoolOpened"), "events[1].type: unknown value `ConnectionPoolOpened`");
}

#[test]
fn extension_in_an_official_style() {
    let text = with_operation(r#"{ "name": "network", "mode": "hang" }"#);
    unusable("extension", &text, "operations[0].name: belongs to style \"scenario\"");
}

#[test]
fn bad_json() {
    unusable("json", "{\n  \"version\": 1,,\n}", "line 2 column 16: ");
    unusable("not-json", "", "line 1 column 0: EOF");
}

#[test]
fn unknown_kind_of_file() {
    unusable("kind", r#"{ "name": "left-pad" }"#, "neither a test in the CMAP format");
}

#[test]
fn missing_path_and_empty_folder() {
    let folder = Folder::new("empty");
    let missing = folder.0.join("missing.json");
    let output = spec_runner(&["run"], &[&missing, &folder.0]);
    let lines: Vec<&str> = stderr(&output).lines().collect();
    assert!(lines[0].starts_with(&format!("ERROR {}: cannot be read: ", missing.display())), "{}", lines[0]);
    assert_eq!(lines[1], format!("ERROR {}: holds no JSON file", folder.0.display()));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unknown_engine_and_bad_flags() {
    let output = spec_runner(&["run", "--engine", "steam", "x.json"], &[]);
    assert!(stderr(&output).contains("'steam'") && stderr(&output).contains("core"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
    for args in [&["run"][..], &["run", "--seeds", "0", "x"], &["run", "--seed", "1", "--seeds", "2", "x"], &["walk"]] {
        assert_eq!(spec_runner(args, &[]).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn nothing_runs_if_named_specifications_are_not_there() {
    let folder = Folder::new("specs");
    let output = spec_runner(&["--specs"], &[&folder.0]);
    let line = format!("ERROR {}: named by --specs, but it does not hold", folder.0.display());
    assert!(stderr(&output).starts_with(&line), "{}", stderr(&output));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(2)));
}

#[test]
fn a_passing_test() {
    let folder = Folder::new("pass");
    let path = folder.write("good.json", &ready("ConnectionPoolReady"));
    let output = spec_runner(&["run", "--engine", "core"], &[&path]);
    let printed = format!("PASS {}: made ready [core]\n1 passed, 0 failed, 0 skipped\n", path.display());
    assert_eq!((stdout(&output), stderr(&output)), (printed.as_str(), ""));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_failing_test_shows_both_sides() {
    let folder = Folder::new("fail");
    let path = folder.write("bad.json", &ready("ConnectionPoolClosed"));
    let output = spec_runner(&["run", "--engine", "core", "--seed", "7"], &[&path]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines[0], format!("FAIL {}: made ready [core]", path.display()));
    assert_eq!(lines[1], "  seed 7");
    assert_eq!(lines[2], "  event 2: type: expected \"ConnectionPoolClosed\", got \"ConnectionPoolReady\"");
    assert_eq!(lines[3], "    expected                         | actual");
    assert!(lines[4].starts_with("    ConnectionPoolCreated options=42 | ConnectionPoolCreated "), "{}", lines[4]);
    assert!(lines[5].starts_with("  > ConnectionPoolClosed             | ConnectionPoolReady"), "{}", lines[5]);
    assert_eq!(lines[6], "0 passed, 1 failed, 0 skipped");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let folder = Folder::new("mixed");
    folder.write("a.json", "[");
    folder.write("b.json", &ready("ConnectionPoolReady"));
    let old = r#"{ "description": "old", "schemaVersion": "1.0", "runOnRequirements": [{ "maxServerVersion": "3.0" }],
        "tests": [{ "description": "later", "operations": [] }] }"#;
    folder.write("c.json", old);
    folder.write("d.json", &ready("ConnectionPoolClosed"));
    folder.write("notes.txt", "not a test");
    let output = spec_runner(&["run", "--engine", "core"], &[&folder.0]);
    assert_eq!(stderr(&output).lines().count(), 1);
    let skip = "c.json: later (is for version 3.0.0 or below";
    assert!(stdout(&output).contains(skip), "{}", stdout(&output));
    assert_eq!(stdout(&output).lines().last(), Some("1 passed, 1 failed, 1 skipped"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_test_for_other_servers_is_skipped() {
    let folder = Folder::new("skip");
    let text = ready("ConnectionPoolReady").replacen('{', r#"{ "runOn": [{ "maxServerVersion": "4.2" }],"#, 1);
    let path = folder.write("old.json", &text);
    let output = spec_runner(&["run"], &[&path]);
    assert!(stdout(&output).contains("(is for version 4.2.0 or below; "), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_same_seed_prints_the_same_bytes() {
    let folder = Folder::new("same");
    let good = folder.write("good.json", &ready("ConnectionPoolReady"));
    let bad = folder.write("bad.json", &ready("ConnectionPoolClosed"));
    let print = || spec_runner(&["run", "--engine", "core", "-v", "--seed", "3"], &[&good, &bad]);
    let first = print();
    assert_eq!(stdout(&first), stdout(&print()));
    assert!(stdout(&first).contains("  events on core, seed 3:\n    ConnectionPoolCreated "), "{}", stdout(&first));
}

#[test]
fn a_thread_may_be_called_main() {
    let folder = Folder::new("thread-main");
    let file = folder.write(
        "main.json",
        r#"{"version": 1, "style": "unit", "description": "d", "operations": [
            {"name": "start", "target": "main"}, {"name": "ready"},
            {"name": "waitForEvent", "event": "ConnectionClosed", "count": 99, "timeout": 20}]}"#,
    );

    let output = spec_runner(&["run"], &[&file]);

    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("waited in vain for 99 ConnectionClosed"));
}

#[test]
fn what_the_main_thread_gave_to_another_is_begun_before_the_end() {
    let folder = Folder::new("last-step");
    let file = folder.write(
        "last.json",
        r#"{"version": 1, "style": "unit", "description": "d", "operations": [
            {"name": "ready"}, {"name": "start", "target": "t"}, {"name": "checkOut", "thread": "t"}],
            "events": [{"type": "ConnectionCheckOutStarted"}],
            "ignore": ["ConnectionPoolCreated", "ConnectionPoolReady"]}"#,
    );

    let output = spec_runner(&["run"], &[&file]);

    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn a_description_cannot_pass_for_another_result() {
    let folder = Folder::new("forged");
    let file = folder.write(
        "forged.json",
        r#"{"version": 1, "style": "unit", "description": "a\nFAIL b", "operations": [{"name": "ready"}]}"#,
    );

    let output = spec_runner(&["run", "--engine", "core"], &[&file]);

    assert_eq!(stdout(&output).lines().count(), 2, "{}", stdout(&output));
}

#[test]
fn a_test_is_run_on_every_engine_and_its_line_names_them() {
    let folder = Folder::new("engines");
    let path = folder.write("good.json", &ready("ConnectionPoolReady"));

    let output = spec_runner(&["run"], &[&path]);

    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines[0], format!("PASS {}: made ready [core, sim, tokio, async-std, smol]", path.display()));
    assert_eq!(lines[1], "core: 1 passed, 0 failed, 0 skipped");
    assert_eq!(lines.last(), Some(&"5 passed, 0 failed, 0 skipped"));
    let all = spec_runner(&["run", "--engine", "all"], &[&path]);
    assert_eq!(stdout(&all), stdout(&output));
}

#[test]
fn engines_are_chosen_and_a_failure_on_a_runtime_names_its_run() {
    let folder = Folder::new("runtime");
    let path = folder.write("bad.json", &ready("ConnectionPoolClosed"));

    let output = spec_runner(&["run", "--engine", "smol", "--engine", "tokio", "--repeat", "2"], &[&path]);

    let names = ["tokio", "smol"].map(|engine| format!("FAIL {}: made ready [{engine}]", path.display()));
    let printed = stdout(&output);
    assert!(names.iter().all(|line| printed.contains(line.as_str())) && !printed.contains("core"), "{printed}");
    assert_eq!(printed.lines().filter(|&line| line == "  run 1").count(), 2, "{printed}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_needs_virtual_time_is_skipped_on_runtimes_and_says_so() {
    let folder = Folder::new("virtual");
    let scenario = |key: &str| {
        format!(
            r#"{{ "version": 1, "style": "scenario", "rules": ["CMAP-18"], {key} "description": "d",
                "operations": [{{ "name": "ready" }}], "exact": false }}"#
        )
    };
    let path = folder.write("virtual.json", &scenario(r#""virtualTime": true,"#));

    let output = spec_runner(&["run"], &[&path]);

    let skip = "d [tokio, async-std, smol] (needs virtual time: it bounds times from above)";
    assert!(stdout(&output).contains(skip), "{}", stdout(&output));
    assert!(stdout(&output).contains("d [core, sim]"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_server_of_runtimes_can_be_named() {
    let folder = Folder::new("uri");
    let path = folder.write("good.json", &ready("ConnectionPoolReady"));
    let host = Host::start().unwrap();
    let server = host.serve(|address| ServerConfig::new(address.to_string())).unwrap();
    let uri = format!("mongodb://{}/", server.address());

    let output = spec_runner(&["run", "--engine", "smol", "--uri", &uri], &[&path]);
    let nowhere = spec_runner(&["run", "--engine", "smol", "--uri", "mongodb://"], &[&path]);

    assert_eq!(stdout(&output).lines().last(), Some("1 passed, 0 failed, 0 skipped"));
    assert!(stderr(&nowhere).starts_with("ERROR --uri: "), "{}", stderr(&nowhere));
    assert_eq!(nowhere.status.code(), Some(2));
}
