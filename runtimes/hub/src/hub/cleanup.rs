//! What a client that has gone leaves behind upstream: cursors are killed, transactions aborted, and what ran for it is
//! interrupted.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::topology::{Criteria, ServerSelector};
use tokio::task::JoinSet;

use super::connection::Work;
use super::forward::{Outcome, Owner};
use super::shared::{Kill, Shared};
use super::track::Track;
use super::turn::{self, Claim, Patience};
use crate::protocol::{Class, Holdings, Request, TransactionAt, session_document};

/// How long the whole may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the end of a transaction may go on, before the transaction is aborted.
const PATIENCE_WITH_END: Duration = Duration::from_secs(3);

/// How long a command that was cut off may keep its connection and its place: its server answers it as soon as its session is killed. If there
/// is no connection for that, its own is closed.
const LATE: Duration = Duration::from_secs(1);

/// What ran for the client.
pub(super) enum Unanswered {
    /// Nothing, or what no server has seen yet.
    Nothing,
    /// A command that was cut off, so that its server may still be at it.
    CutOff(CutOff),
    /// The end of a transaction. It goes on: a driver that has lost patience with a commit repeats it on another connection, and has to
    /// find it carried out.
    End(Arc<Request>, Work),
}

/// A command that was cut off.
pub(super) struct CutOff {
    pub(super) kill: Kill,
    pub(super) server: Arc<ServerAddress>,
    /// The command's way back: its late reply is read, so that its connection can be used again.
    pub(super) work: Option<Work>,
}

/// A command that ends something, at this server, or at one that takes writes.
struct Order {
    server: Option<Arc<ServerAddress>>,
    database: String,
    command: RawDocumentBuf,
    /// The session that it kills.
    _kill: Option<Kill>,
}

/// Ends what this connection has left, in a task of its own.
pub(super) fn begin(shared: &Arc<Shared>, owner: Owner, holdings: Holdings, unanswered: Unanswered) {
    let (mut first, mut end, mut late) = (Vec::new(), None, None);
    match unanswered {
        Unanswered::Nothing => {}
        Unanswered::CutOff(CutOff { kill, server, work }) => {
            first.push(kill_session(kill, server));
            late = work;
        }
        Unanswered::End(request, work) => end = Some((request, work)),
    }
    if holdings.are_empty() && first.is_empty() && end.is_none() {
        return;
    }
    let under_way = shared.begin_clean_up();
    let shared = Arc::clone(shared);
    if let Some(work) = late {
        // Nobody waits for it, and what it says is no matter.
        tokio::spawn(tokio::time::timeout(LATE, work));
    }
    tokio::spawn(async move {
        let ended = end_all(&shared, &owner, holdings, first, end);
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            tracing::warn!(target: "cmap::hub", "what a client left behind was not ended in {PATIENCE:?}; upstream ends it");
        }
        drop(under_way);
    });
}

async fn end_all(
    shared: &Arc<Shared>,
    owner: &Owner,
    mut holdings: Holdings,
    first: Vec<Order>,
    end: Option<(Arc<Request>, Work)>,
) {
    if let Some((request, work)) = end
        && let Ok(Outcome { server: Some(server), reply, ok }) = tokio::time::timeout(PATIENCE_WITH_END, work).await
    {
        holdings.note_reply(&request, &server, &reply, ok);
    }
    // All at once: one whose server is gone keeps none of the others waiting.
    let mut tasks = JoinSet::new();
    for order in first.into_iter().chain(orders(holdings)) {
        tasks.spawn(run(Arc::clone(shared), owner.clone(), order));
    }
    while tasks.join_next().await.is_some() {}
}

fn kill_session(kill: Kill, server: Arc<ServerAddress>) -> Order {
    let mut sessions = RawArrayBuf::new();
    sessions.push(session_document(&kill.session));
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("killSessions"), sessions);
    Order { server: Some(server), database: "admin".into(), command, _kill: Some(kill) }
}

fn orders(mut holdings: Holdings) -> Vec<Order> {
    let (cursors, transactions) = holdings.take();
    let mut orders = Vec::new();
    for TransactionAt { session, number, server } in transactions {
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("abortTransaction"), 1);
        command.append(cstr!("lsid"), session_document(&session));
        command.append(cstr!("txnNumber"), number);
        command.append(cstr!("autocommit"), false);
        orders.push(Order { server, database: "admin".into(), command, _kill: None });
    }
    let mut by_place = BTreeMap::new();
    for cursor in cursors {
        let place = (cursor.server, cursor.database, cursor.collection, cursor.session);
        by_place.entry(place).or_insert_with(RawArrayBuf::new).push(cursor.id);
    }
    for ((server, database, collection, session), ids) in by_place {
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("killCursors"), collection);
        command.append(cstr!("cursors"), ids);
        if let Some(session) = session {
            command.append(cstr!("lsid"), session_document(&session));
        }
        orders.push(Order { server: Some(server), database, command, _kill: None });
    }
    orders
}

/// Runs one command. A server that is gone has ended it all itself.
async fn run(shared: Arc<Shared>, owner: Owner, order: Order) {
    let selector = order.server.clone().map_or(ServerSelector::Writable, ServerSelector::Pinned);
    let criteria = Criteria { selector, ..Criteria::default() };
    let claim = Claim { class: Class::LetsGo, bytes: order.command.as_bytes().len(), needs_room: false };
    let patience = Patience { queue: PATIENCE, server: PATIENCE };
    let track = Track::new(shared.now());
    if let Ok(mut turn) = turn::take(&shared, &owner, claim, &criteria, patience, &track).await {
        // What is not there any more is what was wanted.
        let _ = turn.connection.exchange((&*order.database, &*order.command)).await;
    }
}
