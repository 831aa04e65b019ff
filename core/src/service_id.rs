//! The server behind a load balancer, by which connections there are told apart.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// The server behind a load balancer, as its hello names it: an ObjectId (LB-7). Written in hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub [u8; 12]);

/// A text is not a service id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a service id is 24 hexadecimal digits")]
pub struct ParseServiceIdError;

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({self})")
    }
}

impl FromStr for ServiceId {
    type Err = ParseServiceIdError;

    fn from_str(text: &str) -> Result<Self, ParseServiceIdError> {
        let mut bytes = [0; 12];
        if text.len() != 24 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ParseServiceIdError);
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * index..2 * index + 2).ok_or(ParseServiceIdError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ParseServiceIdError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for ServiceId {
    /// As text, because it is the key of a map in a pool's state.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServiceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_service_id_is_read_as_it_is_written() {
        let id = ServiceId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 0xcd]);

        assert_eq!(id.to_string(), "00010203040506070809abcd");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "00010203040506070809abc", "00010203040506070809abcg", "+0010203040506070809abcd"] {
            assert_eq!(text.parse::<ServiceId>(), Err(ParseServiceIdError), "{text}");
        }
    }
}
