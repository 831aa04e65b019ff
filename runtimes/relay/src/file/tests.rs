//! Files with a mistake each: the error names the file, the key, the value and the rule.

use std::fs;

use cmap_test_server::certificates::{Authority, KeyKind};
use tempfile::TempDir;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

const MEMBER: &str = "[[members]]\nname = \"db1.example:27017\"\n";
const APPLICATION: &str = "[[applications]]\naddress = \"app.example:27443\"\ntlsCAFile = \"ca.pem\"\n";
const TOKEN: &str = "token = { name = \"db1\", secret = { file = \"token\" } }\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority").unwrap();
    fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    fs::write(folder.path().join("token"), format!("{SECRET}\n")).unwrap();
    fs::write(folder.path().join("short"), "short").unwrap();
    fs::write(folder.path().join("key.pem"), authority.client("relay", KeyKind::P256).unwrap().pem()).unwrap();
    folder
}

fn load_in(folder: &TempDir, text: &str) -> Result<Loaded, FileError> {
    let path = folder.path().join("relay.toml");
    fs::write(&path, text).unwrap();
    read(&path)
}

#[test]
fn what_is_left_out_has_its_default() {
    let loaded = load_in(&folder(), &format!("{MEMBER}{APPLICATION}{TOKEN}")).unwrap();

    let Settings { members, applications, limits } = &loaded.settings;
    assert_eq!(members[0].connect, members[0].name);
    assert_eq!(applications[0].members, [members[0].name.clone()]);
    assert_eq!(*limits, Limits::default());
}

#[test]
fn everything_can_be_said() {
    let text = format!(
        "{MEMBER}connect = \"/run/mongodb-27017.sock\"\n{APPLICATION}{TOKEN}tlsCertificateKeyFile = \"key.pem\"\n\
         members = [\"db1.example:27017\"]\n[limits]\nmaxSockets = 7\nconnectTimeoutMS = 100\nmaxParkedTimeMS = 0\n\
         maxReconnectDelayMS = 1000\ndrainTimeoutMS = 0\n"
    );

    let loaded = load_in(&folder(), &text).unwrap();

    let expected = Limits {
        max_sockets: 7,
        connect_timeout: Duration::from_millis(100),
        max_parked_time: None,
        max_reconnect_delay: Duration::from_secs(1),
        drain_timeout: Duration::ZERO,
    };
    assert_eq!(loaded.settings.limits, expected);
    let plan = loaded.plan.to_string();
    assert!(plan.contains("db1.example:27017, reached at /run/mongodb-27017.sock"), "{plan}");
    assert!(plan.contains("token \"db1\" (file token) and certificate key.pem"), "{plan}");
}

#[test]
fn a_secret_comes_from_the_environment_too() {
    // Cargo sets this one for every test.
    let secret = "secret = { env = \"CARGO_MANIFEST_DIR\" }";
    let text = format!("{MEMBER}{APPLICATION}token = {{ name = \"db1\", {secret} }}\n");

    let loaded = load_in(&folder(), &text).unwrap();

    assert!(loaded.settings.applications[0].token.is_some());
    assert!(loaded.plan.to_string().contains("(variable CARGO_MANIFEST_DIR)"));
}

#[test]
fn a_mistake_is_named_with_its_key_its_value_and_its_rule() {
    let whole = format!("{MEMBER}{APPLICATION}{TOKEN}");
    let cases = [
        ("members = [", "line 1 is not TOML"),
        ("", "members: there is none to speak for; add [[members]]"),
        (MEMBER, "applications: there is none to dial"),
        ("[[members]]\n", "members[0]: missing field `name`"),
        (&whole.replace("name = \"db1.ex", "title = \"db1.ex"), "members[0].title: unknown field `title`, expected"),
        (&whole.replace("address =", "host ="), "applications[0].host: unknown field `host`"),
        (
            &whole.replace("db1.example:27017", "db1.example:0"),
            "members[0].name: \"db1.example:0\" is not a server address",
        ),
        (&whole.replace("db1.example:27017", "/tmp/a.sock"), "members[0].name = \"/tmp/a.sock\": a replica set knows"),
        (
            &whole.replace("db1.example:27017", &format!("{}:27017", "a".repeat(260))),
            ":27017\": the name of a member has at most 260 bytes with its port, not 266",
        ),
        (
            &whole.replace("db1.example:27017", "db1\\u001b[31m.example:27017"),
            "the name of a member has no control characters",
        ),
        (
            &whole.replace("app.example:27443", "my app.example:27443"),
            "applications[0].address = \"my app.example:27443\": no certificate can be for this host",
        ),
        (&format!("{MEMBER}{whole}"), "members[1].name = \"db1.example:27017\": the member is there twice"),
        (&whole.replace(":27443", ""), "applications[0].address = \"app.example\": an application has no usual port"),
        (
            &format!("{whole}{APPLICATION}{TOKEN}"),
            "applications[1].address = \"app.example:27443\": the address is there twice",
        ),
        (&format!("{MEMBER}{APPLICATION}"), "applications[0]: it has neither a token nor a tlsCertificateKeyFile"),
        (&format!("{whole}members = [\"db2:1\"]\n"), "applications[0].members[0] = \"db2:1\": there is no such member"),
        (&format!("{whole}members = []\n"), "applications[0].members: there is none"),
        (&whole.replace("ca.pem", "none.pem"), "none.pem) cannot be read"),
        (&whole.replace("ca.pem", "token"), "has no certificate"),
        (&whole.replace("file = \"token\"", "file = \"none\""), "/none\": the file of the secret cannot be read"),
        (
            &whole.replace("file = \"token\"", "file = \"short\""),
            "applications[0].token: the secret of a token has at least 16 bytes",
        ),
        (
            &whole.replace("file = \"token\"", "env = \"NO_SUCH\""),
            "applications[0].token.secret.env = \"NO_SUCH\": the environment",
        ),
        (&whole.replace("{ file = \"token\" }", "{ file = \"token\", env = \"A\" }"), "secret: it has both"),
        (&whole.replace("{ file = \"token\" }", "{}"), "secret: it has neither"),
        (&format!("{whole}[limits]\nmaxSockets = 0\n"), "limits.maxSockets = \"0\": it has to be 1 to 65535"),
        (&format!("{whole}[limits]\nmaxSockets = -1\n"), "limits.maxSockets: invalid value: integer `-1`"),
        (&format!("{whole}[limits]\ndrainTimeout = 1\n"), "limits.drainTimeout: unknown field `drainTimeout`"),
        (
            &format!("{whole}tlsCertificateKeyFilePassword = {{ file = \"token\" }}\n"),
            "applications[0].tlsCertificateKeyFilePassword: there is no tlsCertificateKeyFile",
        ),
    ];
    let folder = folder();
    for (text, expected) in cases {
        let error = load_in(&folder, text).unwrap_err().to_string();

        assert!(error.contains("relay.toml: "), "{error}");
        assert!(error.contains(expected), "{error}\nhas not\n{expected}\nfor\n{text}");
    }
}

#[test]
fn a_secret_in_the_file_is_not_repeated() {
    let folder = folder();
    for token in [
        format!("token = \"{SECRET}\""),
        format!("token = {{ name = \"db1\", secret = \"{SECRET}\" }}"),
        format!("token = {{ name = \"db1\", secret = {{ file = [\"{SECRET}\"] }} }}"),
        format!("tlsCertificateKeyFilePassword = \"{SECRET}\""),
        format!("secret = \"{SECRET}\""),
    ] {
        let error = load_in(&folder, &format!("{MEMBER}{APPLICATION}{token}\n")).unwrap_err();

        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
}

#[test]
fn debug_says_no_secret() {
    let loaded = load_in(&folder(), &format!("{MEMBER}{APPLICATION}{TOKEN}")).unwrap();

    let told = format!("{loaded:?}");

    assert!(told.contains("db1"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let error = read(Path::new("/no/such/relay.toml")).unwrap_err().to_string();

    assert!(error.starts_with("/no/such/relay.toml: it cannot be read ("), "{error}");
}

#[test]
fn the_files_of_the_documentation_are_in_order() {
    let folder = folder();
    let page = include_str!("mod.rs").replace("\n//! ", "\n").replace("\n//!\n", "\n\n");
    for page in [include_str!("../../README.md"), &page] {
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();

        let loaded = load_in(&folder, text).unwrap();

        assert_eq!(loaded.settings.limits, Limits::default());
    }
}
