//! The command of a change stream: an aggregate whose first stage is `$changeStream`, and what becomes of it when the stream begins elsewhere.

use alloc::borrow::ToOwned;

use bson::raw::RawArray;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, cstr};

/// The options of the stage that say where a stream begins. It has one of them at most.
const START_POINTS: [&str; 3] = ["startAfter", "resumeAfter", "startAtOperationTime"];

/// Where a stream begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum StartPoint<'a> {
    StartAfter(&'a RawDocument),
    ResumeAfter(&'a RawDocument),
    AtOperationTime(Timestamp),
}

/// The options of the stage. `None` if the command is no aggregate that begins with it, or is malformed.
pub(super) fn stage(command: &RawDocument) -> Option<&RawDocument> {
    let (name, _) = command.iter().next()?.ok()?;
    let stages = command.get_array("pipeline").ok()?;
    let first = stages.into_iter().next()?.ok()?.as_document()?;
    let (operator, options) = first.iter().next()?.ok()?;
    let options = options.as_document()?;
    let is_one = name.as_str() == "aggregate" && operator.as_str() == "$changeStream";
    let is_sound = is_well_formed(command) && stages.into_iter().all(|stage| stage.is_ok()) && is_well_formed(options);
    (is_one && is_sound).then_some(options)
}

fn is_well_formed(document: &RawDocument) -> bool {
    document.iter().all(|element| element.is_ok())
}

/// The command, with `cursor: {}` behind its own fields if it has none (CS-1).
pub(super) fn with_cursor(command: &RawDocument) -> RawDocumentBuf {
    let mut command = command.to_owned();
    if !matches!(command.get("cursor"), Ok(Some(_))) {
        command.append(cstr!("cursor"), RawDocumentBuf::new());
    }
    command
}

/// The command of a stream that begins at `point`; `None` leaves it as it is.
pub(super) fn starting_at(command: &RawDocument, point: Option<StartPoint<'_>>) -> RawDocumentBuf {
    let Some(point) = point else { return command.to_owned() };
    let mut changed = RawDocumentBuf::new();
    for (name, value) in command.iter().flatten() {
        if let RawBsonRef::Array(stages) = value
            && name.as_str() == "pipeline"
        {
            changed.append(name, pipeline(stages, point));
        } else {
            changed.append(name, value);
        }
    }
    changed
}

fn pipeline(stages: &RawArray, point: StartPoint<'_>) -> RawArrayBuf {
    let mut changed = RawArrayBuf::new();
    for (index, stage) in stages.into_iter().flatten().enumerate() {
        match stage.as_document().and_then(|stage| stage.get_document("$changeStream").ok()) {
            Some(options) if index == 0 => {
                let mut stage = RawDocumentBuf::new();
                stage.append(cstr!("$changeStream"), options_at(options, point));
                changed.push(stage);
            }
            _ => changed.push(stage),
        }
    }
    changed
}

fn options_at(options: &RawDocument, point: StartPoint<'_>) -> RawDocumentBuf {
    let mut changed = RawDocumentBuf::new();
    for (name, value) in options.iter().flatten() {
        if !START_POINTS.contains(&name.as_str()) {
            changed.append(name, value);
        }
    }
    match point {
        StartPoint::StartAfter(token) => changed.append(cstr!("startAfter"), token),
        StartPoint::ResumeAfter(token) => changed.append(cstr!("resumeAfter"), token),
        StartPoint::AtOperationTime(time) => changed.append(cstr!("startAtOperationTime"), time),
    }
    changed
}
