//! Decoders under fire: whatever the bytes, no panic, no memory beyond a bound, and nothing believed that a checksum
//! denies.
//!
//! Each decoder that a room lists in its `DECODERS` reads its corpus, `corpus/<decoder>/`, and bytes that grow out of it by seeded mutation, as
//! they are and with their checksums made right again. Files of the corpus that begin with `good` are read; those that
//! begin with `bad` are refused: put there what was once taken wrongly. `TIDEWIRE_REGENERATE=1` writes the good ones anew
//! as long as the format may change; longer runs: [`Seeds`](tidewire_core::trials::Seeds).
//!
//! The allocator counts for the whole process: this test is alone in its binary.
#![expect(clippy::disallowed_methods, reason = "reads and writes files of the source tree")]
#![expect(clippy::panic, reason = "a claim that fails")]

use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap::Cap;
use tidewire_core::random::Random;
use tidewire_core::trials::{Decoder, Seeds, mutate};
use tidewire_core::{cursors, record, transport, tree, wal};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

const CLAIM: &str = "no_bytes_make_a_decoder_panic_take_memory_or_believe_what_a_checksum_denies";
/// Mutations of each decoder for one seed.
const ROUNDS: usize = 40;

fn decoders() -> Vec<Decoder> {
    let rooms = [record::DECODERS, wal::file::DECODERS, transport::DECODERS, cursors::DECODERS];
    rooms.iter().chain(tree::DECODERS).copied().flatten().cloned().collect()
}

fn corpus(decoder: &Decoder) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(decoder.name)
}

/// What lies in the corpus of a decoder: whether it is good, its name, its bytes.
fn read_corpus(decoder: &Decoder) -> Vec<(bool, String, Vec<u8>)> {
    let entries =
        std::fs::read_dir(corpus(decoder)).unwrap_or_else(|error| panic!("{}: {error}", decoder.name));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        assert!(name.starts_with("good") || name.starts_with("bad"), "{name}");
        (name.starts_with("good"), name, std::fs::read(path).expect("read"))
    };
    files.iter().map(read).collect()
}

fn regenerate() {
    for decoder in decoders() {
        std::fs::create_dir_all(corpus(&decoder)).expect("created");
        for (at, sample) in (decoder.samples)().into_iter().enumerate() {
            std::fs::write(corpus(&decoder).join(format!("good-{at}.bin")), sample).expect("written");
        }
    }
}

/// What a decoder makes of bytes, and how much it allocated on the way.
fn fire(decoder: &Decoder, bytes: &[u8]) -> (Result<(), String>, usize) {
    let before = MEMORY.total_allocated();
    let read = catch_unwind(AssertUnwindSafe(|| (decoder.decode)(bytes)));
    let taken = MEMORY.total_allocated() - before;
    match read {
        Ok(read) => (read, taken),
        Err(_) => panic!("{} panics on {}", decoder.name, hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fires, and fails when the bound of memory is broken. Says whether the bytes were read.
fn reads(decoder: &Decoder, bytes: &[u8], most: &mut usize) -> bool {
    let (read, taken) = fire(decoder, bytes);
    let bound = decoder.fixed_bytes + decoder.bytes_per_byte * bytes.len();
    assert!(
        taken <= bound,
        "{} took {taken} bytes of memory, at most {bound}, for {}",
        decoder.name,
        hex(bytes)
    );
    *most = taken.saturating_sub(decoder.fixed_bytes).div_ceil(bytes.len().max(1)).max(*most);
    read.is_ok()
}

/// Mutations of one decoder's samples; how many of them were read, with checksums as they are and made right.
fn under_fire(decoder: &Decoder, samples: &[Vec<u8>], random: &Random, most: &mut usize) -> [u64; 2] {
    let any = || &samples[usize::try_from(random.below(samples.len() as u64)).expect("few")];
    let mut taken = [0; 2];
    for _ in 0..ROUNDS {
        let mut bytes = mutate(any(), any(), random);
        let read = reads(decoder, &bytes, most);
        let known = samples.contains(&bytes);
        assert!(
            !read || known || decoder.seal.is_none(),
            "{} believes bytes that its checksum denies: {}",
            decoder.name,
            hex(&bytes)
        );
        taken[0] += u64::from(read && !known);
        if let Some(seal) = decoder.seal {
            seal(&mut bytes);
            taken[1] += u64::from(reads(decoder, &bytes, most) && !samples.contains(&bytes));
        }
    }
    taken
}

#[test]
fn no_bytes_make_a_decoder_panic_take_memory_or_believe_what_a_checksum_denies() {
    if std::env::var_os("TIDEWIRE_REGENERATE").is_some() {
        regenerate();
    }
    let decoders = decoders();
    let mut samples = Vec::new();
    let mut most = vec![0; decoders.len()];
    for (decoder, most) in decoders.iter().zip(&mut most) {
        let corpus = read_corpus(decoder);
        for (good, name, bytes) in &corpus {
            assert_eq!(reads(decoder, bytes, most), *good, "corpus/{}/{name}", decoder.name);
        }
        for sample in (decoder.samples)() {
            let there = corpus.iter().any(|(good, _, bytes)| *good && *bytes == sample);
            assert!(
                there,
                "{}: what is written today is not in the corpus: TIDEWIRE_REGENERATE=1",
                decoder.name
            );
        }
        samples.push(corpus.into_iter().map(|(_, _, bytes)| bytes).collect::<Vec<_>>());
    }
    let mut seeds = Seeds::new(CLAIM, Duration::from_secs(2), 0.25);
    let mut taken = vec![[0; 2]; decoders.len()];
    while let Some(seed) = seeds.next() {
        let random = Random::from_seed(seed);
        for (at, decoder) in decoders.iter().enumerate() {
            let read = under_fire(decoder, &samples[at], &random, &mut most[at]);
            taken[at] = [taken[at][0] + read[0], taken[at][1] + read[1]];
        }
        seeds.did((ROUNDS * decoders.len()) as u64);
    }
    for (at, decoder) in decoders.iter().enumerate() {
        let ([plain, sealed], most) = (taken[at], most[at]);
        println!(
            "{}: {plain} changed ones read, {sealed} with a right checksum; {most} bytes a byte",
            decoder.name
        );
        assert!(
            decoder.seal.is_none() || sealed > 0 || seeds.taken() < 20,
            "{}: nothing gets behind the checksum",
            decoder.name
        );
    }
}
