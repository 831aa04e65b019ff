//! The subjects of certificates, by which users log in.

use core::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use x509_cert::name::Name;

/// The certificate that a client has shown, which was verified.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its subject, as [`canonical`] writes it.
    pub subject: String,
    /// Whether the hub trusts its authority still.
    pub is_trusted: Arc<AtomicBool>,
}

impl Certificate {
    /// Whether it proves somebody.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Relaxed)
    }
}

/// A subject as one text, however it was written: programs name attributes differently, and escape other characters. What is no subject stays as
/// it is.
pub fn canonical(subject: &str) -> String {
    Name::from_str(&unescaped(subject)).map_or_else(|_| subject.to_owned(), |name| name.to_string())
}

/// Without the escapes `\C3\BC` of characters beyond ASCII, which OpenSSL writes and RFC 4514 allows.
fn unescaped(subject: &str) -> String {
    let mut bytes = Vec::with_capacity(subject.len());
    let mut rest = subject.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'\\').and_then(|digits| {
            let byte = u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?;
            (byte >= 0x80).then_some(byte)
        });
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| subject.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_text_however_programs_write_it() {
        for (one, other) in [
            ("CN=client,O=shop", "cn=client,o=shop"),
            ("emailAddress=a@b.example,CN=client", "EMAIL=a@b.example,CN=client"),
            ("serialNumber=7,CN=client", "SERIALNUMBER=7,CN=client"),
            ("title=x,street=y,CN=client", "TITLE=x,STREET=y,CN=client"),
            (r"O=M\C3\BCller,CN=client", "O=Müller,CN=client"),
            (r"O=a\, b,CN=client", r"O=a\, b,CN=client"),
        ] {
            assert_eq!(canonical(one), canonical(other), "{one}");
        }
    }

    #[test]
    fn other_subjects_are_others_and_what_is_none_stays_as_it_is() {
        for (one, other) in [
            ("CN=client,O=shop", "CN=client,O=shops"),
            ("CN=client,O=shop", "O=shop,CN=client"),
            (r"CN=a\,O=b", "CN=a,O=b"),
            ("CN=a+O=b", "CN=a,O=b"),
        ] {
            assert_ne!(canonical(one), canonical(other), "{one}");
        }
        for text in ["", "anna", r"\C3", "CN=a,", "=", "NOSUCH=x"] {
            assert_eq!(canonical(text), text);
        }
    }
}
