//! What the log shows, and in which form.

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::ConfigError;
use super::read::Check;

/// The log on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The form of its lines.
    pub format: LogFormat,
    /// What it shows, as `RUST_LOG` has it; without it [`level`](Self::level) knows.
    level: Option<String>,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object of JSON.
    Json,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogTable {
    #[serde(default)]
    format: LogFormat,
    level: Option<String>,
}

impl Log {
    pub(super) fn read(check: &Check<'_>, LogTable { format, level }: LogTable) -> Result<Self, ConfigError> {
        if let Some(level) = &level {
            EnvFilter::try_new(level).map_err(|_| {
                check.value("log.level", level, "write a level, or a filter such as info,cmap::hub=debug")
            })?;
        }
        Ok(Self { format, level })
    }

    /// What the log shows: what the file says, or else `RUST_LOG`, or else `info`.
    pub fn level(&self) -> String {
        let of_environment = || std::env::var("RUST_LOG").ok().filter(|filter| EnvFilter::try_new(filter).is_ok());
        self.level.clone().or_else(of_environment).unwrap_or_else(|| "info".into())
    }
}
