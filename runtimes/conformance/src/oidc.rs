//! MONGODB-OIDC with a callback of the application's: the prose tests of machine callbacks (`auth/tests/mongodb-oidc.md`), by their
//! numbers, and what they leave open.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::{Document, doc, rawdoc};
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::{ClientOptions, Credential};
use cmap_core::server::CommandEvent;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, CommandErrorKind, OperationError, OperationErrorKind, Reply, TokenReply, TokenRequest};

use super::rotation::user;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, command_events, establish_error, poll_once, run,
    the_server, told, until, yield_now,
};

/// The callback of a test: the tokens that it returns, one after the other, and the requests that it got. The last token is returned
/// again and again.
#[derive(Clone)]
struct Provider {
    tokens: Arc<[&'static str]>,
    requests: Arc<Mutex<Vec<TokenRequest>>>,
}

impl Provider {
    fn of(tokens: &[&'static str]) -> Self {
        Self { tokens: tokens.into(), requests: Arc::default() }
    }

    fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn answer(&self, request: TokenRequest) -> Result<TokenReply, String> {
        let mut requests = self.requests.lock().unwrap();
        let turn = requests.len().min(self.tokens.len() - 1);
        requests.push(request);
        Ok(TokenReply::new(self.tokens[turn]))
    }

    /// A client that logs in with its tokens, and reports errors of establishing at once.
    async fn client<H: Harness>(&self, server: &LocalServer, query: &str) -> ClientOf<H> {
        let (options, _) = ClientOptions::parse(&server.uri(&format!("authMechanism=MONGODB-OIDC&{query}"))).unwrap();
        let provider = self.clone();
        let fetch = move |request| std::future::ready(provider.answer(request));
        super::builder::<H>(options).oidc_callback(fetch).reselect(false).build().await.unwrap()
    }
}

/// A server that clients have to log in to.
fn server() -> LocalServer {
    LocalServer::start_as(Setup { authorization: true, ..Setup::default() })
}

async fn find<R: Runtime>(client: &Client<R>) -> Result<Reply<'static>, OperationError> {
    client.run(("db", doc! { "find": "c" })).await
}

async fn insert<R: Runtime>(client: &Client<R>) -> Result<Reply<'static>, OperationError> {
    client.run(("db", doc! { "insert": "c", "documents": [{ "x": 1 }] })).await
}

/// Has these commands fail once, or as often as said, on connections of the application `suite`.
async fn fail<H: Harness>(server: &LocalServer, times: i32, commands: &[&str], code: i32) {
    fail_late::<H>(server, times, commands, code, 0).await;
}

/// Has these commands fail as often as said, each after so many milliseconds.
async fn fail_late<H: Harness>(server: &LocalServer, times: i32, commands: &[&str], code: i32, millis: i32) {
    let commands: Vec<&str> = commands.to_vec();
    let data = doc! {
        "failCommands": commands, "errorCode": code, "appName": "suite", "blockConnection": true, "blockTimeMS": millis,
    };
    as_operator::<H>(
        server,
        "admin",
        doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data },
    )
    .await;
}

/// Runs a command as a user with a password.
async fn as_operator<H: Harness>(server: &LocalServer, database: &str, command: Document) {
    let client = super::connect::<H>(&server.uri_as("app:secret", "")).await.unwrap();
    client.run((database, command)).await.unwrap();
}

/// The code by which a server asks for another login.
const REAUTHENTICATE: i32 = 391;

pub fn prose_1_1_the_callback_is_called_during_authentication<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "").await;

        find(&client).await.unwrap();

        assert_eq!(provider.calls(), 1);
    });
}

pub fn prose_1_2_the_callback_is_called_once_for_multiple_connections<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "").await;
        let (mut waiting, mut connections) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let mut check_out = Box::pin(client.check_out());
            match poll_once(&mut check_out).await {
                Some(connection) => connections.push(connection.unwrap()),
                None => waiting.push(check_out),
            }
        }

        for check_out in waiting {
            connections.push(check_out.await.unwrap());
        }
        for connection in &mut connections {
            for _ in 0..10 {
                connection.run_command("db", rawdoc! { "find": "c" }).await.unwrap();
            }
        }

        assert_eq!((provider.calls(), client.stats().created), (1, 10));
    });
}

pub fn prose_2_1_the_callback_gets_valid_inputs<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let mut options = ClientOptions::parse(&server.uri_as("me", "authMechanism=MONGODB-OIDC")).unwrap().0;
        options.connect_timeout = Some(Duration::from_secs(20));
        let callback = provider.clone();
        let fetch = move |request| std::future::ready(callback.answer(request));
        let client = super::builder::<H>(options).oidc_callback(fetch).build().await.unwrap();

        find(&client).await.unwrap();

        let requests = provider.requests.lock().unwrap();
        assert_eq!((requests[0].version, requests[0].username.as_deref()), (1, Some("me")));
        let left = requests[0].deadline.left(&H::Runtime::current().unwrap());
        assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(20), "{left:?}");
    });
}

pub fn prose_2_2_and_2_3_a_callback_without_a_token_fails_the_operation<H: Harness>() {
    run::<H>(async {
        let server = server();
        let (options, _) = ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC")).unwrap();
        let fails = |_: TokenRequest| std::future::ready(Err::<TokenReply, _>("the identity provider is away"));
        let failing = super::builder::<H>(options).oidc_callback(fails).reselect(false).build().await.unwrap();
        let empty = Provider::of(&[""]).client::<H>(&server, "").await;

        let failed = establish_error(failing.check_out().await);
        let without = establish_error(empty.check_out().await);

        assert_eq!((failed.phase, failed.fault), (Phase::Authenticate, Fault::Other));
        assert!(
            failed.to_string().contains("MONGODB-OIDC: no access token could be fetched: the identity provider"),
            "{failed}"
        );
        assert!(without.to_string().contains("the access token is empty"), "{without}");
    });
}

pub fn prose_2_4_a_callback_and_an_environment_are_an_invalid_configuration<H: Harness>() {
    run::<H>(async {
        let properties = "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test";
        let (options, _) = ClientOptions::parse(&format!("mongodb://localhost/?{properties}")).unwrap();
        let fetch = |_: TokenRequest| std::future::ready(Ok::<_, String>(TokenReply::new("first-token")));

        let error = super::builder::<H>(options).oidc_callback(fetch).build().await.unwrap_err();

        assert!(told(&error).contains("ENVIRONMENT cannot be used with a callback"), "{error}");
    });
}

pub fn prose_3_1_a_refused_token_of_the_cache_is_replaced_and_the_login_repeated<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let client = provider.client::<H>(&server, "").await;
        let kept = client.check_out().await.unwrap();
        // The cached token is good no longer.
        as_operator::<H>(&server, "$external", doc! { "dropUser": "first" }).await;

        let mut next = client.check_out().await.unwrap();

        next.run_command("db", rawdoc! { "find": "c" }).await.unwrap();
        assert_eq!(provider.calls(), 2);
        drop((kept, next));
        assert_nothing_lost(&client);
    });
}

pub fn prose_3_2_a_refused_token_that_is_not_of_the_cache_is_an_error<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["no-such-token"]));
        let client = provider.client::<H>(&server, "").await;

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Server { code: Some(18) }));
        assert!(error.to_string().contains("check the access token"), "{error}");
        assert!(!error.to_string().contains("no-such-token"), "{error}");
        assert_eq!(provider.calls(), 1);
    });
}

pub fn prose_3_3_an_unexpected_error_code_does_not_clear_the_cache<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "appName=suite&heartbeatFrequencyMS=500").await;
        fail::<H>(&server, 1, &["saslStart"], 20).await;

        let error = establish_error(client.check_out().await);
        assert_eq!((error.fault, provider.calls()), (Fault::Server { code: Some(20) }, 1));

        find(&client).await.unwrap();
        assert_eq!(provider.calls(), 1);
    });
}

pub fn prose_4_1_reauthentication_succeeds<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let client = provider.client::<H>(&server, "appName=suite&retryReads=false").await;
        find(&client).await.unwrap();
        fail::<H>(&server, 1, &["find"], REAUTHENTICATE).await;

        find(&client).await.unwrap();

        assert_eq!((provider.calls(), client.stats().created), (2, 1));
        assert_nothing_lost(&client);
    });
}

pub fn another_login_has_what_the_command_has_left_of_its_time<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let client = provider.client::<H>(&server, "appName=suite").await;
        let mut connection = client.check_out().await.unwrap();
        // Each of them takes less than the limit.
        fail_late::<H>(&server, 2, &["find", "saslStart"], REAUTHENTICATE, 600).await;

        let within = Duration::from_secs(1);
        let error = connection.run_command_within("db", rawdoc! { "find": "c" }, within).await.unwrap_err();

        assert!(error.is_timeout(), "{error}");
        drop(connection);
        assert_nothing_lost(&client);
    });
}

pub fn a_command_that_is_sent_again_says_how_much_of_its_time_is_left_csot_9<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let (options, _) = ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC&appName=suite")).unwrap();
        let fetch = move |request| std::future::ready(provider.answer(request));
        let builder = super::builder::<H>(options).oidc_callback(fetch).observe_commands(true);
        let client = builder.build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        let mut events = client.subscribe(1000);
        fail_late::<H>(&server, 1, &["find"], REAUTHENTICATE, 300).await;

        let within = Duration::from_secs(60);
        connection.run_command_within("db", rawdoc! { "find": "c" }, within).await.unwrap();

        drop(connection);
        let max_time = |event: &Arc<CommandEvent>| {
            let CommandEvent::CommandStarted { document, sent } = &**event else { return None };
            (sent.name == "find").then(|| document.get_i64("maxTimeMS").unwrap())
        };
        let sent: Vec<i64> = command_events(&client, &mut events).await.iter().filter_map(max_time).collect();
        // A round trip may have turned out to be shorter.
        assert!(sent.len() == 2 && sent[1] < sent[0] - 200, "{sent:?}");
    });
}

pub fn a_cursor_that_is_given_up_during_another_login_costs_its_connection<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let client = provider.client::<H>(&server, "appName=suite").await;
        find(&client).await.unwrap();
        fail_late::<H>(&server, 2, &["find", "saslStart"], REAUTHENTICATE, 300).await;
        let runtime = H::Runtime::current().unwrap();
        let mut making = Box::pin(client.operation(("db", doc! { "find": "c" })).cursor());

        // The login has begun when it has asked for a token; soon its command is sent.
        let mut asked_at: Option<Instant> = None;
        while asked_at.is_none_or(|asked_at| runtime.now() < asked_at + Duration::from_millis(100)) {
            assert!(poll_once(&mut making).await.is_none());
            asked_at = asked_at.or_else(|| (provider.calls() == 2).then(|| runtime.now()));
            yield_now().await;
        }
        drop(making);

        until(|| client.stats().counts.total() == 0).await;
        assert_nothing_lost(&client);
    });
}

pub fn the_token_of_a_user_who_was_removed_is_forgotten<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "").await;
        let (options, _) = ClientOptions::parse(&server.uri_as("me", "authMechanism=MONGODB-OIDC")).unwrap();
        let me = options.credential.unwrap();

        for calls in [1, 2] {
            let identity = client.add_identity(me.clone()).unwrap();
            drop(client.check_out().identity(identity).await.unwrap());
            assert_eq!(provider.calls(), calls);
            client.remove_identity(identity);
        }
    });
}

pub fn the_token_of_a_user_who_was_replaced_is_forgotten<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "").await;
        find(&client).await.unwrap();

        client.set_credential(Some(Credential::oidc(Some("me".into())))).await.unwrap();
        client.set_credential(Some(Credential::oidc(None))).await.unwrap();

        assert_eq!(provider.calls(), 3);
    });
}

pub fn an_open_connection_logs_in_again_as_the_user_it_has_x_91<H: Harness>() {
    run::<H>(async {
        let server = server();
        let uri = server.uri_as("first", "authMechanism=MONGODB-OIDC&appName=suite");
        let (options, _) = ClientOptions::parse(&uri).unwrap();
        let fetch = |request: TokenRequest| {
            let token = format!("{}-token", request.username.unwrap_or_default());
            std::future::ready(Ok::<_, String>(TokenReply::new(token)))
        };
        let client = super::builder::<H>(options).oidc_callback(fetch).build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        client.set_credential(Some(Credential::oidc(Some("second".into())))).await.unwrap();
        fail::<H>(&server, 1, &["ping"], REAUTHENTICATE).await;

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        assert_eq!(user(&mut connection).await, "first");
    });
}

pub fn prose_4_2_and_4_3_commands_fail_if_reauthentication_fails<H: Harness>() {
    run::<H>(async {
        for command in ["find", "insert"] {
            let (server, provider) = (server(), Provider::of(&["first-token", "no-such-token"]));
            let client = provider.client::<H>(&server, "appName=suite").await;
            find(&client).await.unwrap();
            fail::<H>(&server, 1, &[command], REAUTHENTICATE).await;

            let failed = if command == "find" { find(&client).await } else { insert(&client).await };

            let error = failed.unwrap_err();
            assert_eq!((error.code(), provider.calls()), (Some(18), 2), "{error}");
            let OperationErrorKind::Command(command) = &error.kind else { panic!("{error}") };
            assert!(matches!(command.kind, CommandErrorKind::Reauthentication(_)), "{error}");
            // the connection is closed; its server and the others are as before.
            let stats = client.stats();
            assert_eq!((stats.counts.total(), stats.cleared), (0, 0), "{stats:?}");
            assert!(the_server(&client).error.is_none());
        }
    });
}

pub fn prose_4_4_reauthentication_sends_no_hello_and_so_does_not_speculate<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token", "second-token"]));
        let client = provider.client::<H>(&server, "appName=suite&retryWrites=false").await;
        insert(&client).await.unwrap();
        fail::<H>(&server, 2, &["insert", "saslStart"], REAUTHENTICATE).await;

        let error = insert(&client).await.unwrap_err();

        // The login was a `saslStart` of its own.
        assert_eq!(error.code(), Some(REAUTHENTICATE), "{error}");
        insert(&client).await.unwrap();
        assert_eq!(provider.calls(), 2);
    });
}

pub fn prose_4_5_reauthentication_succeeds_in_a_session<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { authorization: true, replica_set: true, ..Setup::default() });
        let provider = Provider::of(&["first-token", "second-token"]);
        let client = provider.client::<H>(&server, "appName=suite&directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.run(("db", doc! { "find": "c" })).await.unwrap();
        fail::<H>(&server, 1, &["find"], REAUTHENTICATE).await;

        session.run(("db", doc! { "find": "c" })).await.unwrap();

        assert_eq!(provider.calls(), 2);
    });
}

pub fn a_cached_token_goes_along_with_the_hello_oidc_6<H: Harness>() {
    run::<H>(async {
        let (server, provider) = (server(), Provider::of(&["first-token"]));
        let client = provider.client::<H>(&server, "appName=suite").await;
        let _first = client.check_out().await.unwrap();
        fail::<H>(&server, 1, &["saslStart"], 18).await;

        assert!(client.check_out().await.is_ok());

        assert_eq!(provider.calls(), 1);
    });
}

pub fn a_callback_that_takes_too_long_is_said_so_oidc_8<H: Harness>() {
    run::<H>(async {
        let server = server();
        let (options, _) =
            ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC&connectTimeoutMS=500")).unwrap();
        let hangs = |_: TokenRequest| std::future::pending::<Result<TokenReply, String>>();
        let client = super::builder::<H>(options).oidc_callback(hangs).reselect(false).build().await.unwrap();

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Timeout));
        assert!(error.to_string().contains("no access token within connectTimeoutMS"), "{error}");
    });
}

pub fn calls_for_tokens_are_100_ms_apart_oidc_5<H: Harness>() {
    run::<H>(async {
        let server = server();
        let (options, _) = ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC")).unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (noted, runtime) = (Arc::clone(&calls), H::Runtime::current().unwrap());
        let fetch = move |_: TokenRequest| {
            noted.lock().unwrap().push(runtime.now());
            std::future::ready(Ok::<_, String>(TokenReply::new("no-such-token")))
        };
        let pool = super::pool_builder::<H>(options).oidc_callback(fetch).build().await.unwrap();

        for _ in 0..3 {
            // A refused login pauses the pool.
            pool.ready();
            assert!(pool.check_out().await.is_err());
        }

        let calls = calls.lock().unwrap();
        assert_eq!(calls.len(), 3);
        for two in calls.windows(2) {
            assert!(two[1] - two[0] >= Duration::from_millis(100), "{calls:?}");
        }
    });
}

pub fn a_call_for_a_token_that_was_cut_off_counts_oidc_5<H: Harness>() {
    /// Notes when it is dropped.
    struct Call<R: Runtime>(R, Arc<Mutex<Vec<Instant>>>);
    impl<R: Runtime> Drop for Call<R> {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0.now());
        }
    }

    run::<H>(async {
        let server = server();
        let (options, _) =
            ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC&connectTimeoutMS=1000")).unwrap();
        let times = Arc::<Mutex<Vec<Instant>>>::default;
        let (begins, ends) = (times(), times());
        let (begun, ended) = (Arc::clone(&begins), Arc::clone(&ends));
        let runtime = H::Runtime::current().unwrap();
        let hangs = move |_: TokenRequest| {
            begun.lock().unwrap().push(runtime.now());
            let call = Call(runtime.clone(), Arc::clone(&ended));
            async move {
                let _call = call;
                std::future::pending::<Result<TokenReply, String>>().await
            }
        };
        let pool = super::pool_builder::<H>(options).oidc_callback(hangs).build().await.unwrap();

        for _ in 0..2 {
            // A failed login pauses the pool.
            pool.ready();
            assert!(pool.check_out().await.is_err());
        }

        let (begins, ends) = (begins.lock().unwrap(), ends.lock().unwrap());
        assert!(begins.len() == 2 && begins[1] - ends[0] >= Duration::from_millis(100), "{begins:?} {ends:?}");
    });
}

pub fn a_callback_that_panics_fails_its_connection_alone<H: Harness>() {
    run::<H>(async {
        let (server, calls) = (server(), AtomicUsize::new(0));
        let (options, _) =
            ClientOptions::parse(&server.uri("authMechanism=MONGODB-OIDC&heartbeatFrequencyMS=500")).unwrap();
        let panics_at_first = move |_: TokenRequest| {
            assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "a bug of the application's");
            std::future::ready(Ok::<_, String>(TokenReply::new("first-token")))
        };
        let builder = super::builder::<H>(options).oidc_callback(panics_at_first);
        let client = builder.reselect(false).build().await.unwrap();

        let error = establish_error(client.check_out().await);

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Other));
        assert!(error.to_string().contains("the callback panicked"), "{error}");
        find(&client).await.unwrap();
    });
}
