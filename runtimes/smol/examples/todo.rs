//! A to-do list in MongoDB: serde structs, a unique index, writes of any number, a cursor, time limits, and an end that leaves nothing
//! behind.
//!
//! ```sh
//! cargo run -p cmap-smol --example smol-todo -- mongodb://localhost/
//! ```
//!
//! reads commands, one a line: `add TEXT; TEXT; ..`, `done NUMBER`, `list`. The end of the input, or `quit`, ends it.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use cmap_smol::bson::rawdoc;
use cmap_smol::{Client, ClientOptions, FoundAndModified, Written};
use serde::{Deserialize, Serialize};
use smol::io::{AsyncBufRead, AsyncBufReadExt};
use smol::stream::StreamExt;

const DATABASE: &str = "todo";

/// For each operation: the wait for a connection, and each command. A connection string with timeoutMS has its own.
const LIMIT: Duration = Duration::from_secs(5);

/// How long commands that are under way at the end may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Documents of a batch. A small number, to show that there are several.
const BATCH: i32 = 3;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A document of the collection `items`.
#[derive(Debug, Serialize, Deserialize)]
struct Item {
    number: i32,
    text: String,
    done: bool,
}

/// The to-do list.
struct Todo {
    client: Client,
}

#[derive(Deserialize)]
struct Counter {
    last: i32,
}

fn main() -> ExitCode {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost/".into());
    let input = smol::io::BufReader::new(smol::Unblock::new(std::io::stdin()));
    match smol::block_on(run(&uri, input, &mut std::io::stdout())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Carries out the commands in `input`. A command that fails is told of, and the next one may succeed.
pub(crate) async fn run(uri: &str, input: impl AsyncBufRead + Unpin, out: &mut impl Write) -> Result<()> {
    let (mut options, warnings) = ClientOptions::parse(uri)?;
    warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))?;
    options.timeout.get_or_insert(LIMIT);
    let todo = Todo { client: Client::with_options(options).await? };
    todo.prepare().await?;
    let mut lines = input.lines();
    while let Some(line) = lines.next().await.transpose()? {
        let (command, argument) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let outcome = match command {
            "add" => todo.add(argument).await,
            "done" => todo.finish(argument).await,
            "list" => todo.list().await,
            "quit" => break,
            _ => Ok("commands are: add TEXT; TEXT; .., done NUMBER, list, quit".into()),
        };
        match outcome {
            Ok(answer) => writeln!(out, "{answer}")?,
            Err(error) => writeln!(out, "failed: {error}")?,
        }
    }
    let cut_off = todo.client.close(PATIENCE).await?;
    Ok(writeln!(out, "bye; {cut_off} connections were still in use")?)
}

impl Todo {
    /// Makes the index by which no two items have the same number.
    async fn prepare(&self) -> Result<()> {
        let index = rawdoc! { "key": { "number": 1 }, "name": "number", "unique": true };
        let mut connection = self.client.check_out().await?;
        connection.run_command(DATABASE, rawdoc! { "createIndexes": "items", "indexes": [index] }).await?;
        Ok(())
    }

    async fn add(&self, texts: &str) -> Result<String> {
        let texts: Vec<_> = texts.split(';').map(str::trim).collect();
        let last = self.take_numbers(i32::try_from(texts.len())?).await?;
        let numbers = last + 1 - i32::try_from(texts.len())?..=last;
        let items =
            numbers.clone().zip(texts).map(|(number, text)| Item { number, text: text.to_owned(), done: false });
        let insert = self.client.operation((DATABASE, rawdoc! { "insert": "items" }));
        insert.sequence("documents", items).with_ids().run().await?;
        let added: Vec<_> = numbers.map(|number| format!("{number} added")).collect();
        Ok(added.join("\n"))
    }

    async fn finish(&self, number: &str) -> Result<String> {
        let number: i32 = number.parse().map_err(|_| "a number is needed, as in: done 1")?;
        let update = rawdoc! { "q": { "number": number }, "u": { "$set": { "done": true } } };
        let mut connection = self.client.check_out().await?;
        let reply = connection.run_command(DATABASE, rawdoc! { "update": "items", "updates": [update] }).await?;
        match reply.parse::<Written>()?.n {
            0 => Err(format!("there is no item {number}").into()),
            _ => Ok(format!("{number} done")),
        }
    }

    async fn list(&self) -> Result<String> {
        let find = rawdoc! { "find": "items", "sort": { "number": 1 }, "batchSize": BATCH };
        let items = self.client.operation((DATABASE, find)).cursor().await?;
        let mut items = items.with_type::<Item>();
        let mut lines = Vec::new();
        while let Some(Item { number, text, done }) = items.try_next().await? {
            lines.push(format!("[{}] {number} {text}", if done { "x" } else { " " }));
        }
        Ok(if lines.is_empty() { "nothing to do".into() } else { lines.join("\n") })
    }

    /// The last of so many numbers that no other items have, though others add items at the same time.
    async fn take_numbers(&self, count: i32) -> Result<i32> {
        let update = rawdoc! { "$inc": { "last": count } };
        let command = rawdoc! {
            "findAndModify": "counters", "query": { "_id": "items" }, "update": update, "upsert": true, "new": true,
        };
        let reply = self.client.run((DATABASE, command)).await?;
        let counter = reply.parse::<FoundAndModified<Counter>>()?.value.ok_or("the server has made no counter")?;
        Ok(counter.last)
    }
}
