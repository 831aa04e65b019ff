//! Reads SCRAM's messages as a server does: the client's.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::error::{ClientFault, Malformed, Message};
use super::GS2_HEADER_BASE64;
use super::message::{Attributes, text};

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
            // `y` is a client that would bind but thinks that we cannot: it is right, and says so in client-final too.
            // MongoDB's clients all say `n`, and one header fewer is one mistake fewer.
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
    use super::super::message::escape;
    use super::*;

    #[test]
    fn usernames_are_escaped_and_back() {
        for (username, escaped) in [("user", "user"), ("a=b,c", "a=3Db=2Cc"), ("=2C", "=3D2C"), (",,", "=2C=2C")] {
            assert_eq!(escape(username), escaped);
            assert_eq!(unescape(escaped).as_deref(), Ok(username));
        }
        for wrong in ["a=", "a=2c", "a==", "=41"] {
            assert_eq!(unescape(wrong), Err(Malformed::Username), "{wrong}");
        }
    }
}
