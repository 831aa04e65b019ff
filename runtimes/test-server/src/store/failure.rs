//! Why a command failed, as a server reports it: a code, its name and a sentence.
//!
//! The codes are MongoDB's. Those without a name of their own are called `Location` and the number, as a server does.

use bson::RawDocumentBuf;
use thiserror::Error;

/// A command was not carried out: the reply has `ok: 0` and this.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{code_name} ({code}): {message}")]
pub struct CommandFailure {
    /// `code`.
    pub code: i32,
    /// `codeName`.
    pub code_name: &'static str,
    /// `errmsg`.
    pub message: String,
    /// Further fields of the reply, such as the duplicate key.
    pub details: RawDocumentBuf,
    /// `errorLabels`.
    pub labels: Vec<String>,
}

/// Declares the codes: their constants, and their names for [`code_name`].
macro_rules! codes {
    ($($constant:ident = $code:literal $name:literal,)*) => {
        /// The codes that are used here, and those that drivers react to.
        pub mod code {
            $(#[doc = $name] pub const $constant: i32 = $code;)*
        }

        /// The name of an error code; `UnknownError` if it is not one that this server knows.
        pub fn code_name(code: i32) -> &'static str {
            match code {
                $($code => $name,)*
                _ => "UnknownError",
            }
        }
    };
}

codes! {
    INTERNAL_ERROR = 1 "InternalError",
    BAD_VALUE = 2 "BadValue",
    GRAPH_CONTAINS_CYCLE = 5 "GraphContainsCycle",
    HOST_UNREACHABLE = 6 "HostUnreachable",
    HOST_NOT_FOUND = 7 "HostNotFound",
    UNKNOWN_ERROR = 8 "UnknownError",
    FAILED_TO_PARSE = 9 "FailedToParse",
    USER_NOT_FOUND = 11 "UserNotFound",
    UNAUTHORIZED = 13 "Unauthorized",
    TYPE_MISMATCH = 14 "TypeMismatch",
    OVERFLOW = 15 "Overflow",
    INVALID_LENGTH = 16 "InvalidLength",
    PROTOCOL_ERROR = 17 "ProtocolError",
    AUTHENTICATION_FAILED = 18 "AuthenticationFailed",
    ILLEGAL_OPERATION = 20 "IllegalOperation",
    INVALID_BSON = 22 "InvalidBSON",
    LOCK_TIMEOUT = 24 "LockTimeout",
    NAMESPACE_NOT_FOUND = 26 "NamespaceNotFound",
    INDEX_NOT_FOUND = 27 "IndexNotFound",
    PATH_NOT_VIABLE = 28 "PathNotViable",
    CONFLICTING_UPDATE_OPERATORS = 40 "ConflictingUpdateOperators",
    CURSOR_NOT_FOUND = 43 "CursorNotFound",
    NO_MATCHING_DOCUMENT = 47 "NoMatchingDocument",
    NAMESPACE_EXISTS = 48 "NamespaceExists",
    MAX_TIME_MS_EXPIRED = 50 "MaxTimeMSExpired",
    DOLLAR_PREFIXED_FIELD_NAME = 52 "DollarPrefixedFieldName",
    INVALID_ID_FIELD = 53 "InvalidIdField",
    EMPTY_FIELD_NAME = 56 "EmptyFieldName",
    COMMAND_NOT_FOUND = 59 "CommandNotFound",
    WRITE_CONCERN_FAILED = 64 "WriteConcernFailed",
    IMMUTABLE_FIELD = 66 "ImmutableField",
    CANNOT_CREATE_INDEX = 67 "CannotCreateIndex",
    INVALID_OPTIONS = 72 "InvalidOptions",
    INVALID_NAMESPACE = 73 "InvalidNamespace",
    NODE_NOT_FOUND = 74 "NodeNotFound",
    NO_REPLICATION_ENABLED = 76 "NoReplicationEnabled",
    UNKNOWN_REPL_WRITE_CONCERN = 79 "UnknownReplWriteConcern",
    INDEX_OPTIONS_CONFLICT = 85 "IndexOptionsConflict",
    INDEX_KEY_SPECS_CONFLICT = 86 "IndexKeySpecsConflict",
    NETWORK_TIMEOUT = 89 "NetworkTimeout",
    SHUTDOWN_IN_PROGRESS = 91 "ShutdownInProgress",
    INVALID_REPLICA_SET_CONFIG = 93 "InvalidReplicaSetConfig",
    NOT_SECONDARY = 95 "NotSecondary",
    OPERATION_FAILED = 96 "OperationFailed",
    UNSATISFIABLE_WRITE_CONCERN = 100 "UnsatisfiableWriteConcern",
    NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE = 103 "NewReplicaSetConfigurationIncompatible",
    WRITE_CONFLICT = 112 "WriteConflict",
    COMMAND_NOT_SUPPORTED = 115 "CommandNotSupported",
    NOT_A_REPLICA_SET = 123 "NotAReplicaSet",
    READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET = 134 "ReadConcernMajorityNotAvailableYet",
    CAPPED_POSITION_LOST = 136 "CappedPositionLost",
    EXCEEDED_MEMORY_LIMIT = 146 "ExceededMemoryLimit",
    MAX_STALENESS_OUT_OF_RANGE = 160 "MaxStalenessOutOfRange",
    FAIL_POINT_SET_FAILED = 167 "FailPointSetFailed",
    INVALID_EXPRESSION = 168 "InvalidPipelineOperator",
    CANNOT_INDEX_PARALLEL_ARRAYS = 171 "CannotIndexParallelArrays",
    QUERY_PLAN_KILLED = 175 "QueryPlanKilled",
    CLIENT_METADATA_CANNOT_BE_MUTATED = 186 "ClientMetadataCannotBeMutated",
    PRIMARY_STEPPED_DOWN = 189 "PrimarySteppedDown",
    INVALID_INDEX_SPECIFICATION_OPTION = 197 "InvalidIndexSpecificationOption",
    CANNOT_BUILD_INDEX_KEYS = 201 "CannotBuildIndexKeys",
    NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT = 202 "NetworkInterfaceExceededTimeLimit",
    INVALID_UUID = 207 "InvalidUUID",
    TRANSACTION_TOO_OLD = 225 "TransactionTooOld",
    CURSOR_KILLED = 237 "CursorKilled",
    SNAPSHOT_TOO_OLD = 239 "SnapshotTooOld",
    SNAPSHOT_UNAVAILABLE = 246 "SnapshotUnavailable",
    NO_SUCH_TRANSACTION = 251 "NoSuchTransaction",
    TRANSACTION_COMMITTED = 256 "TransactionCommitted",
    INVALID_RESUME_TOKEN = 260 "InvalidResumeToken",
    EXCEEDED_TIME_LIMIT = 262 "ExceededTimeLimit",
    OPERATION_NOT_SUPPORTED_IN_TRANSACTION = 263 "OperationNotSupportedInTransaction",
    TOO_MANY_FILES_OPEN = 264 "TooManyFilesOpen",
    PREPARED_TRANSACTION = 267 "PreparedTransactionInProgress",
    CHANGE_STREAM_FATAL_ERROR = 280 "ChangeStreamFatalError",
    CHANGE_STREAM_HISTORY_LOST = 286 "ChangeStreamHistoryLost",
    SORT_EXCEEDED_MEMORY_LIMIT = 292 "QueryExceededMemoryLimitNoDiskUseAllowed",
    API_VERSION_ERROR = 322 "APIVersionError",
    API_STRICT_ERROR = 323 "APIStrictError",
    API_DEPRECATION_ERROR = 324 "APIDeprecationError",
    UNSUPPORTED_OP_QUERY_COMMAND = 352 "UnsupportedOpQueryCommand",
    REAUTHENTICATION_REQUIRED = 391 "ReauthenticationRequired",
    SOCKET_EXCEPTION = 9001 "SocketException",
    NOT_WRITABLE_PRIMARY = 10107 "NotWritablePrimary",
    BSON_OBJECT_TOO_LARGE = 10334 "BSONObjectTooLarge",
    DUPLICATE_KEY = 11000 "DuplicateKey",
    INTERRUPTED_AT_SHUTDOWN = 11600 "InterruptedAtShutdown",
    INTERRUPTED = 11601 "Interrupted",
    INTERRUPTED_DUE_TO_REPL_STATE_CHANGE = 11602 "InterruptedDueToReplStateChange",
    TOO_MANY_KEYS = 13103 "Location13103",
    STALE_CONFIG = 13388 "StaleConfig",
    NOT_PRIMARY_NO_SECONDARY_OK = 13435 "NotPrimaryNoSecondaryOk",
    NOT_PRIMARY_OR_SECONDARY = 13436 "NotPrimaryOrSecondary",
    OUT_OF_DISK_SPACE = 14031 "OutOfDiskSpace",
    UNKNOWN_GROUP_OPERATOR = 15952 "Location15952",
    GROUP_WITHOUT_ID = 15955 "Location15955",
    INVALID_SKIP = 15956 "Location15956",
    INVALID_LIMIT = 15958 "Location15958",
    INVALID_SORT_KEY = 15974 "Location15974",
    INVALID_SORT_DIRECTION = 15975 "Location15975",
    INVALID_UNWIND = 15981 "Location15981",
    INVALID_FIELD_PATH = 15998 "Location15998",
    WRONG_NUMBER_OF_OPERANDS = 16020 "Location16020",
    DISTINCT_TOO_BIG = 17217 "Location17217",
    UNDEFINED_VARIABLE = 17276 "Location17276",
    SEARCH_NOT_ENABLED = 31082 "SearchNotEnabled",
    UNWIND_WITHOUT_PATH = 28812 "Location28812",
    UNWIND_PATH_WITHOUT_DOLLAR = 28818 "Location28818",
    INVALID_UNWIND_INDEX = 28822 "Location28822",
    PATH_COLLISION = 31250 "Location31250",
    INCLUSION_IN_EXCLUSION = 31253 "Location31253",
    EXCLUSION_IN_INCLUSION = 31254 "Location31254",
    INVALID_COUNT = 40156 "Location40156",
    EMPTY_OBJECT_TO_SET = 40180 "Location40180",
    NEW_ROOT_IS_NO_OBJECT = 40228 "Location40228",
    NEW_ROOT_MISSING = 40231 "Location40231",
    ACCUMULATOR_EXPECTED = 40234 "Location40234",
    INVALID_STAGE = 40323 "Location40323",
    UNKNOWN_STAGE = 40324 "Location40324",
    FIELD_MISSING = 40414 "Location40414",
    UNKNOWN_FIELD = 40415 "Location40415",
    DATABASE_MISSING = 40571 "Location40571",
    ONLY_ON_REPLICA_SETS = 40573 "Location40573",
    OUT_MUST_BE_LAST = 40601 "Location40601",
    FIRST_STAGE_ONLY = 40602 "Location40602",
    BAD_RESUME_TOKEN = 40647 "Location40647",
    SEVERAL_RESUME_OPTIONS = 40674 "Location40674",
    CURSOR_OF_NO_SESSION = 50736 "Location50736",
    CURSOR_OF_SESSION = 50737 "Location50737",
    CURSOR_OF_OTHER_SESSION = 50738 "Location50738",
    CANNOT_START_TRANSACTION = 50911 "Location50911",
    NEGATIVE_NUMBER = 51024 "Location51024",
    BOUNDS_WITHOUT_HINT = 51173 "Location51173",
    BOUNDS_OF_OTHER_FIELDS = 51174 "Location51174",
    EMPTY_SUB_PROJECTION = 51270 "Location51270",
    API_VERSION_MISSING = 498_870 "Location498870",
    CHANGE_STREAM_IS_NO_OBJECT = 6_188_500 "Location6188500",
    SPLIT_MUST_BE_LAST = 7_182_802 "Location7182802",
    TOO_MANY_STAGES = 7_749_501 "Location7749501",
}

impl CommandFailure {
    /// A failure with a code and a sentence.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        let details = RawDocumentBuf::new();
        Self { code, code_name: code_name(code), message: message.into(), details, labels: Vec::new() }
    }

    /// An argument that makes no sense.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(code::BAD_VALUE, message)
    }

    /// An argument that could not be read.
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(code::FAILED_TO_PARSE, message)
    }

    /// A document that is not well-formed BSON, or nested too deep.
    pub fn invalid_bson(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_BSON, message)
    }

    /// A feature of MongoDB that this test server lacks.
    pub fn not_supported(what: &str) -> Self {
        Self::new(code::COMMAND_NOT_SUPPORTED, format!("{what} is not supported by this test server"))
    }

    /// A search index, which needs a server of another kind.
    pub fn search_not_enabled() -> Self {
        Self::new(code::SEARCH_NOT_ENABLED, "Search index commands are only supported with Atlas.")
    }

    /// An invalid name of a database or collection.
    pub fn invalid_namespace(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_NAMESPACE, message)
    }
}
