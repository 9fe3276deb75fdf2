//! The same image in any form gives the same blocks.

use dmeta::base::BlockNr;
use dmeta::block::BlockSource;
use dmeta::format::Block;
use dmeta::pack::open::{Access, OpenOptions, open};
use dmeta::pack::{self, Compression, Form};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn image(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kernel").join(case).join("image.img.xz")
}

fn raw(case: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = BufReader::new(File::open(image(case)).unwrap());
    Compression::Xz.reader(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn blocks(source: &dyn BlockSource) -> Vec<Box<Block>> {
    let all: Vec<_> = (0..source.nr_blocks()).map(BlockNr).collect();
    let mut blocks = Vec::new();
    source.read_many(&all, &mut |_, block| {
        blocks.push(Box::new(*block.unwrap()));
        ControlFlow::Continue(())
    });
    blocks
}

fn opened(bytes: &[u8], options: &OpenOptions) -> (Vec<Box<Block>>, Form, u64) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let opened = open(file.path(), options).unwrap();
    (blocks(&*opened.source), opened.form, opened.trailing_bytes)
}

#[test]
fn every_form_gives_the_same_blocks() {
    let raw = raw("thin-snaps");
    let chunks: Vec<Box<Block>> = raw.chunks_exact(4096).map(|chunk| Box::new(chunk.try_into().unwrap())).collect();
    let mut packed = Vec::new();
    pack::encode(&*open(&image("thin-snaps"), &OpenOptions::default()).unwrap().source, &mut packed, 2).unwrap();

    let mapped = OpenOptions::default();
    let direct = OpenOptions { direct: true, ..mapped };
    let live = OpenOptions { access: Access::Live, ..mapped };
    let compressed = |compression, pack| Form::Compressed { compression, pack };
    let forms: Vec<(&str, Vec<u8>, Form)> = vec![
        ("raw", raw.clone(), Form::RawFile),
        ("packed", packed.clone(), Form::Pack),
        ("gzip", gzip(&raw), compressed(Compression::Gzip, false)),
        ("xz", fs::read(image("thin-snaps")).unwrap(), compressed(Compression::Xz, false)),
        ("zstd", zstd(&raw), compressed(Compression::Zstd, false)),
        ("gzipped pack", gzip(&packed), compressed(Compression::Gzip, true)),
        ("zstd of pack", zstd(&packed), compressed(Compression::Zstd, true)),
    ];
    for (name, bytes, form) in forms {
        for options in [mapped, direct, live] {
            let (blocks, found, trailing) = opened(&bytes, &options);
            assert_eq!((found, trailing), (form, 0), "{name}");
            assert!(blocks == chunks, "{name} differs with {options:?}");
        }
    }
}

#[test]
fn bytes_after_the_last_block_are_told_in_every_form() {
    let bytes = [&raw("thin-empty")[..3 * 4096], b"rest"].concat();
    for bytes in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
        let (blocks, _, trailing) = opened(&bytes, &OpenOptions::default());
        assert_eq!((blocks.len(), trailing), (3, 4));
    }
}

fn refusal(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let message = match open(file.path(), &OpenOptions::default()) {
        Ok(opened) => panic!("taken as {:?} of {} blocks", opened.form, opened.source.nr_blocks()),
        Err(error) => error.to_string(),
    };
    let path = file.path().display().to_string();
    assert!(message.contains(&path), "{message}");
    message.replace(&path, "PATH")
}

#[test]
fn what_is_no_metadata_in_any_form_is_refused() {
    let xml = b"<superblock uuid=\"\" time=\"0\">\n</superblock>\n";
    for bytes in [xml.to_vec(), gzip(xml), zstd(xml), [&xml[..], &[b' '; 5000]].concat()] {
        assert!(refusal(&bytes).contains("PATH' is XML, not binary metadata: write it"), "{}", refusal(&bytes));
    }
    for bytes in [vec![7; 4095], gzip(&[7; 4095]), zstd(&[7; 4095]), gzip(b"")] {
        assert!(refusal(&bytes).contains("too small to hold metadata"), "{}", refusal(&bytes));
    }
    assert!(refusal(b"BZh91AY&SY and so on").contains("bzip2: decompress it first"));

    let raw = raw("thin-snaps");
    let xz = fs::read(image("thin-snaps")).unwrap();
    for (name, compressed) in [("gzip", gzip(&raw)), ("zstd", zstd(&raw)), ("xz", xz)] {
        for len in [20, compressed.len() / 2, compressed.len() - 1] {
            let message = refusal(&compressed[..len]);
            assert!(message.contains(&format!("compressed with {name}: cannot decompress it")), "{len}: {message}");
        }
    }
    let mut packed = Vec::new();
    pack::encode(&*open(&image("thin-snaps"), &OpenOptions::default()).unwrap().source, &mut packed, 1).unwrap();
    packed.pop();
    for bytes in [packed.clone(), gzip(&packed)] {
        assert!(refusal(&bytes).contains("a packed image that cannot be used: frame"), "{}", refusal(&bytes));
    }
}

#[test]
fn images_that_unfold_beyond_measure_are_refused() {
    let message = refusal(&zstd(&vec![0xaa; 80 << 20]));
    assert!(message.contains("compressed with zstd: decompressed, more than 17"), "{message}");
    assert!(message.contains("are not zeros, which no metadata"), "{message}");
}

#[test]
fn several_streams_in_a_row_are_one() {
    let raw = raw("thin-empty");
    let (first, second) = raw.split_at(5000);
    // A frame of zstd that is to be skipped.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let zstds = [zstd(first), skipped, zstd(second)].concat();
    for bytes in [[gzip(first), gzip(second)].concat(), zstds] {
        let (blocks, ..) = opened(&bytes, &OpenOptions::default());
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
        assert!(bytes == raw);
    }
}

#[test]
fn damaged_compressed_data_never_panic() {
    let raw = &raw("thin-one")[..64 << 10];
    let xz = fs::read(image("thin-one")).unwrap();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for compressed in [gzip(raw), zstd(raw), xz] {
        for _ in 0..300 {
            let mut bytes = compressed.clone();
            for _ in 0..1 + random() % 3 {
                let at = 6 + random() % (bytes.len() - 6);
                bytes[at] ^= 1 << (random() % 8);
            }
            let compression = Compression::recognise(&bytes).unwrap();
            let mut stream = compression.reader(&bytes[..]).take(64 << 20);
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    }
}
