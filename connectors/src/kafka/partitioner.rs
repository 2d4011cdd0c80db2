//! Which partition a key belongs to: exactly as the Java client decides for records with a key, so that whoever writes
//! to or reads from the topic with that client finds a key where it is expected.

const SEED: u32 = 0x9747_b28c;
const MIX: u32 = 0x5bd1_e995;

/// The partition of a key among `partitions`, which is at least one.
pub(super) fn partition_of(key: &[u8], partitions: u32) -> i32 {
    let partition = (murmur2(key) & 0x7fff_ffff) % partitions;
    i32::try_from(partition).expect("a remainder of 31 bits has at most 31 bits")
}

/// The 32-bit MurmurHash2 with the seed of Kafka.
fn murmur2(bytes: &[u8]) -> u32 {
    // The Java client hashes arrays, whose length is an int.
    let mut hash = SEED ^ u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MIX);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(MIX) ^ mixed.wrapping_mul(MIX);
    }
    for (at, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by `Utils.murmur2` and `Utils.toPositive` of kafka-clients 4.1.0: the hash, the partition among 6, and
    /// among 1,000.
    const OF_JAVA: &[(&[u8], u32, i32, i32)] = &[
        (b"", 0x106e_08d9, 3, 681),
        (b"a", 0xa2d0_b27c, 4, 524),
        (b"ab", 0x12d8_262a, 2, 434),
        (b"abc", 0x1c94_221b, 3, 107),
        (b"abcd", 0xb11a_b5f4, 2, 100),
        (b"order-17", 0x5d7a_a5f1, 3, 961),
        (b"21", 0xc5f2_f8ec, 0, 340),
        (b"foobar", 0xd0e4_7bbe, 0, 166),
        (b"a-little-bit-long-string", 0xc53b_1da0, 2, 112),
        (b"a-little-bit-longer-string", 0xa768_c9c3, 5, 819),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 0xfc7d_49cd, 5, 677),
        (b"\xff\x80\x00\x01\xfe", 0xf5a7_ad70, 2, 184),
        (b"\xff", 0xed6f_615b, 3, 963),
        (b"\x00\x80", 0x1381_5c85, 1, 933),
        (b"\x01\x02\xff", 0xed78_1afd, 1, 773),
        ("grün".as_bytes(), 0x14e6_7801, 5, 321),
    ];

    #[test]
    fn a_key_has_the_hash_and_the_partition_of_the_java_client() {
        for (key, hash, of_six, of_thousand) in OF_JAVA {
            assert_eq!(murmur2(key), *hash, "{key:?}");
            assert_eq!(partition_of(key, 6), *of_six, "{key:?}");
            assert_eq!(partition_of(key, 1_000), *of_thousand, "{key:?}");
        }
    }

    #[test]
    fn a_hundred_thousand_keys_lie_where_the_java_client_puts_them() {
        // The same loop over the Java client's hash, on 64-bit integers that wrap.
        let digest = (0..100_000).fold(0_u64, |digest, at| {
            let partition = partition_of(format!("key-{at}").as_bytes(), 7);
            digest.wrapping_mul(31).wrapping_add(u64::try_from(partition).unwrap())
        });
        assert_eq!(digest, 16_180_752_694_605_603_304);
    }
}
