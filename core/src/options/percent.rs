//! Percent-encoding in connection strings: `%` and two hexadecimal digits stand for one byte.
//!
//! Unlike the usual decoders this one refuses a `%` that is not followed by two digits (URI-2), because a user who did
//! not know that `%` must be encoded would otherwise get a password that is not theirs. `+` stands for itself.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

/// Why a text cannot be decoded. Never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// A `%` without two hexadecimal digits.
    #[error("a % is not followed by two hexadecimal digits; write a % itself as %25")]
    BadEscape,
    /// The decoded bytes are not UTF-8.
    #[error("the decoded bytes are not UTF-8; percent-encode each byte of the UTF-8 form")]
    NotUtf8,
}

/// Decodes `text`. The result may be secret, and is treated so; no other copy of it stays in memory.
pub(super) fn decode(text: &str) -> Result<Zeroizing<String>, EncodingError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte == b'%' {
            let [high, low, after @ ..] = after else { return Err(EncodingError::BadEscape) };
            bytes.push((digit(*high)? << 4) | digit(*low)?);
            rest = after;
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    match String::from_utf8(core::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            error.into_bytes().zeroize();
            Err(EncodingError::NotUtf8)
        }
    }
}

fn digit(byte: u8) -> Result<u8, EncodingError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(EncodingError::BadEscape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes_and_the_rest_stays() {
        assert_eq!(decode("%2Ftmp%2fa+b%20c").as_deref().map(String::as_str), Ok("/tmp/a+b c"));
        assert_eq!(decode("b%C3%BCcher ü").as_deref().map(String::as_str), Ok("bücher ü"));
        assert_eq!(decode("").as_deref().map(String::as_str), Ok(""));
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for text in ["%", "%2", "a%zz", "%2g", "%%20", "%é"] {
            assert_eq!(decode(text), Err(EncodingError::BadEscape), "{text}");
        }
        assert_eq!(decode("%FF"), Err(EncodingError::NotUtf8));
    }
}
