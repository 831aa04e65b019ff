//! Files of connection strings from outside: the program's output about them, and its exit status.

use crate::program::{Folder, spec_runner, stderr, stdout};

const GOOD: &str = r#"{ "description": "good", "uri": "mongodb://a/?w=1", "valid": true, "options": { "w": 1 } }"#;
const SRV: &str = r#"{ "description": "seeds", "uri": "mongodb+srv://a.b.c", "valid": true }"#;
const BAD: &str = r#"{ "description": "bad", "uri": "mongodb://u:parsed@a/?w=1", "valid": true,
    "auth": { "username": "u", "password": "other", "db": null }, "options": { "w": 2 } }"#;

fn file(cases: &[&str]) -> String {
    format!(r#"{{ "tests": [{}] }}"#, cases.join(", "))
}

#[track_caller]
fn unusable(test: &str, text: &str, problem: &str) {
    let folder = Folder::new(test);
    let path = folder.write("uris.json", text);
    let output = spec_runner(&["run"], &[&path]);
    let start = format!("ERROR {}: {problem}", path.display());
    assert!(stderr(&output).starts_with(&start), "\n expected: {start}\n   actual: {}", stderr(&output));
    assert_eq!((stdout(&output), output.status.code()), ("0 passed, 0 failed, 0 skipped\n", Some(2)));
}

#[test]
fn each_case_has_a_line_and_a_failure_says_what_differs() {
    let folder = Folder::new("uris");
    let path = folder.write("uris.json", &file(&[GOOD, SRV, BAD]));
    let output = spec_runner(&["run"], &[&folder.0]);
    let lines = [
        format!("PASS {}: good", path.display()),
        format!("PASS {}: seeds", path.display()),
        format!("FAIL {}: bad", path.display()),
        "  auth.password: differs from the expected one".into(),
        "  options.w: expected 2, got 1".into(),
        "2 passed, 1 failed, 0 skipped".into(),
    ];
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), lines);
    assert_eq!((stderr(&output), output.status.code()), ("", Some(1)));
}

#[test]
fn the_mechanism_of_a_credential_must_exist() {
    let folder = Folder::new("credentials");
    let aws = r#"{ "description": "aws", "uri": "mongodb://a/?authMechanism=MONGODB-AWS", "valid": true }"#;
    let plain = r#"{ "description": "none", "uri": "mongodb://a", "valid": true, "credential": null }"#;
    folder.write("auth.json", &file(&[aws, plain]));
    folder.write("options.json", &file(&[aws]));
    let output = spec_runner(&["run"], &[&folder.0]);
    let skip = "auth.json: aws (the mechanism MONGODB-AWS does not exist yet)";
    assert!(stdout(&output).contains(skip), "{}", stdout(&output));
    assert!(stdout(&output).ends_with("\n2 passed, 0 failed, 1 skipped\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_malformed_file_is_unusable_as_a_whole() {
    let misspelt = GOOD.replace("options", "option");
    unusable("uris-key", &file(&[SRV, &misspelt]), "tests[1].option: unknown field `option`, expected one of ");
    unusable("uris-type", &file(&[GOOD, r#"{ "uri": 5 }"#]), "tests[1].uri: invalid type: integer `5`");
    unusable("uris-missing", &file(&[r#"{ "uri": "mongodb://a" }"#]), "tests[0]: missing field `description`");
    unusable("uris-top", &file(&[GOOD]).replacen('{', r#"{ "foo": 1, "#, 1), "foo: unknown field `foo`");
    unusable("uris-none", r#"{ "tests": [] }"#, "neither a test in the CMAP format");
}
