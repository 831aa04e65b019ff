//! A driver of the pool over threads and channels: a thousand threads share ten connections.
//!
//! One thread owns the pool and follows the driving rule; all other threads send it calls. Run it with `cargo run
//! --example threads`.

#![expect(clippy::expect_used, reason = "what cannot go wrong in this example ends it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant as Clock};

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, CheckOutError, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Output, Pool, PoolState, Stats,
};
use cmap_core::time::Instant;

const THREADS: usize = 1000;
const ROUNDS: usize = 20;

/// In place of a real driver's socket: a counter of its uses.
#[derive(Debug)]
struct Socket {
    uses: usize,
}

type Answer = Result<Delivery<Socket>, Arc<CheckOutError>>;

enum Call {
    CheckOut(Sender<Answer>),
    CheckIn(Delivery<Socket>),
    Established(Handle, Socket),
    Close,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(10);
    options.wait_queue_timeout = Some(Duration::from_secs(60));
    let pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN)?;

    let (calls, receiver) = channel();
    let own_calls = calls.clone();
    let driver = thread::spawn(move || drive(pool, &receiver, &own_calls));

    let workers: Vec<_> =
        (0..THREADS).map(|_| calls.clone()).map(|calls| thread::spawn(move || work(&calls))).collect();
    let done: usize = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
    calls.send(Call::Close)?;
    let (uses, stats) = driver.join().map_err(|_| "the driver panicked")?;

    println!("{done} operations on {} connections, at most {} waited", stats.created, stats.high_water.waiting);
    assert_eq!((done, uses), (THREADS * ROUNDS, THREADS * ROUNDS), "an operation was lost");
    assert_eq!((stats.checked_out, stats.checked_in), (done as u64, done as u64), "a connection was lost");
    Ok(())
}

/// A user of the pool: check out, use, check in.
fn work(calls: &Sender<Call>) -> usize {
    let round = || -> Option<()> {
        let (sender, answer) = channel();
        calls.send(Call::CheckOut(sender)).ok()?;
        let mut delivery = answer.recv().ok()?.ok()?;
        delivery.socket.uses += 1;
        calls.send(Call::CheckIn(delivery)).ok()
    };
    (0..ROUNDS).filter_map(|_| round()).count()
}

fn tell(caller: Option<Sender<Answer>>, answer: Answer) {
    caller.expect("every check-out ends once").send(answer).expect("the callers of this example stay");
}

/// A call of the pool may return a connection at once: for its caller, or for the next waiter.
fn deliver(waiting: &mut BTreeMap<CheckOutId, Sender<Answer>>, delivery: Option<Delivery<Socket>>) {
    if let Some(delivery) = delivery {
        tell(waiting.remove(&delivery.check_out), Ok(delivery));
    }
}

/// The driver of the pool. Returns how often all sockets were used together, and the pool's counts.
#[expect(clippy::disallowed_methods, reason = "a driver is where time comes from")]
fn drive(mut pool: Pool<Socket>, calls: &Receiver<Call>, own_calls: &Sender<Call>) -> (usize, Stats) {
    let start = Clock::now();
    let now = || Instant::ORIGIN + start.elapsed();
    let (mut waiting, mut uses) = (BTreeMap::new(), 0);
    pool.ready(now());
    loop {
        while let Some(output) = pool.poll_output() {
            match output {
                Output::Action(Action::Connect { connection }) => {
                    let calls = own_calls.clone();
                    thread::spawn(move || calls.send(Call::Established(connection, Socket { uses: 0 })));
                }
                Output::Action(Action::Deliver { check_out, connection, socket }) => {
                    deliver(&mut waiting, Some(Delivery { check_out, connection, socket }));
                }
                Output::Action(Action::Fail { check_out, error }) => tell(waiting.remove(&check_out), Err(error)),
                Output::Action(Action::Close { socket, .. }) => uses += socket.uses,
                // These sockets have no peer that could hang up, and this pool is neither cleared nor warmed up.
                Output::Action(
                    Action::Check { .. } | Action::Refresh { .. } | Action::Interrupt { .. } | Action::WarmedUp { .. },
                )
                | Output::Event(_) => {}
            }
        }
        if pool.state() == PoolState::Closed && pool.counts().total() == 0 {
            return (uses, pool.stats());
        }
        let patience = pool.poll_timeout().map_or(Duration::MAX, |timeout| timeout.at.saturating_since(now()));
        match calls.recv_timeout(patience) {
            Ok(Call::CheckOut(sender)) => {
                let (check_out, delivery) = pool.check_out(now(), CheckOutRequest::default());
                waiting.insert(check_out, sender);
                deliver(&mut waiting, delivery);
            }
            Ok(Call::CheckIn(Delivery { check_out, connection, socket })) => {
                let checked_in = pool.check_in(now(), check_out, connection, socket, Condition::Usable);
                deliver(&mut waiting, checked_in.expect("the connection is in use").delivery());
            }
            Ok(Call::Established(connection, socket)) => {
                pool.handle_established(now(), connection, socket).expect("the connection is pending");
            }
            Ok(Call::Close) => pool.close(now()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => pool.handle_timeout(now()),
        }
    }
}
