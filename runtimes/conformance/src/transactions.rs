//! Transactions: what takes effect, what is repeated, and what stays on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Document, doc, rawdoc};
use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::session::{TransactionError, TransactionOptions, TransactionState};
use cmap_core::topology::SelectionErrorKind;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{
    CheckOutError, Client, Consistency, Labelled, OperationError, OperationErrorKind, Runtime, Session, SessionOptions,
};

use super::cursors::{named, sent};
use super::{ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, client, run, until};

const TRANSIENT: &str = "TransientTransactionError";

/// An error of a callback's own, or of one of its operations.
#[derive(Debug)]
enum CallbackError {
    Own,
    Operation(OperationError),
}

impl From<OperationError> for CallbackError {
    fn from(error: OperationError) -> Self {
        Self::Operation(error)
    }
}

impl From<CallbackError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: CallbackError) -> Self {
        match error {
            CallbackError::Own => "the callback's own".into(),
            CallbackError::Operation(error) => Box::new(error),
        }
    }
}

impl Labelled for CallbackError {
    fn has_label(&self, label: &str) -> bool {
        matches!(self, Self::Operation(error) if error.has_label(label))
    }
}

fn member() -> LocalServer {
    LocalServer::start_as(Setup { replica_set: true, ..Setup::default() })
}

async fn client_of_member<H: Harness>(server: &LocalServer) -> ClientOf<H> {
    let client = client::<H>(server, "directConnection=true").await;
    client.operation(("db", insert(0))).on(Writable).run().await.unwrap();
    client
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "n": 0 }] }
}

fn increment() -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }] }
}

async fn run_in<R: Runtime>(session: &mut Session<R>, command: Document) -> Result<(), OperationError> {
    session.operation(("db", command)).on(Writable).run().await.map(drop)
}

/// The documents that match `filter`.
async fn count<R: Runtime>(client: &Client<R>, filter: Document) -> i32 {
    let reply = client.operation(("db", doc! { "count": "c", "query": filter })).on(Writable).run().await.unwrap();
    reply.get_i32("n").unwrap()
}

pub fn what_is_committed_takes_effect_as_a_whole<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        for id in 1..=3 {
            run_in(&mut session, insert(id)).await.unwrap();
        }
        assert_eq!(count(&client, doc! {}).await, 1);

        session.commit_transaction().await.unwrap();

        assert_eq!((count(&client, doc! {}).await, session.transaction_state()), (4, TransactionState::Committed));
        assert_nothing_lost(&client);
    });
}

pub fn what_is_aborted_takes_no_effect<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        run_in(&mut session, insert(1)).await.unwrap();

        session.abort_transaction().await.unwrap();

        assert_eq!(count(&client, doc! {}).await, 1);
        let error = session.commit_transaction().await.unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::Transaction(TransactionError::CommitAfterAbort)), "{error}");
    });
}

pub fn a_commit_whose_write_concern_is_not_satisfied_is_an_error<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let fail_point = doc! {
            "configureFailPoint": "failCommand", "mode": { "times": 1 },
            "data": { "failCommands": ["commitTransaction"], "writeConcernError": { "code": 100, "errmsg": "no such members" } },
        };
        client.operation(("admin", fail_point)).on(Writable).run().await.unwrap();
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        run_in(&mut session, insert(1)).await.unwrap();

        let error = session.commit_transaction().await.unwrap_err();

        assert!(error.to_string().contains("no such members"), "{error}");
        assert_eq!(count(&client, doc! {}).await, 2, "it took effect all the same");
    });
}

pub fn a_transaction_on_a_standalone_says_what_it_needs<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        for retry_writes in [true, false] {
            let client = client::<H>(&server, &format!("retryWrites={retry_writes}")).await;
            let mut session = client.start_session().unwrap();
            session.start_transaction().unwrap();

            let error = run_in(&mut session, insert(1)).await.unwrap_err().to_string();

            assert!(error.contains("transactions need a replica set or a sharded cluster"), "{error}");
            assert!(!error.contains("retryWrites"), "{error}");
        }
    });
}

pub fn a_session_that_is_dropped_leaves_no_transaction_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut abandoned = client.start_session().unwrap();
        abandoned.start_transaction().unwrap();
        run_in(&mut abandoned, increment()).await.unwrap();
        let aborted_at = client.stats().checked_in + 1;

        drop(abandoned);

        until(|| client.stats().checked_in >= aborted_at).await;
        // It would conflict with an open transaction.
        let mut other = client.start_session().unwrap();
        other.start_transaction().unwrap();
        run_in(&mut other, increment()).await.unwrap();
        other.commit_transaction().await.unwrap();
        assert_eq!(count(&client, doc! { "n": 1 }).await, 1);
    });
}

pub fn a_step_down_repeats_the_whole_transaction<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        let mut attempts = 0;

        let ran: Result<(), OperationError> = session
            .with_transaction(async |session| {
                attempts += 1;
                run_in(session, increment()).await?;
                if attempts == 1 {
                    let step_down = doc! { "replSetStepDown": 1, "force": true };
                    client.operation(("admin", step_down)).on(Writable).run().await?;
                }
                run_in(session, insert(attempts)).await
            })
            .await;

        ran.unwrap();
        assert!(attempts > 1, "the first attempt was cut off");
        assert_eq!((count(&client, doc! { "n": 1 }).await, count(&client, doc! {}).await), (1, 2));
    });
}

pub fn write_conflicts_between_tasks_lose_no_increment<H: Harness>() {
    const TASKS: usize = 8;
    const TIMES: usize = 5;
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let runtime = H::Runtime::current().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..TASKS {
            let (client, done) = (client.clone(), Arc::clone(&done));
            runtime.spawn(async move {
                let mut session = client.start_session().unwrap();
                for _ in 0..TIMES {
                    let increment = async |session: &mut Session<H::Runtime>| run_in(session, increment()).await;
                    session.with_transaction(increment).await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }

        until(|| done.load(Ordering::SeqCst) == TASKS * TIMES).await;

        assert_eq!(count(&client, doc! { "n": i32::try_from(TASKS * TIMES).unwrap() }).await, 1);
    });
}

pub fn a_deadline_ends_a_transaction_that_cannot_be_committed<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut holder = client.start_session().unwrap();
        holder.start_transaction().unwrap();
        run_in(&mut holder, increment()).await.unwrap();
        let mut session = client.start_session().unwrap();

        let limit = Duration::from_millis(300);
        let increment = async |session: &mut Session<H::Runtime>, of: &mut Document| run_in(session, of.clone()).await;
        let options = TransactionOptions::default();
        let ended = session.with_transaction_on(self::increment(), options, limit, increment).await;

        let error = ended.unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::TransactionTimeout(_)), "{error}");
        assert!(error.is_timeout() && error.has_label(TRANSIENT), "{error}");
    });
}

pub fn a_commit_has_the_limit_of_its_session_or_one_of_its_own_csot_26<H: Harness>() {
    run::<H>(async {
        let server = member();
        let options = super::options(&server, "directConnection=true");
        let client = super::builder::<H>(options).observe_commands(true).build().await.unwrap();
        client.operation(("db", insert(0))).on(Writable).run().await.unwrap();
        let mut events = client.subscribe(10_000);
        let mut options = SessionOptions::default();
        options.timeout = Some(Duration::from_secs(60));
        options.transactions.max_commit_time = Some(Duration::from_secs(600));
        let mut session = client.start_session_with(options).unwrap();

        for limit in [None, Some(Duration::from_secs(20))] {
            session.start_transaction().unwrap();
            run_in(&mut session, increment()).await.unwrap();
            match limit {
                None => session.commit_transaction().await.unwrap(),
                Some(limit) => session.commit_transaction_within(limit).await.unwrap(),
            }
        }
        session.start_transaction().unwrap();
        run_in(&mut session, increment()).await.unwrap();
        session.abort_transaction_within(Duration::from_secs(30)).await.unwrap();

        let all = sent(&client, &mut events).await;
        let limits = |name| named(&all, name).iter().map(|one| one.get_i64("maxTimeMS").unwrap()).collect::<Vec<_>>();
        let commits = limits("commitTransaction");
        assert_eq!(commits.len(), 2);
        assert!((20_001..=60_000).contains(&commits[0]) && commits[1] <= 20_000, "{commits:?}");
        let aborts = limits("abortTransaction");
        assert!(aborts.len() == 1 && aborts[0] <= 30_000, "{aborts:?}");
        assert_eq!(count(&client, doc! { "n": 2 }).await, 1);
    });
}

pub fn a_limit_of_zero_replaces_the_w_timeout_of_a_commit_csot_3<H: Harness>() {
    run::<H>(async {
        let server = member();
        for (query, of_session) in [("&timeoutMS=0", None), ("", Some(Duration::ZERO))] {
            let options = super::options(&server, &format!("directConnection=true&w=majority&wTimeoutMS=50{query}"));
            let client = super::builder::<H>(options).observe_commands(true).build().await.unwrap();
            let mut events = client.subscribe(10_000);
            let mut options = SessionOptions::default();
            options.timeout = of_session;
            let mut session = client.start_session_with(options).unwrap();
            session.start_transaction().unwrap();
            run_in(&mut session, doc! { "insert": "c", "documents": [{}] }).await.unwrap();

            session.commit_transaction().await.unwrap();
            session.commit_transaction().await.unwrap();

            let all = sent(&client, &mut events).await;
            let concerns: Vec<_> =
                named(&all, "commitTransaction").iter().map(|one| one.get_document("writeConcern").unwrap()).collect();
            assert_eq!(concerns, [&*rawdoc! { "w": "majority" }; 2], "{query}");
        }
    });
}

pub fn a_commit_in_a_closed_client_is_not_repeated_x_150<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();

        // A loop without an end would take two minutes.
        let limit = Duration::from_secs(30);
        let close = async |session: &mut Session<H::Runtime>, client: &mut ClientOf<H>| {
            run_in(session, insert(1)).await?;
            assert_eq!(client.close(Duration::ZERO).await, Ok(0));
            Ok::<(), OperationError>(())
        };
        let ended = session.with_transaction_on(client.clone(), TransactionOptions::default(), limit, close).await;

        let error = ended.unwrap_err();
        let OperationErrorKind::CheckOut(CheckOutError::Selection(selection)) = &error.kind else { panic!("{error}") };
        assert_eq!(selection.kind, SelectionErrorKind::Closed);
        assert!(!error.has_label("UnknownTransactionCommitResult"), "{error}");
    });
}

pub fn an_operation_of_a_transaction_in_a_closed_client_is_not_transient_x_150<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        assert_eq!(client.close(Duration::ZERO).await, Ok(0));

        let error = run_in(&mut session, insert(1)).await.unwrap_err();

        assert!(!error.has_label(TRANSIENT), "{error}");
    });
}

pub fn a_transaction_whose_time_is_up_is_aborted_x_151<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();

        let limit = Duration::from_millis(300);
        let take_too_long = async |session: &mut Session<H::Runtime>, (): &mut ()| {
            run_in(session, increment()).await?;
            let runtime = H::Runtime::current().unwrap();
            runtime.sleep_until(runtime.now() + limit).await;
            run_in(session, insert(1)).await
        };
        let ended = session.with_transaction_on((), TransactionOptions::default(), limit, take_too_long).await;

        let error = ended.unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::TransactionTimeout(_)), "{error}");
        // It would conflict with an open transaction.
        let mut other = client.start_session().unwrap();
        other.start_transaction().unwrap();
        run_in(&mut other, increment()).await.unwrap();
        other.commit_transaction().await.unwrap();
    });
}

pub fn a_transaction_whose_time_is_up_says_so_txn_4<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();

        let insert_one = async |session: &mut Session<H::Runtime>, (): &mut ()| run_in(session, insert(1)).await;
        let ended = session.with_transaction_on((), TransactionOptions::default(), Duration::ZERO, insert_one).await;

        let error = ended.unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::TransactionTimeout(_)), "{error}");
        assert!(error.is_timeout() && error.has_label(TRANSIENT), "{error}");
    });
}

pub fn an_operation_in_with_transaction_takes_no_limit_of_its_own_csot_27<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();

        let limited = async |session: &mut Session<H::Runtime>, (): &mut ()| {
            session.operation(("db", insert(1))).on(Writable).within(Duration::from_secs(1)).run().await.map(drop)
        };
        let (options, limit) = (TransactionOptions::default(), Duration::from_secs(5));
        let error = session.with_transaction_on((), options, limit, limited).await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::Transaction(TransactionError::OwnLimit)), "{error}");
        assert_eq!(count(&client, doc! {}).await, 1);
    });
}

pub fn an_error_of_the_callbacks_own_aborts_and_comes_back<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();

        let ended: Result<(), CallbackError> = session
            .with_transaction(async |session| {
                run_in(session, insert(1)).await?;
                Err(CallbackError::Own)
            })
            .await;

        assert!(matches!(ended, Err(CallbackError::Own)), "{ended:?}");
        assert_eq!((session.transaction_state(), count(&client, doc! {}).await), (TransactionState::Aborted, 1));
    });
}

pub fn a_commit_that_was_cut_off_is_done_once<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let fail_point = doc! {
            "configureFailPoint": "failCommand", "mode": { "times": 1 },
            "data": { "failCommands": ["commitTransaction"], "closeConnection": true },
        };
        client.operation(("admin", fail_point)).on(Writable).run().await.unwrap();
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        run_in(&mut session, increment()).await.unwrap();

        session.commit_transaction().await.unwrap();
        session.commit_transaction().await.unwrap();

        assert_eq!(count(&client, doc! { "n": 1 }).await, 1);
    });
}

pub fn a_transaction_behind_a_load_balancer_keeps_its_connection_lb_15<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 2, ..Setup::default() });
        let client = client::<H>(&server, "loadBalanced=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        let before = client.stats().checked_out;

        for id in 1..=3 {
            run_in(&mut session, insert(id)).await.unwrap();
        }
        assert_eq!((client.stats().checked_out - before, client.stats().counts.in_use), (1, 1));
        session.commit_transaction().await.unwrap();

        assert!(session.is_pinned(), "PIN-6");
        run_in(&mut session, doc! { "ping": 1 }).await.unwrap();
        assert!(!session.is_pinned(), "PIN-5");
        assert_nothing_lost(&client);
    });
}

pub fn a_read_elsewhere_and_a_write_concern_are_refused_txn_3<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();

        let nearest = ReadPreference::new(ReadMode::Nearest);
        let find = rawdoc! { "find": "c" };
        let read = session.operation(("db", find)).on(nearest).run().await.unwrap_err();
        let mut write = insert(1);
        write.insert("writeConcern", doc! { "w": 1 });
        let write = run_in(&mut session, write).await.unwrap_err();

        assert!(matches!(read.kind, OperationErrorKind::Transaction(TransactionError::ReadPreference)), "{read}");
        assert!(matches!(write.kind, OperationErrorKind::Transaction(TransactionError::WriteConcern)), "{write}");
        assert_eq!(session.transaction_state(), TransactionState::Starting, "TXN-1");
    });
}

pub fn a_read_concern_of_a_single_command_is_refused_txn_2<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();

        let find = doc! { "find": "c", "readConcern": { "level": "local" } };
        let error = run_in(&mut session, find).await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::Transaction(TransactionError::ReadConcern)), "{error}");
        assert_eq!(session.transaction_state(), TransactionState::Starting, "TXN-1");
    });
}

pub fn a_write_without_a_reply_is_refused_in_a_session_ses_10_x_176<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session().unwrap();
        let mut unacknowledged = insert(1);
        unacknowledged.insert("writeConcern", doc! { "w": 0 });

        let error = run_in(&mut session, unacknowledged.clone()).await.unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::UnacknowledgedInSession), "{error}");
        assert_eq!(count(&client, doc! {}).await, 1);

        client.operation(("db", unacknowledged)).on(Writable).run().await.unwrap();
        while count(&client, doc! {}).await < 2 {}
    });
}

pub fn a_write_concern_without_a_reply_and_with_a_journal_is_refused<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut contradictory = insert(1);
        contradictory.insert("writeConcern", doc! { "w": 0, "j": true });

        let error = client.operation(("db", contradictory)).on(Writable).run().await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::UnacknowledgedJournal), "{error}");
        assert_eq!(count(&client, doc! {}).await, 1);
    });
}

pub fn a_snapshot_session_reads_at_one_time_ses_17<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = client_of_member::<H>(&server).await;
        let mut session = client.start_session_with(Consistency::Snapshot { at: None }).unwrap();
        let find = || rawdoc! { "distinct": "c", "key": "_id" };
        session.operation(("db", find())).on(Writable).run().await.unwrap();
        client.operation(("db", insert(1))).on(Writable).run().await.unwrap();

        let again = session.operation(("db", find())).on(Writable).run().await.unwrap();
        let at = session.snapshot_time();
        let mut other = client.start_session_with(Consistency::Snapshot { at }).unwrap();
        let elsewhere = other.operation(("db", find())).on(Writable).run().await.unwrap();

        for reply in [again, elsewhere] {
            assert_eq!(reply.get_array("values").unwrap().into_iter().count(), 1);
        }
        let error = session.start_transaction().unwrap_err();
        assert!(matches!(error.kind, OperationErrorKind::Transaction(TransactionError::InSnapshotSession)), "{error}");
    });
}
