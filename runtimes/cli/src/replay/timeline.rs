//! Prints the calls of a trace in their order, with what they returned and what followed.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, Note, Replay, Step, Trace};
use cmap_core::wire::bson::{Document, RawDocument};

/// Prints a line for each call, and one for each answer that says something, each note and each output.
pub(super) fn print(
    trace: &Trace,
    until: Option<Duration>,
    out: &mut dyn Write,
) -> io::Result<Result<(), Box<Divergence>>> {
    let Some(mut replay) = Replay::new(trace) else { return Ok(Ok(())) };
    loop {
        match replay.step() {
            Ok(Some(step)) if until.is_some_and(|until| age(step.at) > until) => return Ok(Ok(())),
            Ok(Some(step)) => print_step(trace, &step, out)?,
            Ok(None) => return Ok(Ok(())),
            Err(divergence) => return Ok(Err(divergence)),
        }
    }
}

fn print_step(trace: &Trace, step: &Step<'_>, out: &mut dyn Write) -> io::Result<()> {
    let seconds = age(step.at).as_secs_f64();
    let call = with_documents(format_args!("{:?} -> {:?}", step.input, step.answer));
    writeln!(out, "{:>7} {seconds:>14.6} s  {call}", step.number)?;
    for note in &step.notes {
        match note {
            Note::Holder(text) => writeln!(out, "{:26}by {}", "", trace.text(*text).unwrap_or("somebody"))?,
            Note::Taken(check_out, at) => writeln!(out, "{:26}{check_out:?} taken at {:?}", "", age(*at))?,
            other => writeln!(out, "{:26}{other:?}", "")?,
        }
    }
    let mut outputs = step.outputs.iter().map(|output| with_documents(format_args!("{output:?}")));
    outputs.try_for_each(|output| writeln!(out, "{:26}{output}", ""))
}

/// The text, with a document in place of each list of the bytes of one: the replies to hellos are kept as bytes.
fn with_documents(text: fmt::Arguments<'_>) -> String {
    let text = text.to_string();
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, list)) = rest.split_once('[') {
        shown.push_str(before);
        match list.split_once(']').and_then(|(bytes, after)| Some((document(bytes)?, after))) {
            Some((document, after)) => {
                shown.push_str(&document.to_string());
                rest = after;
            }
            None => {
                shown.push('[');
                rest = list;
            }
        }
    }
    shown + rest
}

/// The document of these bytes, if they are one.
fn document(list: &str) -> Option<Document> {
    let bytes: Vec<u8> = list.split(", ").map(|byte| byte.parse().ok()).collect::<Option<_>>()?;
    RawDocument::from_bytes(&bytes).ok()?.try_into().ok()
}

fn age(at: Instant) -> Duration {
    at.saturating_since(Instant::ORIGIN)
}

#[cfg(test)]
mod tests {
    use cmap_core::wire::bson::rawdoc;

    use super::*;

    #[test]
    fn the_bytes_of_a_hello_are_shown_as_a_document() {
        let hello = rawdoc! { "isWritablePrimary": true, "hosts": ["a:1"] };
        let text = format!("Succeeded {{ reply: {:?}, awaited: true, ids: [1, 2] }}", hello.as_bytes());

        let shown = with_documents(format_args!("{text}"));

        let reply = r#"{ "isWritablePrimary": true, "hosts": ["a:1"] }"#;
        assert_eq!(shown, format!("Succeeded {{ reply: {reply}, awaited: true, ids: [1, 2] }}"));
    }
}
