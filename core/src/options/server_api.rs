//! The version of the server's commands that a client asks for, so that an upgraded server keeps answering as before.
//!
//! A connection string cannot set it; it is set in code.

/// The version of the server's API that the client wants. Every command carries it, the hello included (HS-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerApi {
    /// The version.
    pub version: ServerApiVersion,
    /// Whether the server refuses commands that are not part of the version; `None` = the server's default, which is no.
    pub strict: Option<bool>,
    /// Whether the server refuses everything that is deprecated in the version; `None` = the server's default, which is
    /// no.
    pub deprecation_errors: Option<bool>,
}

/// The versions of the server's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerApiVersion {
    /// Version 1, supported since MongoDB 5.0.
    V1,
}

impl ServerApi {
    /// This version, with the server's defaults for everything else.
    pub fn new(version: ServerApiVersion) -> Self {
        Self { version, strict: None, deprecation_errors: None }
    }
}

impl ServerApiVersion {
    /// The version as commands carry it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1",
        }
    }
}
