//! The flags of an OP_MSG.
//!
//! The low sixteen bits change how a message must be read, so an unknown one is an error; the high sixteen are hints,
//! so an unknown one is ignored (MSG-5).

use super::error::WireError;

/// The flags of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    bits: u32,
}

impl Flags {
    /// No flag: an acknowledged request, or the only reply to one.
    pub const NONE: Self = Self { bits: 0 };
    /// The message ends in a checksum (MSG-6).
    pub const CHECKSUM_PRESENT: Self = Self { bits: 1 };
    /// In a request: the server must not reply (MSG-7, SRV-4). In a reply: another reply follows unasked (MSG-8).
    pub const MORE_TO_COME: Self = Self { bits: 1 << 1 };
    /// The client can take several replies to this one request. Only for getMore and hello (MSG-9).
    pub const EXHAUST_ALLOWED: Self = Self { bits: 1 << 16 };

    const KNOWN: u32 = Self::CHECKSUM_PRESENT.bits | Self::MORE_TO_COME.bits | Self::EXHAUST_ALLOWED.bits;
    const MUST_BE_KNOWN: u32 = 0xffff;

    /// The flags in these bits.
    pub fn from_bits(bits: u32) -> Result<Self, WireError> {
        match bits & Self::MUST_BE_KNOWN & !Self::KNOWN {
            0 => Ok(Self { bits: bits & Self::KNOWN }),
            unknown => Err(WireError::UnknownFlags(unknown)),
        }
    }

    /// The bits of the flags; bits without a meaning are zero.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Adds the flags of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits }
    }

    /// Whether all of `other`'s flags are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.bits & other.bits == other.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_must_be_known_and_high_ones_need_not() {
        for bit in 0..32 {
            let flags = Flags::from_bits(1 << bit);
            match bit {
                0 | 1 | 16 => assert_eq!(flags.map(Flags::bits), Ok(1 << bit)),
                2..16 => assert_eq!(flags, Err(WireError::UnknownFlags(1 << bit))),
                _ => assert_eq!(flags, Ok(Flags::NONE)),
            }
        }
    }
}
