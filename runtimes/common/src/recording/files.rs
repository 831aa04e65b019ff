//! A directory of traces: names that are never taken twice, files for their owner alone, and no more of them than a hundred.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most files of recorders in a directory, of all processes. Beyond that the oldest is deleted.
const MOST: usize = 100;

/// How many names are tried.
const TRIES: u32 = 1_000;

/// Writes a file of a process that began to record at `began`, the time since 1970; `number` gives another number each time.
pub(super) fn write(
    directory: &Path,
    began: Duration,
    mut number: impl FnMut() -> u32,
    file: &[u8],
) -> io::Result<PathBuf> {
    for _ in 0..TRIES {
        let name = format!("cmap-{}-{}-{}", std::process::id(), began.as_secs(), number());
        let (path, unfinished) = (directory.join(name.clone() + ".trace"), directory.join(name + ".part"));
        // Under another name first, so that a file with the right name is always complete. Who has that one has both.
        let mut part = match create(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            part => part?,
        };
        if path.exists() {
            fs::remove_file(&unfinished)?;
            continue;
        }
        let written = part.write_all(file).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            // A disk that is full has room again.
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        // The trace is there, whatever becomes of older ones.
        let _ = delete_oldest(directory);
        return Ok(path);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A new file, which others cannot read: a trace has names of hosts and labels.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn delete_oldest(directory: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_of_recorder(&entry.file_name().to_string_lossy()) {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(MOST);
    files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Whether a file has a name that [`write`] gives: `cmap-`, three numbers, and one of its endings.
fn is_of_recorder(name: &str) -> bool {
    let numbers = name.strip_prefix("cmap-").and_then(|name| name.rsplit_once('.'));
    let Some((numbers, "trace" | "part")) = numbers else { return false };
    let mut numbers = numbers.split('-');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    numbers.by_ref().take(3).filter(|part| is_number(part)).count() == 3 && numbers.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty directory, until it is dropped.
    struct Directory(PathBuf);

    impl Directory {
        fn named(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cmap-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn counting() -> impl FnMut() -> u32 {
        let mut last = 0;
        move || {
            last += 1;
            last
        }
    }

    const BEGAN: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn a_process_with_the_same_number_and_start_overwrites_no_file() {
        let directory = Directory::named("again");

        let first = write(&directory.0, BEGAN, counting(), b"first").unwrap();
        let second = write(&directory.0, BEGAN, counting(), b"second").unwrap();

        assert_ne!(first, second);
        assert_eq!(fs::read(first).unwrap(), b"first");
        assert!(second.to_string_lossy().ends_with("-1700000000-2.trace"), "{second:?}");
        assert_eq!(directory.files(), 2, "and nothing unfinished");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;

        let directory = Directory::named("owner");

        let path = write(&directory.0, BEGAN, counting(), b"trace").unwrap();

        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_has_a_hundred_files_at_most_and_keeps_those_of_others() {
        let directory = Directory::named("many");
        for other in ["cmap-notes.trace", "other.trace", "cmap-1-2.trace", "cmap-1-2-3-4.trace"] {
            fs::write(directory.0.join(other), "").unwrap();
        }
        let mut numbers = counting();

        for _ in 0..MOST + 5 {
            write(&directory.0, BEGAN, &mut numbers, b"trace").unwrap();
        }

        assert_eq!(directory.files(), MOST + 4);
    }
}
