//! CRC-32C, the checksum at the end of an OP_MSG (MSG-6).

use crc::{CRC_32_ISCSI, Crc, Table};

/// The length of a checksum.
pub(super) const CHECKSUM_LEN: usize = 4;

/// 16 KiB of tables, for a reply of megabytes.
static CRC_32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The checksum of all bytes of a message before the checksum itself.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }
}
