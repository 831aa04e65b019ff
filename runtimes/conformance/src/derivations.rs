//! The keys of SCRAM: how much a server that does not know the password can make a client compute, and how much of that
//! is left when the server is honest again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Nonce, ScramHash, ScramLogin, ScramVerifier, StoredKeys};
use cmap_core::connection::{Fault, Phase};
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::lab::Lab;
use super::rogue::Rogue;
use super::{Harness, assert_nothing_lost, bounded, establish_error, run, until};

/// A server that knows the password when it is honest; otherwise it asks for keys with a new salt each time, and for as
/// many iterations as a test asks for.
struct Server {
    rogue: Rogue,
    mood: Arc<Mood>,
}

struct Mood {
    is_honest: AtomicBool,
    iterations: u32,
    /// How many salts were sent.
    salts: AtomicU64,
    keys: StoredKeys,
}

impl Server {
    fn start(iterations: u32) -> Self {
        let keys = StoredKeys::new(ScramHash::Sha256, "app", &"secret".into(), b"salt", 4096).unwrap();
        let mood = Mood { is_honest: AtomicBool::new(false), iterations, salts: AtomicU64::new(0), keys };
        let mood = Arc::new(mood);
        let shared = Arc::clone(&mood);
        let rogue = Rogue::start(move || {
            let (mood, mut verifier) = (Arc::clone(&shared), None);
            move |name, command| mood.answer(name, command, &mut verifier)
        });
        Self { rogue, mood }
    }

    fn salts(&self) -> u64 {
        self.mood.salts.load(Ordering::SeqCst)
    }
}

impl Mood {
    fn answer(&self, name: &str, command: &RawDocument, verifier: &mut Option<ScramVerifier>) -> RawDocumentBuf {
        match name {
            "isMaster" | "hello" => rawdoc! {
                "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
                "saslSupportedMechs": ["SCRAM-SHA-256"],
            },
            "saslStart" => {
                let first = command.get_binary("payload").unwrap().bytes;
                said(false, &self.challenge(first, verifier))
            }
            "saslContinue" => {
                let proof = command.get_binary("payload").unwrap().bytes;
                said(true, &verifier.take().unwrap().verify(proof).unwrap())
            }
            _ => rawdoc! { "ok": 1 },
        }
    }

    fn challenge(&self, first: &[u8], verifier: &mut Option<ScramVerifier>) -> String {
        if self.is_honest.load(Ordering::SeqCst) {
            let login = ScramLogin::parse(first).unwrap();
            let (next, challenge) = login.challenge(&Nonce::from_random([1; Nonce::RANDOM_BYTES]), &self.keys);
            *verifier = Some(next);
            return challenge;
        }
        let (_, nonce) = str::from_utf8(first).unwrap().rsplit_once(",r=").unwrap();
        // Eight digits are base64.
        let salt = self.salts.fetch_add(1, Ordering::SeqCst);
        format!("r={nonce}server,s={salt:08},i={}", self.iterations)
    }
}

fn said(done: bool, payload: &str) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.as_bytes().to_vec() };
    rawdoc! { "ok": 1, "conversationId": 1, "done": done, "payload": payload }
}

/// A client in a lab that takes any number of iterations, and the lab.
async fn client<H: Harness>(server: &Server, query: &str) -> (Client<Lab<H::Runtime>>, Lab<H::Runtime>) {
    let lab = Lab::new();
    let builder = Client::builder(server.rogue.options(query)).runtime(lab.clone());
    (builder.max_scram_iterations(u32::MAX).reselect(false).build().await.unwrap(), lab)
}

pub fn a_hostile_server_makes_a_client_derive_one_key_at_a_time_and_leaves_none_behind<H: Harness>() {
    const TASKS: usize = 50;
    const SALTS: u64 = 60;
    run::<H>(async {
        // One derivation would take an hour.
        let server = Server::start(u32::MAX);
        let (client, lab) = client::<H>(&server, "maxConnecting=20&connectTimeoutMS=200").await;
        let runtime = H::Runtime::current().unwrap();
        let (ends, tasks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(TASKS)));
        for _ in 0..TASKS {
            let (client, ends, tasks) = (client.clone(), Arc::clone(&ends), Arc::clone(&tasks));
            runtime.spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    assert!(client.check_out().await.is_err() || ends.load(Ordering::SeqCst));
                }
                tasks.fetch_sub(1, Ordering::SeqCst);
            });
        }
        until(|| server.salts() >= SALTS).await;

        server.mood.is_honest.store(true, Ordering::SeqCst);
        ends.store(true, Ordering::SeqCst);
        let start = runtime.now();
        let took = loop {
            if let Ok(mut connection) = client.check_out().await
                && connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok()
            {
                break runtime.now() - start;
            }
        };

        let (salts, most, took_ms) = (server.salts(), lab.most_jobs(), took.as_millis());
        println!(
            "{salts} salts of a hostile server: {most} derived at a time; a ping {took_ms} ms after it turned honest"
        );
        assert_eq!(most, 1);
        // One derivation would take an hour.
        assert!(took < Duration::from_secs(60), "{took:?}");
        until(|| tasks.load(Ordering::SeqCst) == 0 && lab.jobs() == 0).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_derivation_that_takes_too_long_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = Server::start(u32::MAX);
        // Long enough to come as far as that on a busy machine.
        let (client, _lab) = client::<H>(&server, "connectTimeoutMS=2900").await;

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Timeout));
        let text = "keys of 4294967295 iterations were not derived in time; connectTimeoutMS allows more";
        assert_eq!(error.message, text);
    });
}

pub fn connections_that_start_together_derive_their_keys_once_auth_17<H: Harness>() {
    run::<H>(async {
        let server = Server::start(0);
        server.mood.is_honest.store(true, Ordering::SeqCst);
        let (client, lab) = client::<H>(&server, "maxConnecting=8&maxPoolSize=8").await;
        let runtime = H::Runtime::current().unwrap();
        let established = Arc::new(AtomicUsize::new(0));

        for _ in 0..8 {
            let (client, established) = (client.clone(), Arc::clone(&established));
            runtime.spawn(async move {
                let _connection = client.check_out().await.unwrap();
                established.fetch_add(1, Ordering::SeqCst);
                // All stay in use until the last, so that there are eight.
                until(|| established.load(Ordering::SeqCst) == 8).await;
            });
        }
        until(|| established.load(Ordering::SeqCst) == 8).await;

        assert_eq!((client.stats().created, lab.all_jobs()), (8, 1));
    });
}

pub fn closing_breaks_off_a_derivation<H: Harness>() {
    run::<H>(async {
        let server = Server::start(u32::MAX);
        // Nothing but the close ends the establishment.
        let (client, lab) = client::<H>(&server, "connectTimeoutMS=0").await;
        let (waiter, runtime) = (client.clone(), H::Runtime::current().unwrap());
        runtime.spawn(async move { drop(waiter.check_out().await) });
        until(|| lab.jobs() == 1).await;

        client.close(Duration::ZERO).await.unwrap();

        until(|| lab.jobs() == 0).await;
    });
}

pub fn the_end_of_the_runtime_breaks_off_a_derivation<H: Harness>() {
    let server = Server::start(u32::MAX);
    let (client, lab) = bounded::<H, _>(async {
        let (client, lab) = client::<H>(&server, "").await;
        let waiter = client.clone();
        H::Runtime::current().unwrap().spawn(async move { drop(waiter.check_out().await) });
        until(|| lab.jobs() == 1).await;
        (client, lab)
    });
    if !H::ENDS {
        bounded::<H, _>(client.close(Duration::ZERO)).unwrap();
    }

    bounded::<H, _>(until(|| lab.jobs() == 0));
}

pub fn more_iterations_than_a_client_allows_are_refused_with_their_number<H: Harness>() {
    run::<H>(async {
        let server = Server::start(500_001);
        let client = super::builder::<H>(server.rogue.options("")).build().await.unwrap();

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Other));
        assert!(error.message.contains("asked for 500001 iterations"), "{error}");
        assert!(
            error.message.contains("500000 are allowed") && error.message.contains("max_scram_iterations"),
            "{error}"
        );
    });
}
