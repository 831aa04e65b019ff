//! Finding test files, and reading them as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::json;
use super::problem::Problem;

/// All JSON files at or below `paths`, sorted by their place there. Of files at the same place below several paths the last path's counts.
///
/// # Errors
/// A path, which comes first, cannot be used.
pub fn collect_all(paths: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, Problem)> {
    let mut files = BTreeMap::new();
    for path in paths {
        for file in collect(path).map_err(|problem| (path.clone(), problem))? {
            let place = file.strip_prefix(path).unwrap_or(&file).to_owned();
            files.insert(place, file);
        }
    }
    Ok(files.into_values().collect())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_later_folder_replaces_that_of_an_earlier_one() {
        let root = std::env::temp_dir().join(format!("cmap-files-{}", std::process::id()));
        let [first, second] = ["first", "second"].map(|name| root.join(name));
        for file in [first.join("a.json"), first.join("deep/b.json"), second.join("deep/b.json"), second.join("c.json")]
        {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{}").unwrap();
        }

        let files = collect_all(&[first.clone(), second.clone()]).unwrap();
        fs::remove_dir_all(&root).unwrap();

        assert_eq!(files, [first.join("a.json"), second.join("c.json"), second.join("deep/b.json")]);
    }
}
