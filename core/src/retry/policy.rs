//! The options of a client that decide about retries.

use serde::{Deserialize, Serialize};

use crate::options::ClientOptions;

/// What a client's options say about retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// `retryReads`.
    pub retry_reads: bool,
    /// `retryWrites`.
    pub retry_writes: bool,
    /// `maxAdaptiveRetries`: the most retries of an operation that an overloaded server has refused (BP-8).
    pub max_adaptive_retries: u32,
    /// `enableOverloadRetargeting`: whether such a retry prefers another server (BP-6).
    pub overload_retargeting: bool,
    /// How often other errors let an operation be repeated.
    pub limit: RetryLimit,
}

/// How often an operation may be repeated, unless its server is overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryLimit {
    /// Once: it has no limit of time (RTY-1).
    Once,
    /// While its time lasts.
    WhileTimeLasts,
}

/// `maxAdaptiveRetries`, if it is not set.
const MAX_ADAPTIVE_RETRIES: u32 = 2;

impl RetryPolicy {
    /// The policy of a client with `options`.
    pub fn of_client(options: &ClientOptions) -> Self {
        Self {
            retry_reads: options.retry_reads.unwrap_or(true),
            retry_writes: options.retry_writes.unwrap_or(true),
            max_adaptive_retries: options.max_adaptive_retries.unwrap_or(MAX_ADAPTIVE_RETRIES),
            overload_retargeting: options.enable_overload_retargeting.unwrap_or(false),
            limit: if options.timeout.is_some() { RetryLimit::WhileTimeLasts } else { RetryLimit::Once },
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::of_client(&ClientOptions::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_on_and_happen_once_by_default_rty_1() {
        let policy = RetryPolicy::default();

        assert!(policy.retry_reads && policy.retry_writes && !policy.overload_retargeting);
        assert_eq!((policy.limit, policy.max_adaptive_retries), (RetryLimit::Once, 2));
    }

    #[test]
    fn timeout_ms_lets_an_operation_be_repeated_while_its_time_lasts_rty_1() {
        let (options, _) = ClientOptions::parse("mongodb://h/?timeoutMS=5&retryReads=false").unwrap();

        let policy = RetryPolicy::of_client(&options);

        assert_eq!((policy.limit, policy.retry_reads), (RetryLimit::WhileTimeLasts, false));
    }
}
