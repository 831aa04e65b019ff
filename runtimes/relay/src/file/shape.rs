//! What a file may say, as TOML has it. Keys are spelled as MongoDB's options are; secrets are named, and never in the file.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileShape {
    #[serde(default)]
    pub(super) members: Vec<MemberShape>,
    #[serde(default)]
    pub(super) applications: Vec<ApplicationShape>,
    #[serde(default)]
    pub(super) limits: LimitsShape,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberShape {
    pub(super) name: String,
    /// Without it: its name.
    pub(super) connect: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplicationShape {
    pub(super) address: String,
    /// Without it: all.
    pub(super) members: Option<Vec<String>>,
    #[serde(rename = "tlsCAFile")]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(rename = "tlsCertificateKeyFile")]
    pub(super) certificate_key_file: Option<PathBuf>,
    #[serde(rename = "tlsCertificateKeyFilePassword")]
    pub(super) certificate_key_file_password: Option<SecretShape>,
    pub(super) token: Option<TokenShape>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenShape {
    pub(super) name: String,
    pub(super) secret: SecretShape,
}

/// Where a secret is: one of both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretShape {
    pub(super) file: Option<PathBuf>,
    pub(super) env: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsShape {
    #[serde(rename = "maxSockets")]
    pub(super) max_sockets: Option<u64>,
    #[serde(rename = "connectTimeoutMS")]
    pub(super) connect_timeout: Option<u64>,
    /// 0: for ever.
    #[serde(rename = "maxParkedTimeMS")]
    pub(super) max_parked_time: Option<u64>,
    #[serde(rename = "maxReconnectDelayMS")]
    pub(super) max_reconnect_delay: Option<u64>,
    #[serde(rename = "drainTimeoutMS")]
    pub(super) drain_timeout: Option<u64>,
}
