//! A transaction whose session was dropped: it is aborted in the background, so that it locks nothing at its server.

use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, cstr};
use cmap_core::connection::Command;
use cmap_core::session::{SessionId, Transaction, TransactionCommand};
use cmap_core::topology::{Criteria, ServerSelector};

use crate::check_out::CheckOut;
use crate::client::Client;
use crate::command_limit::TimeLimit;
use crate::deadline::Limit;
use crate::pinned::PinnedConnection;
use crate::runtime::Runtime;

/// How long it may take to find the server, and how long the server may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A transaction to abort.
pub(super) struct Abandoned<R: Runtime> {
    pub(super) client: Client<R>,
    pub(super) session: SessionId,
    pub(super) number: i64,
    pub(super) transaction: Transaction,
    pub(super) pinned: Option<PinnedConnection<R>>,
}

impl<R: Runtime> Abandoned<R> {
    /// Aborts it. It has one attempt: the server forgets it after a minute anyway, and with the session's next transaction.
    pub(super) async fn abort(self) {
        let Self { client, session, number, transaction, pinned } = self;
        let connection = match (pinned, transaction.pinned_to()) {
            (Some(pinned), _) => Ok(pinned.unpin()),
            (None, Some(address)) => {
                let selector = ServerSelector::Pinned(Arc::new(address.clone()));
                let criteria = Criteria { selector, ..Criteria::default() };
                CheckOut::of(client.topology(), criteria, Limit::Within(PATIENCE)).await
            }
            (None, None) => client.check_out_within(PATIENCE).await,
        };
        let Ok(mut connection) = connection else { return };
        let mut abort = RawDocumentBuf::new();
        abort.append(cstr!("abortTransaction"), 1);
        abort.append(cstr!("lsid"), session.document());
        abort.append(cstr!("txnNumber"), number);
        transaction.append_fields(&mut abort, TransactionCommand::Abort, false, None);
        let command = Command::new("admin", &abort);
        // Its outcome does not matter.
        let _ = connection.exchange_as_it_is(&command, Some(TimeLimit::Caller(PATIENCE)), None).await;
    }
}
