//! The option `affinity` in `poolOptions` (style "scenario").

use std::time::Duration;

use cmap_core::options::Affinity as Core;
use serde::Deserialize;
use serde_json::{Value, json};

/// What a check-out with an `affinity` may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Affinity {
    /// The connection of its key, if that is available.
    Prefer,
    /// The same, and it waits for it.
    Require,
    /// The same, and nobody else gets that connection for a time.
    Hold {
        /// The time.
        ms: u32,
        /// Whether a held connection may be lent.
        #[serde(default)]
        lend: bool,
    },
}

impl Affinity {
    pub(super) fn to_core(self) -> Core {
        match self {
            Self::Prefer => Core::Prefer,
            Self::Require => Core::Require,
            Self::Hold { ms, lend } => Core::Hold { time: Duration::from_millis(ms.into()), lend },
        }
    }

    pub(super) fn shown(self) -> Value {
        match self {
            Self::Prefer => Value::from("prefer"),
            Self::Require => Value::from("require"),
            Self::Hold { ms, lend } => json!({ "hold": { "ms": ms, "lend": lend } }),
        }
    }
}
