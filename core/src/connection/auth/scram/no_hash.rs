//! SCRAM's arithmetic in a build without the feature `auth`: there is no hash, so no conversation begins and no keys are derived.
//!
//! The type has the name and the methods of that with `auth`, so that nothing else depends on the feature. It has no values.

use super::super::error::LoginError;
use super::super::secret::SecretBytes;
use crate::options::{Mechanism, Secret};

/// The hash that a SCRAM conversation uses; there is none without the feature `auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScramHash(Never);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Never {}

impl ScramHash {
    pub(in super::super) fn of(mechanism: Mechanism) -> Result<Self, LoginError> {
        Err(LoginError::NotBuiltIn { mechanism })
    }

    pub(super) fn prepare(self, _username: &str, _password: &Secret) -> Result<SecretBytes, LoginError> {
        match self.0 {}
    }

    pub(in super::super) fn digest(self, _parts: &[&[u8]]) -> SecretBytes {
        match self.0 {}
    }

    pub(super) fn fingerprint(self, _parts: &[&[u8]]) -> SecretBytes {
        match self.0 {}
    }

    pub(super) fn hmac(self, _key: &SecretBytes, _message: &[u8]) -> SecretBytes {
        match self.0 {}
    }

    pub(super) fn salted_password(self, _password: &SecretBytes, _salt: &[u8], _iterations: u32) -> SecretBytes {
        match self.0 {}
    }

    pub(super) fn try_salted_password<E>(
        self,
        _password: &SecretBytes,
        _salt: &[u8],
        _iterations: u32,
        _before_chunk: impl FnMut() -> Result<(), E>,
    ) -> Result<SecretBytes, E> {
        match self.0 {}
    }
}
