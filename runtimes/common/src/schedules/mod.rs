//! Runs threads that share a pool in thousands of orders: random ones, and those of PCT, which finds a bug of few steps with a known
//! probability.
//!
//! A thread that nobody wakes is found as a deadlock. Otherwise the end counts: everybody was answered, and nothing is left over.
//! `.ci/schedules` runs these tests; `CMAP_SCHEDULES` says how many orders each has.

mod runtime;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_core::pool::{Cause, CheckOutErrorKind, Clear, PoolState};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use self::runtime::{Network, Schedule};
use crate::events::{Event, PoolEvent};
use crate::runtime::sync::{Arc, AtomicBool, Mutex, Ordering, PoisonError};
use crate::{CheckOutError, CommandError, Connection, Notice, Pool};

/// The bugs of a schedule that PCT looks for need at most this many changes of threads.
const DEPTH: usize = 3;

/// Bytes for each thread. What shuttle has by default is too little for code that is not optimised, which ends the process then.
const STACK_SIZE: usize = 512 * 1024;

/// Tries orders of the threads of `test`.
fn try_schedules(test: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("CMAP_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let test = Arc::new(test);
    let again = Arc::clone(&test);
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(move || again());
    Runner::new(PctScheduler::new(DEPTH, schedules), config).run(move || test());
}

/// A pool that is ready, and its network.
fn ready_pool(options: &str) -> (Pool<Schedule>, Arc<Network>) {
    let pool = pool(options, |_| {});
    pool.0.ready();
    pool
}

fn pool(options: &str, handler: impl Fn(&Event) + Send + Sync + 'static) -> (Pool<Schedule>, Arc<Network>) {
    let (options, _) = ClientOptions::parse(&format!("mongodb://db/?{options}")).unwrap();
    let network = Arc::new(Network::default());
    let builder = Pool::builder(options).runtime(Schedule::new(&network)).on_event(move |_, event| handler(event));
    (block_on(builder.build()).unwrap(), network)
}

/// Closes a pool that nobody uses any more: nothing is left of it, and every task has ended.
fn assert_nothing_is_left(pool: Pool<Schedule>, network: &Network) {
    let counts = pool.stats().counts;
    assert_eq!((counts.in_use, counts.waiting), (0, 0));

    pool.close();

    assert_eq!(block_on(pool.closed(Duration::MAX)).unwrap(), 0);
    assert_eq!(pool.driver().entries(), 0);
    drop(pool);
    while let Some(task) = network.task() {
        block_on(task).unwrap();
    }
    assert_eq!(network.open(), 0);
}

/// Has somebody give up.
#[derive(Default)]
struct Patience {
    is_over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Patience {
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// The output of `work`, unless patience ends before: then `work` is dropped where it is.
    fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        block_on(poll_fn(|cx| {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if self.is_over.load(Ordering::SeqCst) {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        }))
    }
}

/// One use of a connection.
fn use_once(pool: &Pool<Schedule>) -> Result<(), CheckOutError> {
    block_on(async {
        let mut connection = pool.check_out().await?;
        ping(&mut connection).await.unwrap();
        Ok(())
    })
}

/// A caller had a connection, or the error that the pool was cleared or closed.
fn assert_served_or_told(outcome: Result<(), CheckOutError>) {
    if let Err(error) = outcome {
        let CheckOutError::Pool(told) = &error else { panic!("{error}") };
        assert!(matches!(told.kind, CheckOutErrorKind::PoolCleared { .. } | CheckOutErrorKind::PoolClosed), "{error}");
    }
}

async fn ping(connection: &mut Connection<Schedule>) -> Result<(), CommandError> {
    connection.run_command("admin", rawdoc! { "ping": 1 }).await.map(drop)
}

#[test]
fn check_outs_of_several_threads_are_all_answered_though_one_gives_up_at_any_point() {
    try_schedules(|| {
        let (pool, network) = ready_pool("maxPoolSize=1");
        let patience = Arc::new(Patience::default());
        let (first, second, patient) = (pool.clone(), pool.clone(), Arc::clone(&patience));

        let users = [
            thread::spawn(move || use_once(&first).unwrap()),
            thread::spawn(move || {
                let whole = async {
                    let mut connection = second.check_out().await.unwrap();
                    ping(&mut connection).await.unwrap();
                };
                let _ = patient.during(whole);
            }),
            thread::spawn(move || patience.end()),
        ];

        use_once(&pool).unwrap();
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn a_connection_that_goes_back_on_another_thread_serves_who_waits() {
    try_schedules(|| {
        let (pool, network) = ready_pool("maxPoolSize=1");
        let connection = block_on(pool.check_out()).unwrap();
        let waiting = pool.clone();
        let waiter = thread::spawn(move || use_once(&waiting).unwrap());

        let returner = thread::spawn(move || drop(connection));

        returner.join().unwrap();
        waiter.join().unwrap();
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn a_clear_answers_all_who_wait_and_the_pool_serves_once_it_is_ready_again() {
    try_schedules(|| {
        let (pool, network) = ready_pool("maxPoolSize=1");
        let connection = block_on(pool.check_out()).unwrap();
        let users = [pool.clone(), pool.clone()].map(|pool| thread::spawn(move || use_once(&pool)));
        let clearing = pool.clone();

        let owner = thread::spawn(move || {
            clearing.clear(Clear::pool(Cause::new("the check failed"))).unwrap();
            clearing.ready();
        });

        drop(connection);
        owner.join().unwrap();
        users.into_iter().for_each(|user| assert_served_or_told(user.join().unwrap()));
        use_once(&pool).unwrap();
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn a_close_answers_all_who_wait() {
    try_schedules(|| {
        let (pool, network) = ready_pool("maxPoolSize=1");
        let connection = block_on(pool.check_out()).unwrap();
        let users = [pool.clone(), pool.clone()].map(|pool| thread::spawn(move || use_once(&pool)));
        let closing = pool.clone();

        let owner = thread::spawn(move || closing.close());

        drop(connection);
        owner.join().unwrap();
        users.into_iter().for_each(|user| assert_served_or_told(user.join().unwrap()));
        assert_eq!(pool.state(), PoolState::Closed);
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn events_come_in_order_and_a_handler_is_never_called_within_another_call() {
    try_schedules(|| {
        let told = Arc::new(Told::default());
        let handler = Arc::clone(&told);
        let (pool, network) = pool("maxPoolSize=2", move |event| handler.tell(event));
        pool.ready();
        let users = [pool.clone(), pool.clone()].map(|pool| thread::spawn(move || use_once(&pool)));
        let clearing = pool.clone();

        let owner = thread::spawn(move || clearing.clear(Clear::pool(Cause::new("the check failed"))).unwrap());

        owner.join().unwrap();
        users.into_iter().for_each(|user| assert_served_or_told(user.join().unwrap()));
        assert_nothing_is_left(pool, &network);
        told.assert_lawful();
    });
}

#[test]
fn a_subscription_hears_of_a_pool_whose_last_one_ended_as_it_began() {
    try_schedules(|| {
        let (options, _) = ClientOptions::parse("mongodb://db/").unwrap();
        let network = Arc::new(Network::default());
        let pool = block_on(Pool::builder(options).runtime(Schedule::new(&network)).build()).unwrap();
        drop(pool.subscribe(10));
        let telling = pool.clone();
        let teller = thread::spawn(move || telling.ready());

        let mut events = pool.subscribe(10);

        teller.join().unwrap();
        pool.clear(Clear::pool(Cause::new("the check failed"))).unwrap();
        let is_clear =
            |notice: &Notice| matches!(notice, Notice::Event { event: Event::Pool(PoolEvent::PoolCleared { .. }), .. });
        // Without one, nobody would wake this task again, which is a deadlock.
        while !block_on(events.next()).is_some_and(|notice| is_clear(&notice)) {}
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn the_timer_hears_each_call() {
    try_schedules(|| {
        let established = Arc::new(Patience::default());
        let is_there = Arc::clone(&established);
        let (pool, network) = pool("minPoolSize=1", move |event| {
            if matches!(event, Event::Pool(PoolEvent::ConnectionReady { .. })) {
                is_there.end();
            }
        });

        // The pool is populated by the timer, which may be about to sleep.
        pool.ready();

        assert_eq!(established.during(std::future::pending::<()>()), None);
        assert_nothing_is_left(pool, &network);
    });
}

#[test]
fn an_interruption_ends_a_command_that_is_never_answered() {
    try_schedules(|| {
        let (pool, network) = ready_pool("maxPoolSize=1");
        let mut connection = block_on(pool.check_out()).unwrap();
        network.fall_silent();
        let user = thread::spawn(move || block_on(ping(&mut connection)));

        pool.clear(Clear::pool(Cause::new("the check timed out")).interrupting()).unwrap();

        assert!(user.join().unwrap().is_err());
        assert_nothing_is_left(pool, &network);
    });
}

/// The events that a handler got.
#[derive(Default)]
struct Told {
    is_being_told: AtomicBool,
    events: Mutex<Vec<PoolEvent>>,
}

impl Told {
    fn tell(&self, event: &Event) {
        assert!(!self.is_being_told.swap(true, Ordering::SeqCst), "two threads tell at the same time");
        if let Event::Pool(event) = event {
            self.events.lock().unwrap().push(event.clone());
        }
        thread::yield_now();
        self.is_being_told.store(false, Ordering::SeqCst);
    }

    /// Each connection was created, ready and closed in this order; each check-out began and ended once.
    fn assert_lawful(&self) {
        let events = self.events.lock().unwrap();
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        let (mut created, mut ready, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for event in events.iter() {
            match event {
                PoolEvent::ConnectionCreated { connection_id } => created.push(*connection_id),
                PoolEvent::ConnectionReady { connection_id, .. } => {
                    assert!(created.contains(connection_id) && !closed.contains(connection_id), "{events:?}");
                    ready.push(*connection_id);
                }
                PoolEvent::ConnectionClosed { connection_id, .. } => {
                    assert!(created.contains(connection_id) && !closed.contains(connection_id), "{events:?}");
                    closed.push(*connection_id);
                }
                PoolEvent::ConnectionCheckOutStarted { check_out } => begun.push(*check_out),
                PoolEvent::ConnectionCheckOutFailed { check_out, .. } => {
                    assert!(begun.contains(check_out), "{events:?}");
                    ended.push(*check_out);
                }
                PoolEvent::ConnectionCheckedOut { check_out, connection_id, .. } => {
                    assert!(begun.contains(check_out), "{events:?}");
                    assert!(ready.contains(connection_id) && !closed.contains(connection_id), "{events:?}");
                    ended.push(*check_out);
                }
                PoolEvent::PoolCreated { .. }
                | PoolEvent::PoolReady
                | PoolEvent::PoolCleared { .. }
                | PoolEvent::PoolClosed
                | PoolEvent::ConnectionCheckedIn { .. }
                | _ => {}
            }
        }
        ended.sort_unstable();
        begun.sort_unstable();
        assert_eq!((begun.len(), &begun), (2, &ended), "{events:?}");
        assert_eq!(closed.len(), created.len(), "{events:?}");
    }
}
