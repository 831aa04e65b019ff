//! Running test files: each test by its suite, its results to the report.

use std::io;
use std::path::{Path, PathBuf};

use super::cmap::engine::Engine;
use super::cmap::runner::{self, Plan, Trial};
use super::cmap::verdict::describe_value;
use super::content::{self, Content};
use super::official::Suite;
use super::report::{Entry, Report, Shown};
use super::{files, sdam, seed_list, selection, unified, uri};

/// Runs each suite under its name.
///
/// # Errors
/// Nothing more can be printed.
pub fn suites(report: &mut Report<'_>, engines: &[Box<dyn Engine>], suites: &[Suite], plan: &Plan) -> io::Result<()> {
    suites.iter().try_for_each(|suite| {
        report.begin_suite(&suite.name);
        match files::collect_all(&suite.paths) {
            Ok(files) => paths(report, engines, &files, plan),
            Err((path, problem)) => report.unusable(&path, &problem),
        }
    })
}

/// Runs the test files at or below `paths`: first all tests of a pool, many of them at once, then each file in its turn.
///
/// # Errors
/// Nothing more can be printed.
pub fn paths(report: &mut Report<'_>, engines: &[Box<dyn Engine>], paths: &[PathBuf], plan: &Plan) -> io::Result<()> {
    let files = paths.iter().map(|path| collect(report, path)).collect::<io::Result<Vec<_>>>()?.concat();
    let contents: Vec<_> = files.iter().map(|file| content::load(file)).collect();
    let cases: Vec<_> = contents.iter().filter_map(|content| content.as_ref().ok().and_then(Content::case)).collect();
    let mut trials = runner::run_cases(engines, &cases, plan).into_iter();
    for (file, content) in files.iter().zip(contents) {
        match content {
            Ok(Content::Case(case)) => {
                let trials = trials.next().unwrap_or_default();
                let entries = engines.iter().zip(trials).map(|(engine, trial)| entry(engine.name(), trial));
                report.result(file, &case.description, &entries.collect::<Vec<_>>())?;
            }
            Ok(Content::Uris(uris)) => {
                for (case, outcome) in uri::run(&uris) {
                    report.result(file, &case.description, &[outcome.into()])?;
                }
            }
            Ok(Content::Disclosures(cases)) => {
                for (case, outcome) in uri::run_disclosures(&cases) {
                    report.result(file, &case.description, &[outcome.into()])?;
                }
            }
            Ok(Content::Concerns(cases)) => {
                for (case, outcome) in uri::run_concerns(&cases) {
                    report.result(file, &case.description, &[outcome.into()])?;
                }
            }
            Ok(Content::Sdam(test)) => report.result(file, &test.description, &[sdam::run(&test).into()])?,
            Ok(Content::Rtt(name, test)) => report.result(file, &name, &[sdam::run_rtt(&test).into()])?,
            Ok(Content::SeedList(name, test)) => report.result(file, &name, &[seed_list::run(&test).into()])?,
            Ok(Content::Selection(name, test)) => report.result(file, &name, &[selection::run(&test).into()])?,
            Ok(Content::Window(test)) => {
                report.result(file, &test.description, &[selection::run_window(&test).into()])?;
            }
            Ok(Content::Unified(unified)) => {
                for (description, outcome) in unified::run(&unified, plan.seeds.clone()) {
                    report.result(file, description, &[outcome.into()])?;
                }
            }
            Err(problem) => report.unusable(file, &problem)?,
        }
    }
    Ok(())
}

/// The test files at `path`; none if it cannot be used, which is reported.
fn collect(report: &mut Report<'_>, path: &Path) -> io::Result<Vec<PathBuf>> {
    match files::collect(path) {
        Ok(files) => Ok(files),
        Err(problem) => report.unusable(path, &problem).map(|()| Vec::new()),
    }
}

fn entry(engine: &'static str, Trial { outcome, run }: Trial) -> Entry {
    let shown = run.map(|(round, run)| Shown {
        round,
        events: run.events.iter().map(describe_value).collect(),
        retaken: run.retaken,
    });
    Entry { engine: Some(engine), outcome, shown }
}
