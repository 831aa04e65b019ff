//! What an application uses, and each adapter has at its top: `pub use cmap_runtime::exports::*`. One list, so that no adapter lacks
//! a part of it. What has a runtime as parameter is an alias of the adapter's own.

pub use bson;
pub use cmap_core;
pub use cmap_core::address::ServerAddress;
pub use cmap_core::batch::{BatchError, ConcernError, Outcome, Upserted, WriteResult};
pub use cmap_core::options::{
    ClientOptions, Credential, PoolLimits, PoolOptions, PoolSizes, QueueDepth, ReadMode, ReadPreference, Secret,
};
pub use cmap_core::pool::{AffinityKey, IdentityId, Purpose};
pub use cmap_core::server::{ServerDescription, ServerType};
pub use cmap_core::session::TransactionOptions;
pub use cmap_core::topology::{Criteria, ServerSelector, TopologyDescription, TopologyType};

pub use crate::cursor::{CursorOptions, TimeoutMode};
pub use crate::document::{Counted, FoundAndModified, IntoCommand, IntoRequest, ParseError, Reply, Request, Written};
pub use crate::driver::ServerStatus;
pub use crate::error::{
    CheckOutError, ClientError, CommandError, CommandErrorKind, CursorError, Error, OperationError, OperationErrorKind,
    RotationError, RuntimeGone, WarmUpError,
};
pub use crate::establish::{TokenReply, TokenRequest};
pub use crate::events::{
    CommandEvent, Event, Notice, PoolEvent, SelectionEvent, ServerEvent, Subscription, TopologyEvent,
};
pub use crate::operation::{InSession, NoSession};
#[cfg(feature = "trace")]
#[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
pub use crate::recording::Recorder;
#[cfg(all(feature = "reverse", feature = "__rustls"))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use crate::reverse;
#[cfg(feature = "reverse")]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use crate::runtime::Listen;
pub use crate::runtime::Runtime;
pub use crate::session::{Consistency, Labelled, SessionOptions};
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use crate::spans::SpanOptions;
pub use crate::time::{Deadline, Limit, TimeLimit};
#[cfg(feature = "__rustls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use crate::tls;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use crate::watch::Metrics;
pub use crate::watch::{
    ClientStatus, CommandInUse, Holder, Label, LabelUses, PastUse, Place, PossibleLeak, ServerLine, UseReport,
    WaitingCheckOut, WaitsFor,
};
