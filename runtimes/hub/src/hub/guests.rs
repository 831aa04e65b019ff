//! Who is connected, so that connections can be ended from outside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::protocol::Ending;

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Guests(Mutex<BTreeMap<i64, Guest>>);

/// A connection.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) address: Arc<str>,
    /// Who has logged in.
    pub(super) user: Option<Arc<str>>,
    end: oneshot::Sender<Ending>,
}

/// Hears when a connection has to end.
#[derive(Debug)]
pub(super) struct Ended(Option<oneshot::Receiver<Ending>>);

impl Ended {
    /// Waits until it has to, and says why.
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

impl Guests {
    /// A connection of this number is there.
    pub(super) fn add(&self, number: i64, address: &Arc<str>) -> Ended {
        let (end, ended) = oneshot::channel();
        self.lock().insert(number, Guest { address: Arc::clone(address), user: None, end });
        Ended(Some(ended))
    }

    /// Its user has logged in.
    pub(super) fn name(&self, number: i64, user: &Arc<str>) {
        self.lock().get_mut(&number).into_iter().for_each(|guest| guest.user = Some(Arc::clone(user)));
    }

    /// It is gone.
    pub(super) fn remove(&self, number: i64) {
        self.lock().remove(&number);
    }

    /// Ends those for which it is so; how many they are.
    pub(super) fn end(&self, why: &Ending, is_meant: impl Fn(i64, &Guest) -> bool) -> usize {
        let mut guests = self.lock();
        let meant = guests.iter().filter(|(number, guest)| is_meant(**number, guest)).map(|(number, _)| *number);
        let meant: Vec<_> = meant.collect();
        let ended: Vec<_> = meant.iter().filter_map(|number| guests.remove(number)).collect();
        drop(guests);
        ended.into_iter().map(|guest| guest.end.send(why.clone())).filter(Result::is_ok).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Guest>> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_that_are_meant_hear_once_that_they_have_to_end() {
        let guests = Guests::default();
        let [mut anna, mut ben] = [1, 2].map(|number| guests.add(number, &"127.0.0.1".into()));
        guests.name(1, &"anna".into());
        let is_annas = |_, guest: &Guest| guest.user.as_deref() == Some("anna");

        assert_eq!(guests.end(&Ending::Kicked, is_annas), 1);
        assert_eq!(guests.end(&Ending::Kicked, is_annas), 0);

        assert_eq!(anna.told().await, Ending::Kicked);
        for other in [&mut anna, &mut ben] {
            assert!(tokio::time::timeout(core::time::Duration::from_millis(10), other.told()).await.is_err());
        }
    }
}
