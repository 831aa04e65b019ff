//! What a configuration says, key by key, so that two of them can be compared. Values may be secret, so only digests of them are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use toml::{Table, Value};
use zeroize::Zeroizing;

/// Keys that name files, whose content counts as well.
const FILES: [&str; 6] = ["authorities", "certificate", "password-file", "secret-file", "uri-file", "users"];

/// The keys of a configuration, each with a digest of its value. Tables in a list are numbered from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys(BTreeMap<String, u64>);

impl Keys {
    /// The keys of a configuration's text; files are looked for in its folder.
    pub(super) fn of(text: &str, folder: &Path) -> Self {
        let mut keys = Self::default();
        // Without a mistake: it was read before.
        let table: Table = toml::from_str(text).unwrap_or_default();
        table.into_iter().for_each(|(name, value)| keys.note(name, value, folder));
        keys
    }

    fn note(&mut self, key: String, value: Value, folder: &Path) {
        let digest = match value {
            Value::Table(table) => {
                table.into_iter().for_each(|(name, value)| self.note(format!("{key}.{name}"), value, folder));
                return;
            }
            Value::Array(values) if values.iter().all(Value::is_table) => {
                let values = values.into_iter().enumerate();
                values.for_each(|(number, value)| self.note(format!("{key}[{number}]"), value, folder));
                return;
            }
            Value::String(text) => {
                let text = Zeroizing::new(text);
                let is_file = key.rsplit('.').next().is_some_and(|name| FILES.contains(&name));
                let content = is_file.then(|| fs::read(folder.join(&*text)).ok().map(Zeroizing::new)).flatten();
                digest(&(&*text, content.as_deref()))
            }
            Value::Array(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Float(_) | Value::Integer(_) => {
                digest(&format!("{value:?}"))
            }
        };
        self.0.insert(key, digest);
    }

    /// The keys that say something else in another configuration, or stand in one of the two alone.
    pub(crate) fn differing(&self, other: &Self) -> BTreeSet<String> {
        let differs = |key: &&String| self.0.get(*key) != other.0.get(*key);
        self.0.keys().chain(other.0.keys()).filter(differs).cloned().collect()
    }

    /// Takes over what another configuration says about a key.
    pub(crate) fn take_over(&mut self, key: &str, other: &Self) {
        match other.0.get(key) {
            Some(digest) => _ = self.0.insert(key.into(), *digest),
            None => _ = self.0.remove(key),
        }
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(before: &str, after: &str) -> Vec<String> {
        let [before, after] = [before, after].map(|text| Keys::of(text, Path::new("")));
        before.differing(&after).into_iter().collect()
    }

    #[test]
    fn keys_that_say_something_else_or_stand_in_one_alone_differ() {
        let before = "drain-seconds = 1\n[limits]\nwaiting = 5\n[[listen]]\nunix = 'a'\n[[listen]]\nunix = 'b'\n";
        let after =
            "limits.waiting = 5\nlimits.running = 2\nlisten = [{ unix = 'a' }, { unix = 'c' }]\ndrain-seconds = 2\n";

        assert_eq!(differing(before, before), [""; 0]);
        assert_eq!(differing(before, after), ["drain-seconds", "limits.running", "listen[1].unix"]);
    }

    #[test]
    fn a_file_counts_by_its_content_too_and_a_key_is_taken_over_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(folder.path().join("password"), text).unwrap();
        let text = "upstream.identity.a.password-file = 'password'\nlimits.waiting = 1\n";
        write("secret");
        let mut before = Keys::of(text, folder.path());
        write("tiger");
        let after = Keys::of(&text.replace('1', "2"), folder.path());

        let keys: Vec<_> = before.differing(&after).into_iter().collect();
        assert_eq!(keys, ["limits.waiting", "upstream.identity.a.password-file"]);
        before.take_over("limits.waiting", &after);
        assert_eq!(before.differing(&after).len(), 1);
    }
}
