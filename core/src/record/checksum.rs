//! CRC-32C with a seed in front, so that bytes of another log never pass for bytes of this one.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli) of the seed, little endian, followed by the parts.
pub fn checksum(seed: u64, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&seed.to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit CRC fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        // RFC 3720, B.4: 32 bytes of zeros have the CRC-32C 0x8a9136aa.
        assert_eq!(checksum(0, &[&[0; 24]]), 0x8a91_36aa);
        assert_eq!(checksum(0, &[&[0; 10], &[], &[0; 14]]), 0x8a91_36aa);
        assert_ne!(checksum(1, &[&[0; 24]]), 0x8a91_36aa);
    }
}
