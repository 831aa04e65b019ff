//! What a client that has gone leaves behind upstream: cursors are killed, transactions aborted, and what ran for it is
//! interrupted.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::topology::{Criteria, ServerSelector};

use super::forward::Owner;
use super::shared::Shared;
use crate::protocol::{Class, Holdings, SessionId, session_document};

/// How long the whole may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A command that was cut off, so that its server may still be at it.
#[derive(Debug)]
pub(super) struct CutOff {
    pub(super) session: SessionId,
    pub(super) server: Arc<ServerAddress>,
}

/// Ends it all, in a task of its own.
pub(super) fn begin(shared: &Arc<Shared>, owner: Owner, mut holdings: Holdings, cut_off: Option<CutOff>) {
    let (cursors, transactions) = holdings.take();
    if cursors.is_empty() && transactions.is_empty() && cut_off.is_none() {
        return;
    }
    let under_way = shared.begin_clean_up();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let work = async {
            if let Some(CutOff { session, server }) = cut_off {
                let mut sessions = RawArrayBuf::new();
                sessions.push(session_document(&session));
                let mut kill = RawDocumentBuf::new();
                kill.append(cstr!("killSessions"), sessions);
                run(&shared, &owner, Some(server), "admin", &kill).await;
            }
            for transaction in transactions {
                let mut abort = RawDocumentBuf::new();
                abort.append(cstr!("abortTransaction"), 1);
                abort.append(cstr!("lsid"), session_document(&transaction.session));
                abort.append(cstr!("txnNumber"), transaction.number);
                abort.append(cstr!("autocommit"), false);
                run(&shared, &owner, transaction.server, "admin", &abort).await;
            }
            let mut by_place = BTreeMap::new();
            for cursor in cursors {
                let place = (cursor.server, cursor.database, cursor.collection, cursor.session);
                by_place.entry(place).or_insert_with(RawArrayBuf::new).push(cursor.id);
            }
            for ((server, database, collection, session), ids) in by_place {
                let mut kill = RawDocumentBuf::new();
                kill.append(cstr!("killCursors"), collection);
                kill.append(cstr!("cursors"), ids);
                if let Some(session) = session {
                    kill.append(cstr!("lsid"), session_document(&session));
                }
                run(&shared, &owner, Some(server), &database, &kill).await;
            }
        };
        if tokio::time::timeout(PATIENCE, work).await.is_err() {
            tracing::warn!(target: "cmap::hub", "what a client left behind was not ended in {PATIENCE:?}; upstream ends it");
        }
        drop(under_way);
    });
}

/// Runs one command at a server, or at one that takes writes. A server that is gone has ended it all itself.
async fn run(
    shared: &Shared,
    owner: &Owner,
    server: Option<Arc<ServerAddress>>,
    database: &str,
    command: &RawDocument,
) {
    let Ok(_place) = shared.gate.enter(&owner.user, Class::LetsGo, command.as_bytes().len(), PATIENCE).await else {
        return;
    };
    let selector = server.map_or(ServerSelector::Writable, ServerSelector::Pinned);
    let criteria = Criteria { selector, ..Criteria::default() };
    let mut check_out = shared.upstream.client.check_out_for_within(criteria, PATIENCE);
    if let Some(identity) = owner.identity {
        check_out = check_out.identity(identity);
    }
    if let Ok(mut connection) = check_out.await {
        // What is not there any more is what was wanted.
        let _ = connection.exchange((database, command)).await;
    }
}
