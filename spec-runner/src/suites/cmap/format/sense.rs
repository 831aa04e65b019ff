//! Whether a test's words make sense together: threads, labels and services that operations name must exist.
//!
//! Only certain mistakes are refused. Steps on the main thread happen in the order of the file, so the names that they
//! use must be introduced before them; a step on another thread may happen after anything, so its names may be
//! introduced anywhere.

use alloc::collections::BTreeSet;

use super::{Case, ConnectionName, Operation, Step};
use crate::suites::matching::is_anything;
use crate::suites::place::Place;
use crate::suites::problem::Problem;

/// Finds the first name in `case` that cannot mean anything.
pub(super) fn check(case: &Case) -> Result<(), Problem> {
    let mut seen = Names { threads: BTreeSet::new(), labels: BTreeSet::new() };
    let mut all = Names { threads: BTreeSet::new(), labels: BTreeSet::new() };
    for step in &case.operations {
        all.add(step);
    }
    for (index, step) in case.operations.iter().enumerate() {
        let place = Place::top().key("operations").index(index);
        let known = if step.thread.is_none() { &seen } else { &all };
        check_thread(&place, step, &seen)?;
        check_operation(&place, step, known, case)?;
        seen.add(step);
    }
    check_users(case)?;
    check_events(case)
}

/// The names that steps introduce.
struct Names<'a> {
    threads: BTreeSet<&'a str>,
    labels: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn add(&mut self, step: &'a Step) {
        match &step.operation {
            Operation::Start { target } => {
                self.threads.insert(target);
            }
            Operation::CheckOut { label: Some(label), .. } => {
                self.labels.insert(label);
            }
            Operation::CheckOut { .. }
            | Operation::Wait { .. }
            | Operation::WaitForThread { .. }
            | Operation::WaitForEvent { .. }
            | Operation::CheckIn { .. }
            | Operation::Clear { .. }
            | Operation::Close {}
            | Operation::Ready {}
            | Operation::Resize { .. }
            | Operation::EndAffinity { .. }
            | Operation::RenewCredential { .. }
            | Operation::ReplaceConnections { .. }
            | Operation::WarmUp { .. }
            | Operation::Resume {}
            | Operation::Cancel { .. }
            | Operation::HangUp { .. }
            | Operation::Network { .. }
            | Operation::FailPoint { .. }
            | Operation::AssertCounts { .. } => {}
        }
    }

    fn check_label(&self, place: &Place, label: &str) -> Result<(), Problem> {
        if self.labels.contains(label) {
            return Ok(());
        }
        Err(Problem::at(place, format!("no earlier checkOut has the label \"{label}\"")))
    }
}

/// Steps are handed to threads in the order of the file, so the thread must have been started before.
fn check_thread(place: &Place, step: &Step, seen: &Names<'_>) -> Result<(), Problem> {
    match &step.thread {
        Some(thread) if !seen.threads.contains(thread.as_str()) => {
            Err(Problem::at(&place.key("thread"), format!("thread \"{thread}\" was never started before")))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_operation(place: &Place, step: &Step, known: &Names<'_>, case: &Case) -> Result<(), Problem> {
    match &step.operation {
        Operation::Start { target } => {
            let starts = |other: &Step| matches!(&other.operation, Operation::Start { target: name } if name == target);
            let first = case.operations.iter().find(|other| starts(other));
            if first.is_none_or(|first| core::ptr::eq(first, step)) {
                Ok(())
            } else {
                Err(Problem::at(&place.key("target"), format!("thread \"{target}\" is started twice")))
            }
        }
        Operation::WaitForThread { target } | Operation::Cancel { target } => {
            let place = place.key("target");
            if step.thread.as_ref() == Some(target) {
                Err(Problem::at(&place, format!("thread \"{target}\" would wait for itself")))
            } else if known.threads.contains(target.as_str()) {
                Ok(())
            } else {
                Err(Problem::at(&place, format!("thread \"{target}\" was never started before")))
            }
        }
        Operation::CheckIn { connection: label, .. }
        | Operation::HangUp { connection: ConnectionName::Label(label), .. } => {
            known.check_label(&place.key("connection"), label)
        }
        Operation::HangUp { connection: ConnectionName::Id(0), .. } => {
            Err(Problem::at(&place.key("connection"), "connections are numbered from 1"))
        }
        Operation::Clear { service: Some(service), .. } => check_service(&place.key("service"), service, case),
        Operation::CheckOut { user: Some(user), .. } => check_user(&place.key("user"), user, case),
        Operation::CheckOut { .. }
        | Operation::HangUp { .. }
        | Operation::Clear { .. }
        | Operation::Wait { .. }
        | Operation::WaitForEvent { .. }
        | Operation::Close {}
        | Operation::Ready {}
        | Operation::Resize { .. }
        | Operation::EndAffinity { .. }
        | Operation::RenewCredential { .. }
        | Operation::ReplaceConnections { .. }
        | Operation::WarmUp { .. }
        | Operation::Resume {}
        | Operation::Network { .. }
        | Operation::FailPoint { .. }
        | Operation::AssertCounts { .. } => Ok(()),
    }
}

fn check_events(case: &Case) -> Result<(), Problem> {
    for (index, event) in case.events.iter().enumerate() {
        let place = Place::top().key("events").index(index);
        if case.ignores(event.event_type()) {
            let name = event.event_type().name();
            return Err(Problem::at(&place, format!("{name} is expected and ignored at once")));
        }
        match event.fields().get("serviceId") {
            Some(service) if !is_anything(service) => {
                check_service(&place.key("serviceId"), service.as_str().unwrap_or_default(), case)?;
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn check_user(place: &Place, user: &str, case: &Case) -> Result<(), Problem> {
    if case.server.users.contains_key(user) {
        return Ok(());
    }
    Err(Problem::at(place, format!("server.users does not name \"{user}\"")))
}

fn check_users(case: &Case) -> Result<(), Problem> {
    if case.server.auth || case.server.users.is_empty() {
        return Ok(());
    }
    Err(Problem::at(&Place::top().key("server").key("users"), "users need a server that has `auth`: true"))
}

fn check_service(place: &Place, service: &str, case: &Case) -> Result<(), Problem> {
    if case.server.service_ids.iter().any(|known| known == service) {
        return Ok(());
    }
    Err(Problem::at(place, format!("server.serviceIds does not name \"{service}\"")))
}
