//! `cmap replay --perfetto` and `--html`: what the pictures of a known incident show. `.ci/pictures/run` looks at the same by
//! Perfetto's own schema and with a browser.

use std::fs;
use std::time::Duration;

use crate::incident::{self, LEAK};
use crate::program::{cmap, stderr, stdout};
use crate::track_events::{Events, Kind};
use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::CheckOutRequest;
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Input, Topology, TopologyOptions};
use cmap_core::trace::{Header, Question, Recorded, RecorderOptions, Trace, Wait, WaitEnd, explain};
use serde_json::Value;

const MILLISECOND: u64 = 1_000_000;

/// Both pictures of a trace.
fn draw(file: &[u8]) -> (Events, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.trace"), file).unwrap();
    let output = cmap(
        &["replay", "--perfetto", path("a.pftrace").to_str().unwrap(), "--html", path("a.html").to_str().unwrap()],
        &[&path("a.trace")],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("open it at https://ui.perfetto.dev"), "{}", stdout(&output));
    (Events::read(&fs::read(path("a.pftrace")).unwrap()), fs::read_to_string(path("a.html")).unwrap())
}

/// What the scripts of a page get.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn each_pool_is_a_process_with_its_slots_and_counters() {
    let (events, _) = draw(&incident::file());

    assert_eq!(events.processes(), ["waiting check-outs", "db-a.example:27017", "db-b.example:27017"]);
    let tracks = events.children("db-a.example:27017");
    let expected =
        ["state", "paused", "waiting", "in use", "available", "pending", "slot 1", "slot 2", "slot 3", "slot 4"];
    assert_eq!(tracks, expected);
}

#[test]
fn a_leaked_connection_is_a_slice_from_its_check_out_to_the_end() {
    let (events, _) = draw(&incident::file());

    let leaks: Vec<_> = events.slices().into_iter().filter(|it| it.name == LEAK).collect();
    let [leak] = &leaks[..] else { panic!("{leaks:?}") };
    assert_eq!((leak.from, leak.to), (60 * MILLISECOND, 400 * MILLISECOND));
    assert!(leak.track.starts_with("slot ") && leak.notes.contains(&("connection".into(), "3".into())), "{leak:?}");
}

#[test]
fn a_clear_leads_to_the_connections_that_it_closed() {
    let (events, _) = draw(&incident::file());

    let clears: Vec<_> = events.of(Kind::Instant).filter(|it| it.name == "cleared").collect();
    let [clear] = &clears[..] else { panic!("{clears:?}") };
    let cause = clear.notes.first().unwrap();
    assert!(cause.0 == "cause" && cause.1.ends_with("connection reset by peer"), "{cause:?}");
    assert_eq!(clear.begins.len(), 2, "two connections were available: {clear:?}");
    for flow in &clear.begins {
        let closed = events.of(Kind::Instant).find(|it| it.ends.contains(flow)).unwrap();
        assert_eq!((closed.name.as_str(), closed.at >= clear.at), ("closed: stale", true));
    }
}

#[test]
fn a_wait_leads_to_the_connection_that_it_got_and_is_cut_into_its_limits() {
    let trace = Trace::read(&incident::file()).unwrap();
    let waits = explain(&trace, Question::Slowest(usize::MAX)).unwrap();

    let (events, _) = draw(&incident::file());

    let drawn: Vec<_> = events.of(Kind::Begin).filter(|it| it.category == "wait").collect();
    assert_eq!(drawn.len(), waits.len());
    let delivered = waits.iter().filter(|wait| matches!(wait.end, WaitEnd::Delivered { .. }));
    let leading: Vec<_> = drawn.iter().filter(|it| !it.begins.is_empty()).collect();
    assert_eq!(leading.len(), delivered.count());
    for wait in leading {
        let used = events.of(Kind::Begin).find(|it| it.ends == wait.begins).unwrap();
        assert!(used.category == "in use" && used.at >= wait.at && used.name == wait.name, "{wait:?}, {used:?}");
    }
    let slices = events.slices();
    let limits: u64 = slices.iter().filter(|it| it.category == "limit").map(|it| it.to - it.from).sum();
    assert_eq!(u128::from(limits), waits.iter().map(|wait| wait.duration().as_nanos()).sum());
}

#[test]
fn a_pause_and_the_checks_are_told_with_their_causes() {
    let (events, _) = draw(&incident::file());

    let slices = events.slices();
    let pause = slices.iter().find(|it| it.name == "paused" && it.from == 230 * MILLISECOND).unwrap();
    assert_eq!(pause.to, 285 * MILLISECOND);
    assert!(pause.notes[0].1.contains("connection reset by peer"), "{pause:?}");
    let failed = events.of(Kind::Instant).filter(|it| it.name == "check failed");
    assert_eq!(failed.map(|it| it.notes[0].1.as_str()).collect::<Vec<_>>(), ["connection refused"; 3]);
}

#[test]
fn the_page_has_every_wait_with_the_words_of_its_explanation() {
    let trace = Trace::read(&incident::file()).unwrap();
    let waits = explain(&trace, Question::Slowest(usize::MAX)).unwrap();

    let (_, page) = draw(&incident::file());

    let data = data(&page);
    let shown = data["waits"].as_array().unwrap();
    let is_brief =
        |wait: &&Wait| wait.duration() < Duration::from_millis(1) && matches!(wait.end, WaitEnd::Delivered { .. });
    let (brief, listed): (Vec<_>, Vec<_>) = waits.iter().partition(is_brief);
    assert_eq!(shown.len(), listed.len());
    assert_eq!((&data["allWaits"], &data["briefWaits"]), (&waits.len().into(), &brief.len().into()));
    assert!(!brief.is_empty(), "the incident has some");
    for wait in listed {
        let id = wait.call.unwrap().to_string();
        let it = shown.iter().find(|it| it["id"] == id.as_str()).unwrap();
        let lengths =
            it["intervals"].as_array().unwrap().iter().map(|it| it[2].as_u64().unwrap() - it[1].as_u64().unwrap());
        assert_eq!(u128::from(lengths.sum::<u64>()), wait.duration().as_nanos());
        assert_eq!(it["cause"].as_str(), wait.cause().map(|cause| cause.limit.name()));
    }
    assert!(shown.iter().any(|it| it["outcome"] == "failed" && it["explanation"].as_str().unwrap().contains(LEAK)));
}

#[test]
fn no_text_of_a_trace_can_leave_the_data_of_a_page_and_the_page_asks_for_nothing() {
    let (_, page) = draw(&incident::file());

    assert!(
        !page.contains(LEAK) && page.contains("\\u003c/script>\\u003cimg src=x"),
        "the label stands there as it is"
    );
    assert_eq!(page.matches("<script").count(), 3);
    assert!(page.contains("default-src 'none'") && !page.contains("unsafe-inline"));
    assert!(!["http://", "https://", "src=\"", "@import", "url("].iter().any(|it| page.contains(it)));
}

#[test]
fn of_very_many_waits_a_page_shows_the_longest_and_says_so() {
    let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("db.example", 27017)]);
    let mut topology: Recorded<()> = Topology::new(options, PoolOptions::default()).unwrap().into();
    topology.start_recording(RecorderOptions::default());
    topology.call(Instant::ORIGIN, Input::Open, None);
    for millis in 0..600 {
        let _ = topology.check_out(Instant::from_millis(millis), Criteria::WRITABLE, CheckOutRequest::default());
    }
    let mut header = Header::default();
    header.written_at = Instant::ORIGIN + Duration::from_secs(1);
    let file = topology.recording().unwrap().encode(&header);

    let (events, page) = draw(&file);

    let data = data(&page);
    assert_eq!((data["waits"].as_array().unwrap().len(), data["allWaits"].as_u64()), (500, Some(600)));
    // Those that began first have waited longest.
    assert_eq!(data["waits"][499]["began"].as_u64(), Some(499 * MILLISECOND));
    assert_eq!(events.of(Kind::Begin).filter(|it| it.category == "wait").count(), 600);
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.trace");
    fs::write(&trace, incident::file()).unwrap();

    let output = cmap(&["replay", "--html", "/nowhere/a.html"], &[&trace]);
    let contradiction = cmap(&["replay", "--html", "a.html", "--timeline"], &[&trace]);

    assert!(stderr(&output).starts_with("error: /nowhere/a.html cannot be written: "), "{}", stderr(&output));
    assert_eq!((output.status.code(), contradiction.status.code()), (Some(2), Some(2)));
}
