//! Secrets, from files of their own or from the environment.

use std::env;
use std::path::Path;

use zeroize::Zeroizing;

use super::error::FileProblem;
use super::shape::SecretShape;

/// The longest file of a secret, in bytes.
const LONGEST: u64 = 64 * 1024;

impl SecretShape {
    /// Where it is, for people.
    pub(super) fn place(&self) -> String {
        match (&self.file, &self.env) {
            (Some(file), _) => format!("file {}", file.display()),
            (None, Some(variable)) => format!("variable {variable}"),
            (None, None) => "nowhere".to_owned(),
        }
    }

    /// The secret, without the end of its last line.
    pub(super) fn read(&self, key: &str, folder: &Path) -> Result<Zeroizing<Vec<u8>>, FileProblem> {
        let mut secret = match (&self.file, &self.env) {
            (Some(file), None) => {
                let path = folder.join(file);
                let told = path.display().to_string();
                let key = format!("{key}.file");
                let length = std::fs::metadata(&path).map(|metadata| metadata.len());
                if length.is_ok_and(|length| length > LONGEST) {
                    return Err(FileProblem::value(
                        key,
                        told,
                        "the file is longer than 64 KiB; name the file of the secret",
                    ));
                }
                let read = std::fs::read(&path).map(Zeroizing::new);
                read.map_err(|error| {
                    let rule = format!("the file of the secret cannot be read ({error}); check its path and its owner");
                    FileProblem::value(key, told, rule)
                })?
            }
            (None, Some(variable)) => {
                let value = env::var_os(variable).ok_or_else(|| {
                    let rule = "the environment has no such variable; set it, or name a file by `file`";
                    FileProblem::value(format!("{key}.env"), variable, rule)
                })?;
                Zeroizing::new(value.into_encoded_bytes())
            }
            (Some(_), Some(_)) => {
                return Err(FileProblem::key(key, "it has both `file` and `env`; keep one of them"));
            }
            (None, None) => {
                return Err(FileProblem::key(key, "it has neither `file` nor `env`; say where the secret is"));
            }
        };
        while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            secret.pop();
        }
        Ok(secret)
    }
}
