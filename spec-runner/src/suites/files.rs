//! Finding test files, and reading them as JSON.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::json;
use super::problem::Problem;

/// All JSON files at or below `path`, sorted; `path` itself if it is a file.
pub fn collect(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if metadata.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !metadata.is_dir() {
        return Err(Problem::of_file("is neither a file nor a folder"));
    }
    let mut files = Vec::new();
    collect_into(path, &mut files)?;
    if files.is_empty() {
        return Err(Problem::of_file("holds no JSON file"));
    }
    files.sort();
    Ok(files)
}

/// Links to folders are not followed: they could lead back here.
fn collect_into(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Problem> {
    let in_folder = |error: &std::io::Error| Problem::of_file(format!("{} cannot be read: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(|error| in_folder(&error))? {
        let entry = entry.map_err(|error| in_folder(&error))?;
        let path = entry.path();
        if entry.file_type().map_err(|error| in_folder(&error))?.is_dir() {
            collect_into(&path, files)?;
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// The JSON value in the file at `path`.
pub fn read(path: &Path) -> Result<Value, Problem> {
    json::parse(&fs::read_to_string(path).map_err(|error| unreadable(&error))?)
}

/// The problem of a file or folder that cannot be read.
pub(super) fn unreadable(error: &std::io::Error) -> Problem {
    Problem::of_file(format!("cannot be read: {error}"))
}
