//! The connected clients, so that an order or a reload can end their connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::protocol::Ending;
use crate::users::Certificate;

/// The connected clients, by the numbers of their connections.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<BTreeMap<i64, ConnectedClient>>);

/// A connected client.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    pub(super) address: Arc<str>,
    /// The user that has logged in.
    pub(super) user: Option<Arc<str>>,
    /// The certificate that it has shown.
    certificate: Option<Certificate>,
    end: oneshot::Sender<Ending>,
}

/// Receives the reason for which a connection has to end.
#[derive(Debug)]
pub(super) struct Ended(Option<oneshot::Receiver<Ending>>);

impl Ended {
    /// Waits for that reason.
    pub(super) async fn told(&mut self) -> Ending {
        let told = match &mut self.0 {
            Some(ended) => ended.await.ok(),
            None => None,
        };
        self.0 = None;
        match told {
            Some(why) => why,
            None => core::future::pending().await,
        }
    }
}

impl Clients {
    /// Adds the connection of this number.
    pub(super) fn add(&self, number: i64, address: &Arc<str>) -> Ended {
        let (end, ended) = oneshot::channel();
        self.lock()
            .insert(number, ConnectedClient { address: Arc::clone(address), user: None, certificate: None, end });
        Ended(Some(ended))
    }

    /// Notes the user that has logged in there.
    pub(super) fn name(&self, number: i64, user: &Arc<str>) {
        self.lock().get_mut(&number).into_iter().for_each(|client| client.user = Some(Arc::clone(user)));
    }

    /// Notes the certificate that was shown there.
    pub(super) fn note_certificate(&self, number: i64, certificate: &Certificate) {
        self.lock().get_mut(&number).into_iter().for_each(|client| client.certificate = Some(certificate.clone()));
    }

    /// Ends the connections whose certificates are trusted no more, and returns their number.
    pub(super) fn end_untrusted(&self) -> usize {
        let is_untrusted =
            |client: &ConnectedClient| client.certificate.as_ref().is_some_and(|shown| !shown.is_trusted());
        self.end(&Ending::Untrusted, |_, client| is_untrusted(client))
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&self, number: i64) {
        self.lock().remove(&number);
    }

    /// Ends the connections for which `is_meant` holds, and returns their number.
    pub(super) fn end(&self, why: &Ending, is_meant: impl Fn(i64, &ConnectedClient) -> bool) -> usize {
        let mut clients = self.lock();
        let meant = clients.iter().filter(|(number, client)| is_meant(**number, client)).map(|(number, _)| *number);
        let meant: Vec<_> = meant.collect();
        let ended: Vec<_> = meant.iter().filter_map(|number| clients.remove(number)).collect();
        drop(clients);
        ended.into_iter().map(|client| client.end.send(why.clone())).filter(Result::is_ok).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, ConnectedClient>> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_that_are_meant_hear_once_that_they_have_to_end() {
        let clients = Clients::default();
        let [mut anna, mut ben] = [1, 2].map(|number| clients.add(number, &"127.0.0.1".into()));
        clients.name(1, &"anna".into());
        let is_annas = |_, client: &ConnectedClient| client.user.as_deref() == Some("anna");

        assert_eq!(clients.end(&Ending::Kicked, is_annas), 1);
        assert_eq!(clients.end(&Ending::Kicked, is_annas), 0);

        assert_eq!(anna.told().await, Ending::Kicked);
        for other in [&mut anna, &mut ben] {
            assert!(tokio::time::timeout(core::time::Duration::from_millis(10), other.told()).await.is_err());
        }
    }
}
