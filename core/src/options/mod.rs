//! The options that a user can set, their meaning, and how a connection string expresses them.
//!
//! [`ClientOptions::parse`] reads a connection string: `connection_string` takes it apart, `apply` looks each option up
//! in the table `keys` and reads its `value`, `credential` and `conflicts` judge the whole.

mod advice;
mod affinity;
mod apply;
mod client;
mod compressor;
mod concern;
mod conflicts;
mod connection_string;
mod credential;
mod error;
mod hosts;
mod keys;
mod mechanism;
mod oidc;
mod option_value;
mod percent;
mod pool;
mod pool_limits;
mod pool_sizes;
mod profile;
mod proxy;
mod read_preference;
mod secret;
mod server_api;
mod srv;
mod tls;
mod txt;
mod value;
mod waiting;
mod warning;

pub use affinity::Affinity;
pub use client::{ClientOptions, ServerMonitoringMode};
pub use compressor::Compressor;
pub use concern::{W, WriteConcern};
pub use credential::{Credential, CredentialError};
pub use error::{ConnectionStringError, MAX_LENGTH, PoolOptionsError, UserInfoProblem};
pub use hosts::HostProblem;
pub use mechanism::{Mechanism, MechanismProperties};
pub use oidc::TokenEnvironment;
pub use option_value::OptionValue;
pub use percent::EncodingError;
pub(crate) use pool::{Limits, SECOND};
pub use pool::{Maintenance, PoolOptions};
pub use pool_limits::{NewLimit, PoolLimits};
pub use pool_sizes::PoolSizes;
pub use profile::Profile;
pub use proxy::ProxyOptions;
pub use read_preference::{MaxStaleness, ReadMode, ReadPreference, ReadPreferenceError, TagSet};
pub use secret::{Secret, Shown};
pub use server_api::{ServerApi, ServerApiVersion};
pub use srv::SrvOptions;
pub use tls::TlsOptions;
pub use waiting::{QueueDepth, Reuse};
pub use warning::Warning;
