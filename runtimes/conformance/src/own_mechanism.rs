//! Logins again by a mechanism of the application's own, which a server asks for by the code 391.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Login, MechanismError, Payload, SaslConversation, SaslMechanism, SaslStep};
use cmap_runtime::CommandErrorKind;

use super::rogue::Rogue;
use super::{ClientOf, Harness, run};

pub fn it_logs_in_again_oidc_1<H: Harness>() {
    run::<H>(async {
        let heard = Arc::default();
        let (_rogue, client) = scene::<H>(Own, 1, &heard).await;
        let mut connection = client.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        let heard = heard.lock().unwrap();
        let heard: Vec<&str> =
            heard.iter().map(String::as_str).filter(|name| ["ping", "saslStart"].contains(name)).collect();
        assert_eq!(heard, ["saslStart", "ping", "saslStart", "ping"]);
    });
}

pub fn one_that_cannot_begin_again_costs_its_connection_x_191<H: Harness>() {
    run::<H>(async {
        let (_rogue, client) = scene::<H>(Once::default(), usize::MAX, &Arc::default()).await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();

        assert!(matches!(error.kind, CommandErrorKind::Reauthentication(_)), "{error}");
        drop(connection);
        let stats = client.stats();
        assert_eq!((stats.counts.total(), stats.closed.error), (0, 1), "{stats:?}");
    });
}

/// A client with this mechanism, and its server, which wants another login for so many pings, and notes the commands that it hears.
async fn scene<H: Harness>(
    mechanism: impl SaslMechanism + 'static,
    refused: usize,
    heard: &Arc<Mutex<Vec<String>>>,
) -> (Rogue, ClientOf<H>) {
    let hears = Arc::clone(heard);
    let rogue = Rogue::start(move || {
        let hears = Arc::clone(&hears);
        move |name: &str, _: &RawDocument| -> RawDocumentBuf {
            let mut heard = hears.lock().unwrap();
            heard.push(name.to_owned());
            if name == "ping" && heard.iter().filter(|name| *name == "ping").count() <= refused {
                return rawdoc! { "ok": 0, "code": 391, "errmsg": "log in again" };
            }
            rawdoc! {
                "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
                "conversationId": 1, "done": true,
            }
        }
    });
    let mut options = rogue.options("");
    options.credential = None;
    let client = super::builder::<H>(options).mechanism(mechanism).build().await.unwrap();
    (rogue, client)
}

/// A mechanism that begins once.
#[derive(Debug, Default)]
struct Once(AtomicBool);

impl SaslMechanism for Once {
    fn name(&self) -> &str {
        "EXAMPLE-TOKEN"
    }

    fn begin(&self, login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError> {
        if self.0.swap(true, Ordering::SeqCst) { Err("the ticket has expired".into()) } else { Own.begin(login) }
    }
}

/// A mechanism of one message.
#[derive(Debug)]
struct Own;

impl SaslMechanism for Own {
    fn name(&self) -> &str {
        "EXAMPLE-TOKEN"
    }

    fn begin(&self, _login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError> {
        Ok(Box::new(Self))
    }
}

impl SaslConversation for Own {
    fn first(&mut self) -> Result<Payload, MechanismError> {
        Ok(b"token".to_vec().into())
    }

    fn handle_reply(&mut self, _payload: &[u8], _done: bool) -> Result<SaslStep, MechanismError> {
        Ok(SaslStep::Done)
    }
}
