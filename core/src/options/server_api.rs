//! The version of the server's commands that a client asks for, so that an upgraded server keeps answering as before.
//!
//! No connection string can say it; it is set in code.

/// Which version of the server's API the client wants. It goes along with every command, the hello included (HS-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerApi {
    /// The version.
    pub version: ServerApiVersion,
    /// Whether the server refuses commands that are not part of the version; `None` = the server's default, which is no.
    pub strict: Option<bool>,
    /// Whether the server refuses what is deprecated in the version; `None` = the server's default, which is no.
    pub deprecation_errors: Option<bool>,
}

/// The versions of the server's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerApiVersion {
    /// Version 1, which servers know from MongoDB 5.0 on.
    V1,
}

impl ServerApi {
    /// This version, everything else as the server has it.
    pub fn new(version: ServerApiVersion) -> Self {
        Self { version, strict: None, deprecation_errors: None }
    }
}

impl ServerApiVersion {
    /// The version as commands have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1",
        }
    }
}
