//! Reads SCRAM's messages as a server does: attributes in a fixed order, separated by commas (RFC 5802, section 7).
//!
//! The required parts of a message are checked to the letter; extensions after them are allowed and ignored, as the RFC
//! asks, except `m=`, which requires that they are understood.

use std::str;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cmap_core::connection::auth::MAX_MESSAGE;

use super::error::{ClientFault, Malformed, Message};

/// What client-final says about the header of a client-first without channel binding, `n,,`.
const GS2_HEADER_BASE64: &str = "biws";

pub(super) struct ClientFirst<'a> {
    pub(super) username: String,
    pub(super) nonce: &'a str,
    /// The message without its header.
    pub(super) bare: &'a str,
}

pub(super) struct ClientFinal<'a> {
    pub(super) nonce: &'a str,
    pub(super) proof: Vec<u8>,
    /// The message without its proof.
    pub(super) without_proof: &'a str,
}

impl<'a> ClientFirst<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, ClientFault> {
        let malformed = |problem| ClientFault::Malformed { message: Message::ClientFirst, problem };
        let text = text(payload).map_err(malformed)?;
        let (binding, rest) = text.split_once(',').ok_or(malformed(Malformed::Header))?;
        let (identity, bare) = rest.split_once(',').ok_or(malformed(Malformed::Header))?;
        match (binding, identity) {
            // `y` is a client that supports channel binding but thinks that the server does not: it is right, and
            // repeats that in client-final. MongoDB's clients all send `n`, and one header fewer is one mistake fewer.
            ("n", "") => {}
            (binding, _) if binding == "y" || binding.starts_with("p=") => return Err(ClientFault::ChannelBinding),
            ("n", identity) if identity.starts_with("a=") => return Err(ClientFault::AuthorizationIdentity),
            _ => return Err(malformed(Malformed::Header)),
        }
        let mut attributes = Attributes(Some(bare));
        let username = attributes.take('n').and_then(unescape).map_err(malformed)?;
        let nonce = attributes.nonce().map_err(malformed)?;
        attributes.extensions().map_err(malformed)?;
        Ok(Self { username, nonce, bare })
    }
}

impl<'a> ClientFinal<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, ClientFault> {
        let malformed = |problem| ClientFault::Malformed { message: Message::ClientFinal, problem };
        let text = text(payload).map_err(malformed)?;
        // The proof is the last attribute, whatever extensions there are.
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(malformed(Malformed::Attribute('p')))?;
        let mut attributes = Attributes(Some(without_proof));
        let header = attributes.take('c').map_err(malformed)?;
        let nonce = attributes.nonce().map_err(malformed)?;
        attributes.extensions().map_err(malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| malformed(Malformed::Proof))?;
        if header != GS2_HEADER_BASE64 {
            return Err(ClientFault::ChannelBinding);
        }
        Ok(Self { nonce, proof, without_proof })
    }
}

/// The attributes of a message that have not been read yet.
struct Attributes<'a>(Option<&'a str>);

impl<'a> Attributes<'a> {
    /// The value of the next attribute, which must be called `name`.
    fn take(&mut self, name: char) -> Result<&'a str, Malformed> {
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
    fn extensions(mut self) -> Result<(), Malformed> {
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

    fn nonce(&mut self) -> Result<&'a str, Malformed> {
        let nonce = self.take('r')?;
        if nonce.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(nonce) } else { Err(Malformed::Nonce) }
    }
}

fn text(payload: &[u8]) -> Result<&str, Malformed> {
    if payload.len() > MAX_MESSAGE {
        return Err(Malformed::TooLong);
    }
    str::from_utf8(payload).map_err(|_| Malformed::NotUtf8)
}

/// A user name as it was before the client escaped it.
fn unescape(username: &str) -> Result<String, Malformed> {
    let mut parts = username.split('=');
    let mut result = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (None, Some(rest)) => ('=', rest),
            (None, None) => return Err(Malformed::Username),
        };
        result.push(escaped);
        result.push_str(rest);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_escaped_and_back() {
        for (username, escaped) in [("user", "user"), ("a=b,c", "a=3Db=2Cc"), ("=2C", "=3D2C"), (",,", "=2C=2C")] {
            assert_eq!(unescape(escaped).as_deref(), Ok(username));
        }
        for wrong in ["a=", "a=2c", "a==", "=41"] {
            assert_eq!(unescape(wrong), Err(Malformed::Username), "{wrong}");
        }
    }
}
