//! Reads the server's messages of SCRAM: attributes in a fixed order, separated by commas (RFC 5802, section 7).
//!
//! The required parts of a message are checked to the letter; extensions after them are allowed and ignored, as the RFC
//! asks, except `m=`, which requires that they are understood.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::error::{Malformed, Message, ServerFault};
use super::MAX_MESSAGE;

/// The attributes of a message that have not been read yet.
pub(super) struct Attributes<'a>(pub(super) Option<&'a str>);

pub(super) struct ServerFirst<'a> {
    /// The whole message.
    pub(super) text: &'a str,
    pub(super) nonce: &'a str,
    pub(super) salt: Vec<u8>,
    /// As announced; more than 64 bits read as the largest number.
    pub(super) iterations: u64,
}

impl<'a> Attributes<'a> {
    /// The value of the next attribute, which must be called `name`.
    pub(super) fn take(&mut self, name: char) -> Result<&'a str, Malformed> {
        let missing = Malformed::Attribute(name);
        let rest = self.0.ok_or(missing)?;
        let (attribute, rest) = match rest.split_once(',') {
            Some((attribute, rest)) => (attribute, Some(rest)),
            None => (rest, None),
        };
        if attribute.starts_with("m=") {
            return Err(Malformed::MandatoryExtension);
        }
        let value = attribute.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).unwrap_or_default();
        if value.is_empty() || value.contains('\0') {
            return Err(missing);
        }
        self.0 = rest;
        Ok(value)
    }

    /// The rest must look like attributes.
    pub(super) fn extensions(mut self) -> Result<(), Malformed> {
        while let Some(rest) = self.0 {
            let name = rest.chars().next().filter(char::is_ascii_alphabetic).ok_or(Malformed::Extension)?;
            match self.take(name) {
                Ok(_) => {}
                Err(Malformed::MandatoryExtension) => return Err(Malformed::MandatoryExtension),
                Err(_) => return Err(Malformed::Extension),
            }
        }
        Ok(())
    }

    pub(super) fn nonce(&mut self) -> Result<&'a str, Malformed> {
        let nonce = self.take('r')?;
        if nonce.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(nonce) } else { Err(Malformed::Nonce) }
    }
}

impl<'a> ServerFirst<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, ServerFault> {
        let text = server_text(payload, Message::ServerFirst)?;
        Self::read(text).map_err(|problem| ServerFault::Malformed { message: Message::ServerFirst, problem })
    }

    fn read(text: &'a str) -> Result<Self, Malformed> {
        let mut attributes = Attributes(Some(text));
        let nonce = attributes.nonce()?;
        let salt = STANDARD.decode(attributes.take('s')?).map_err(|_| Malformed::Salt)?;
        let iterations = count(attributes.take('i')?).ok_or(Malformed::Iterations)?;
        attributes.extensions()?;
        Ok(Self { text, nonce, salt, iterations })
    }
}

/// The signature in a server-final message.
pub(super) fn server_signature(payload: &[u8]) -> Result<Vec<u8>, ServerFault> {
    let read = |mut attributes: Attributes<'_>| {
        let signature = STANDARD.decode(attributes.take('v')?).map_err(|_| Malformed::Signature)?;
        attributes.extensions()?;
        Ok(signature)
    };
    let text = server_text(payload, Message::ServerFinal)?;
    read(Attributes(Some(text))).map_err(|problem| ServerFault::Malformed { message: Message::ServerFinal, problem })
}

/// A user name as client-first carries it (AUTH-16).
pub(super) fn escape(username: &str) -> String {
    username.replace('=', "=3D").replace(',', "=2C")
}

/// A positive number without sign or leading zero.
fn count(digits: &str) -> Option<u64> {
    let well_formed = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Either server message can be a refusal instead.
fn server_text(payload: &[u8], message: Message) -> Result<&str, ServerFault> {
    let text = text(payload).map_err(|problem| ServerFault::Malformed { message, problem })?;
    match Attributes(Some(text)).take('e') {
        Ok(error) => Err(ServerFault::Refused(error.into())),
        Err(_) => Ok(text),
    }
}

pub(super) fn text(payload: &[u8]) -> Result<&str, Malformed> {
    if payload.len() > MAX_MESSAGE {
        return Err(Malformed::TooLong);
    }
    str::from_utf8(payload).map_err(|_| Malformed::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_escaped() {
        for (username, escaped) in [("user", "user"), ("a=b,c", "a=3Db=2Cc"), ("=2C", "=3D2C"), (",,", "=2C=2C")] {
            assert_eq!(escape(username), escaped);
        }
    }

    #[test]
    fn a_count_has_digits_only_and_saturates() {
        assert_eq!(count("4096"), Some(4096));
        assert_eq!(count("4294967296"), Some(4_294_967_296));
        assert_eq!(count("99999999999999999999999999"), Some(u64::MAX));
        for wrong in ["0", "04096", "+4096", "-1", "4096 ", "4e3", "\u{664}"] {
            assert_eq!(count(wrong), None, "{wrong:?}");
        }
    }
}
