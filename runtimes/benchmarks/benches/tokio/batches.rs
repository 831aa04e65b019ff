//! Inserts of many documents of 1 KiB: one operation with a sequence, the same documents in commands that are cut by hand, and the official
//! driver's `insert_many`.
//!
//! What a document costs is the user and system time of the client's process. Each contender has a process of its own: half of the time
//! is the system's work for large buffers, which depends on what a process has allocated before.
//!
//! `.ci/bench tokio-batches`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::env;
use std::process::{Command, ExitCode};

use cmap_benchmarks::figures::{Effort, Rounds};
use cmap_benchmarks::report::{Report, Table};
use cmap_benchmarks::server::{Kind, Server};
use cmap_tokio::Client;
use cmap_tokio::bson::{RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use tokio::runtime::Builder;

/// How many documents a round inserts.
const DOCUMENTS: u32 = 100_000;

/// How many of them fit into one command that is cut by hand.
const BY_HAND: usize = 15_000;

/// Rounds of all contenders, and within each of a process. The first one of a process does not count.
const ROUNDS: usize = 15;
const ROUNDS_OF_PROCESS: usize = 4;

/// How much more than commands that are cut by hand a sequence may cost.
const BAR: f64 = 1.15;

/// The variables by which a process is a client: its connection string, and who inserts.
const URI: &str = "CMAP_BATCHES_URI";
const CONTENDER: &str = "CMAP_BATCHES_CONTENDER";

const CONTENDERS: [&str; 3] = ["one sequence", "commands cut by hand", "official driver"];

fn main() -> ExitCode {
    let Ok(uri) = env::var(URI) else { return cmap_benchmarks::program(compare) };
    println!("{}", run(&uri, &env::var(CONTENDER).unwrap()));
    ExitCode::SUCCESS
}

fn compare(report: &mut Report) {
    let server = Server::start(Kind::Primary);
    let mut works = <[Rounds; 3]>::default();
    for round in 0..ROUNDS {
        for place in [0, 1, 2].map(|place| (place + round) % 3) {
            let mut client = Command::new(env::current_exe().unwrap());
            let client = client.env(URI, server.uri("")).env(CONTENDER, CONTENDERS[place]);
            let printed = String::from_utf8(client.output().unwrap().stdout).unwrap();
            works[place].push(printed.trim().parse().unwrap());
        }
    }

    let mut table = Table::new(&["inserted by", "µs of work for a document", "ratio of the sequence"]);
    for (name, work) in CONTENDERS.iter().zip(&works) {
        table.row([(*name).into(), work.show(2), works[0].ratio_to(work).show(2)]);
    }
    table.print(&format!("inserts of {DOCUMENTS} documents of 1 KiB, {ROUNDS} rounds in turn, median (quartiles)"));
    let ratio = works[0].ratio_to(&works[1]);
    let what = format!("a sequence: at most {BAR} of the work of commands that are cut by hand");
    report.bar(what, ratio.show(2), ratio.median() <= BAR);
}

/// Inserts; returns the microseconds of work for a document.
fn run(uri: &str, contender: &str) -> f64 {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(uri)).unwrap();
    let official = runtime.block_on(mongodb::Client::with_uri_str(uri)).unwrap();
    let items = official.database("shop").collection::<RawDocumentBuf>("items");
    let insert = || {
        match contender {
            "one sequence" => runtime.block_on(by_sequence(&client)),
            "commands cut by hand" => runtime.block_on(by_hand(&client)),
            _ => drop(runtime.block_on(async { items.insert_many(documents()).await.unwrap() })),
        }
        DOCUMENTS
    };
    insert();
    let mut effort = Effort::default();
    (1..ROUNDS_OF_PROCESS).for_each(|_| effort.round(insert));
    effort.work.median()
}

async fn by_sequence(client: &Client) {
    let insert = client.operation(("shop", doc! { "insert": "items" }));
    insert.sequence("documents", documents()).run().await.unwrap();
}

async fn by_hand(client: &Client) {
    let mut documents = documents().peekable();
    while documents.peek().is_some() {
        let batch: RawArrayBuf = documents.by_ref().take(BY_HAND).collect();
        client.run(("shop", rawdoc! { "insert": "items", "documents": batch })).await.unwrap();
    }
}

fn documents() -> impl Iterator<Item = RawDocumentBuf> {
    let text = "x".repeat(1000);
    (0..i64::from(DOCUMENTS)).map(move |id| rawdoc! { "_id": id, "text": text.as_str() })
}
