//! What one session has seen of the cluster, so that its next read sees no less (SES-15).

use bson::{RawDocument, Timestamp};

use super::cluster_time::ClusterTime;

/// The times that a session has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Causality {
    is_causal: bool,
    cluster_time: Option<ClusterTime>,
    operation_time: Option<Timestamp>,
}

impl Causality {
    /// Nothing has been seen. `is_causal`: reads of the session see what it has seen before.
    pub fn new(is_causal: bool) -> Self {
        Self { is_causal, ..Self::default() }
    }

    /// A reply to a command of the session came, or its error.
    pub fn handle_reply(&mut self, reply: &RawDocument) {
        if let Some(seen) = ClusterTime::of_reply(reply) {
            self.advance_cluster_time(seen);
        }
        if let Ok(time) = reply.get_timestamp("operationTime") {
            self.advance_operation_time(time);
        }
    }

    /// Another session has seen this cluster time (SES-14).
    pub fn advance_cluster_time(&mut self, seen: &RawDocument) {
        ClusterTime::advance(&mut self.cluster_time, seen);
    }

    /// Another session has seen this time of an operation.
    pub fn advance_operation_time(&mut self, time: Timestamp) {
        let is_later = self.operation_time.is_none_or(|own| (own.time, own.increment) < (time.time, time.increment));
        if is_later {
            self.operation_time = Some(time);
        }
    }

    /// The greatest cluster time that it has seen.
    pub fn cluster_time(&self) -> Option<&ClusterTime> {
        self.cluster_time.as_ref()
    }

    /// The time of its latest operation.
    pub fn operation_time(&self) -> Option<Timestamp> {
        self.operation_time
    }

    /// `afterClusterTime` for its next read.
    pub fn after_cluster_time(&self) -> Option<Timestamp> {
        self.operation_time.filter(|_| self.is_causal)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn at(time: u32) -> Timestamp {
        Timestamp { time, increment: 1 }
    }

    #[test]
    fn a_causal_session_reads_after_what_it_has_seen_ses_15() {
        let mut causality = Causality::new(true);
        assert_eq!(causality.after_cluster_time(), None);

        causality.handle_reply(&rawdoc! { "ok": 1, "operationTime": at(5) });
        causality.handle_reply(&rawdoc! { "ok": 0, "operationTime": at(7) });
        causality.advance_operation_time(at(6));

        assert_eq!(causality.after_cluster_time(), Some(at(7)));
    }

    #[test]
    fn another_session_keeps_the_time_but_reads_as_it_likes_ses_15() {
        let mut causality = Causality::new(false);

        causality.handle_reply(&rawdoc! { "ok": 1, "operationTime": at(5) });

        assert_eq!((causality.operation_time(), causality.after_cluster_time()), (Some(at(5)), None));
    }

    #[test]
    fn a_session_has_a_cluster_time_of_its_own_ses_14() {
        let mut causality = Causality::new(false);

        causality.advance_cluster_time(&rawdoc! { "clusterTime": at(5) });

        assert!(causality.cluster_time().is_some());
    }
}
