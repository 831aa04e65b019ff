//! Logins by every mechanism, under TLS and without, and the errors of users whose password or certificates are wrong.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Login, MechanismError, Payload, SaslConversation, SaslMechanism, SaslStep};
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::ClientOptions;
use cmap_runtime::CheckOutError;
use cmap_test_server::ServerVersion;

use super::rogue::Rogue;
use super::{
    Harness, Hosts, LocalServer, Setup, assert_nothing_lost, establish_error, run, told, wait_for_failed_check,
};

/// A server with users and TLS.
const SECURE: Setup = Setup {
    version: ServerVersion::V7_0,
    write_batch: None,
    authorization: true,
    tls: Some(Hosts::Local),
    services: 0,
    wire_versions: None,
    replica_set: false,
    unix_socket: false,
};

pub fn the_three_lines_log_in_by_scram_sha_256_under_tls<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(SECURE);
        let uri = server.uri_as("app:secret", &tls(&server.authority(), "maxPoolSize=20"));

        let client = super::connect::<H>(&uri).await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        let reply = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        assert_eq!(reply, rawdoc! { "ok": 1.0 });
        assert_eq!(user(&connection.run_command("admin", status()).await.unwrap()), ("app".into(), "admin".into()));
    });
}

pub fn scram_sha_1_logs_in<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(SECURE);
        let query = tls(&server.authority(), "authMechanism=SCRAM-SHA-1");
        let client = super::connect::<H>(&server.uri_as("app:secret", &query)).await.unwrap();

        let mut connection = client.check_out().await.unwrap();

        let told = connection.run_command("admin", status()).await.unwrap();
        assert_eq!(user(&told), ("app".into(), "admin".into()));
    });
}

pub fn a_certificate_logs_in<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(SECURE);
        let certificate = server.client_certificate();
        let query = format!("authMechanism=MONGODB-X509&tlsCertificateKeyFile={}", certificate.display());
        let uri = server.uri(&tls(&server.authority(), &query));
        let client = super::connect::<H>(&uri).await.unwrap();

        let mut connection = client.check_out().await.unwrap();

        let told = connection.run_command("admin", status()).await.unwrap();
        assert_eq!(user(&told), ("CN=client,OU=cmap,O=cmap".into(), "$external".into()));
    });
}

pub fn a_mechanism_of_the_users_own_logs_in<H: Harness>() {
    run::<H>(async {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let rogue = Rogue::start(move || {
            let hears = Arc::clone(&hears);
            move |name, command| {
                if name == "saslStart" {
                    hears.lock().unwrap().push(command.to_owned());
                }
                rawdoc! {
                    "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
                    "conversationId": 1, "done": true,
                }
            }
        });
        let mut options = rogue.options("");
        options.credential = None;
        let client = super::builder::<H>(options).mechanism(Token).build().await.unwrap();

        let mut connection = client.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        let heard = heard.lock().unwrap();
        let payload = heard[0].get_binary("payload").unwrap().bytes;
        assert_eq!((heard[0].get_str("mechanism").unwrap(), payload), ("EXAMPLE-TOKEN", &b"token"[..]));
        assert_eq!(heard[0].get_str("$db").unwrap(), "$external");
    });
}

pub fn a_mechanism_of_the_users_own_logs_in_identities_whatever_theirs_is_called<H: Harness>() {
    run::<H>(async {
        let rogue = Rogue::start(|| {
            |_: &str, _: &RawDocument| {
                rawdoc! {
                    "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
                    "conversationId": 1, "done": true,
                }
            }
        });
        let client = super::builder::<H>(rogue.options("")).mechanism(Token).build().await.unwrap();
        let (aws, _) = ClientOptions::parse("mongodb://localhost/?authMechanism=MONGODB-AWS").unwrap();

        let identity = client.add_identity(aws.credential.unwrap()).unwrap();

        drop(client.check_out().identity(identity).await.unwrap());
    });
}

/// A mechanism that logs in with a token.
#[derive(Debug)]
struct Token;

impl SaslMechanism for Token {
    fn name(&self) -> &str {
        "EXAMPLE-TOKEN"
    }

    fn begin(&self, _login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError> {
        Ok(Box::new(Self))
    }
}

impl SaslConversation for Token {
    fn first(&mut self) -> Result<Payload, MechanismError> {
        Ok(b"token".to_vec().into())
    }

    fn handle_reply(&mut self, _payload: &[u8], _done: bool) -> Result<SaslStep, MechanismError> {
        Ok(SaslStep::Done)
    }
}

pub fn a_wrong_password_is_said_so<H: Harness>() {
    run::<H>(async { refused::<H>("app", "wrong").await });
}

pub fn an_unknown_user_is_said_so<H: Harness>() {
    run::<H>(async { refused::<H>("nobody", "secret").await });
}

async fn refused<H: Harness>(user: &str, password: &str) {
    let server = LocalServer::start_as(Setup { authorization: true, ..Setup::default() });
    let client = super::connect::<H>(&server.uri_as(&format!("{user}:{password}"), "")).await.unwrap();

    let outcome = client.check_out().await;

    let Err(error) = &outcome else { panic!("it got a connection") };
    let text = told(error);
    let expected = format!(
        "authentication failed: the server refused the login of \"{user}\" in the database \"admin\" (18); check the user name, the password, \
         authSource and authMechanism"
    );
    assert!(text.contains(&expected), "{text}");
    assert!(!text.contains(password), "{text}");
    assert_eq!(format!("{error:?}"), text, "what `main` prints");
    let error = establish_error(outcome);
    assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Server { code: Some(18) }));
}

pub fn a_server_that_calls_itself_an_arbiter_gets_no_command_x_62<H: Harness>() {
    run::<H>(async {
        // The server does not know the password. The monitor is told of an arbiter, or of a primary.
        for is_arbiter_to_monitor in [true, false] {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let hears = Arc::clone(&heard);
            let rogue = Rogue::start(move || {
                let hears = Arc::clone(&hears);
                move |name, command| {
                    hears.lock().unwrap().push(name.to_owned());
                    let logs_in = command.get("saslSupportedMechs").unwrap().is_some();
                    rawdoc! {
                        "ok": 1, "done": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
                        "setName": "rs", "arbiterOnly": logs_in || is_arbiter_to_monitor,
                    }
                }
            });
            let client = super::builder::<H>(rogue.options("directConnection=true")).build().await.unwrap();

            let error = establish_error(client.check_out().await);

            assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Other));
            assert_eq!(error.message, "an arbiter has no users; connect without credentials");
            assert_nothing_lost(&client);
            let heard = heard.lock().unwrap();
            assert!(!heard.is_empty() && heard.iter().all(|name| name == "isMaster" || name == "hello"), "{heard:?}");
        }
    });
}

pub fn a_certificate_for_another_host_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Elsewhere), ..Setup::default() });

        let text = not_trusted::<H>(&server, &server.authority()).await;

        assert!(text.contains("the server's certificate is not trusted for 127.0.0.1"), "{text}");
        assert!(text.contains("it is for elsewhere.example; connect by such a name"), "{text}");
    });
}

pub fn an_authority_that_is_not_trusted_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let other = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });

        let text = not_trusted::<H>(&server, &other.authority()).await;

        assert!(text.contains("the server's certificate is not trusted for 127.0.0.1"), "{text}");
        assert!(text.contains("tlsCAFile"), "{text}");
    });
}

pub fn a_client_without_tls_is_told_that_the_server_expects_it<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let client = super::connect::<H>(&server.uri("")).await.unwrap();
        wait_for_failed_check::<H>(&client).await;

        let error = client.check_out_within(Duration::from_millis(1)).await.unwrap_err();

        assert!(told(&error).contains("set tls=true"), "{}", told(&error));
    });
}

/// The error that a user gets whose client does not trust `server`. Its monitor finds out, and the server stays
/// unusable until that changes.
async fn not_trusted<H: Harness>(server: &LocalServer, authority: &Path) -> String {
    let client = super::connect::<H>(&server.uri(&tls(authority, ""))).await.unwrap();
    wait_for_failed_check::<H>(&client).await;
    let error = client.check_out_within(Some(Duration::from_millis(1))).await.unwrap_err();
    assert!(matches!(error, CheckOutError::Selection(_)), "{error}");
    told(&error)
}

fn tls(authority: &Path, query: &str) -> String {
    format!("tls=true&tlsCAFile={}&{query}", authority.display())
}

/// The command that tells who has logged in.
fn status() -> RawDocumentBuf {
    rawdoc! { "connectionStatus": 1 }
}

/// The one user, and its database, that a connection's status tells.
fn user(status: &RawDocument) -> (String, String) {
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let user = users.get_document(0).unwrap();
    (user.get_str("user").unwrap().into(), user.get_str("db").unwrap().into())
}
