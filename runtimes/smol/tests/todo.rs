//! The example `smol-todo`, with commands from a text.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/todo.rs"]
mod todo;

use cmap_conformance::LocalServer;

fn run(uri: &str, commands: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let outcome = smol::block_on(todo::run(uri, commands.as_bytes(), &mut out));
    outcome.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn items_are_added_done_and_listed_through_several_batches() {
    let server = LocalServer::start();

    let text = run(&server.uri(""), "list\nadd milk; bread; tea\nadd jam\ndone 2\nlist\ndone 9\nquit\nlist\n");

    let expected = "nothing to do\n1 added\n2 added\n3 added\n4 added\n2 done\n\
                    [ ] 1 milk\n[x] 2 bread\n[ ] 3 tea\n[ ] 4 jam\n\
                    failed: there is no item 9\nbye; 0 connections were still in use\n";
    assert_eq!(text.unwrap(), expected);
}

#[test]
fn items_are_there_the_next_time() {
    let server = LocalServer::start();
    run(&server.uri(""), "add milk").unwrap();

    let text = run(&server.uri(""), "add bread\nlist").unwrap();

    assert!(text.starts_with("2 added\n[ ] 1 milk\n[ ] 2 bread\n"), "{text}");
}

#[test]
fn a_server_that_is_not_there_is_told_within_the_time_limit() {
    // Nothing listens at port 1.
    let error = run("mongodb://127.0.0.1:1/?timeoutMS=200", "list").unwrap_err();

    assert!(error.contains("127.0.0.1:1 is Unknown (connecting failed"), "{error}");
}
