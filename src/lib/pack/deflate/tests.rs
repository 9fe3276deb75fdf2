//! What is written is read by a library as what it was.

use super::Deflater;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use std::io::{Read, Write};

fn written(text: &[u8]) -> Vec<u8> {
    let mut out = vec![7];
    Deflater::new().write(text, &mut out);
    assert_eq!(out.remove(0), 7, "what is there already stays");
    out
}

fn read(stream: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut decoder = ZlibDecoder::new(stream);
    decoder.read_to_end(&mut text).unwrap();
    assert!(decoder.into_inner().is_empty(), "nothing is left over");
    text
}

#[test]
fn nothing_and_little() {
    for text in [&b""[..], b"a", b"ab", b"abc", b"aaaaaaaaaaaaaaaaaaaaaaa", &[0; 4096]] {
        let stream = written(text);
        assert_eq!(read(&stream), text);
        assert!(stream.len() <= text.len() + 11, "{} bytes of {}", stream.len(), text.len());
    }
}

fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn what_does_not_compress_is_stored() {
    for length in [1000, 65_535, 65_536, 131_072, 131_073, 400_000] {
        let text = noise(length, 1);
        let stream = written(&text);
        assert!(read(&stream) == text, "{length}");
        assert!(stream.len() <= length + 6 + 5 * (length / 65_535 + 4), "{} bytes of {length}", stream.len());
    }
}

#[test]
fn long_runs_and_far_matches() {
    let mut text = vec![0; 300_000];
    let strange = noise(40_000, 2);
    text.extend_from_slice(&strange);
    text.extend_from_slice(&strange);
    text.extend_from_slice(&strange[..30_000]);
    text.extend_from_slice(&strange[..30_000]);
    let stream = written(&text);
    assert!(read(&stream) == text);
    // The second 40,000 lie too far back for the window; the last 30,000 are one long match.
    assert!(stream.len() < 112_000, "{}", stream.len());
    // Both borders of the window, and of a block.
    for distance in [32_767, 32_768, 32_769] {
        let mut text = noise(distance, 3);
        text.extend_from_within(..distance.min(20_000));
        text.extend_from_within(..100_000.min(text.len()));
        assert!(read(&written(&text)) == text, "{distance}");
    }
}

/// The same memory for one stream after the other: nothing of the last one shows.
#[test]
fn streams_do_not_depend_on_those_before() {
    let mut deflater = Deflater::new();
    let mut first = Vec::new();
    deflater.write(&noise(10_000, 4).repeat(3), &mut first);
    for text in [noise(5000, 5).repeat(2), vec![1; 70_000], b"text".repeat(999)] {
        let mut again = Vec::new();
        deflater.write(&text, &mut again);
        assert!(again == written(&text));
        assert!(read(&again) == text);
    }
}

/// Records of scattered mappings: a tag, three bytes that are random, and one that is not (docs/format.md 10.2).
#[test]
fn scattered_mappings_get_smaller_than_with_a_library() {
    let random = noise(600_000, 6);
    let record = |bytes: &[u8]| [if bytes[0] & 1 == 0 { 0x24 } else { 0x44 }, bytes[1], bytes[2], bytes[0] & 0x7f, 0];
    let text: Vec<u8> = random.as_chunks::<3>().0.iter().flat_map(|bytes| record(bytes)).collect();
    let stream = written(&text);
    assert!(read(&stream) == text);
    let mut library = ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    library.write_all(&text).unwrap();
    let library = library.finish().unwrap().len();
    assert!(stream.len() * 100 < library * 98, "{} and {library}", stream.len());
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        (any::<u8>(), 0usize..3000).prop_map(|(byte, count)| vec![byte; count]),
        (prop::collection::vec(any::<u8>(), 1..60), 1usize..200).prop_map(|(bytes, times)| bytes.repeat(times)),
        (prop::collection::vec(0u8..4, 0..2000)),
        (0usize..40_000, any::<u64>()).prop_map(|(length, seed)| noise(length, seed)),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(text in pieces()) {
        let stream = written(&text);
        prop_assert!(read(&stream) == text);
        prop_assert!(stream.len() <= text.len() + 6 + 5 * (text.len() / 65_535 + text.len() / 131_072 + 2));
    }
}
