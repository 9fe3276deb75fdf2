//! Packed images: what is packed comes out again, and nothing else is taken.

use dmeta::base::BlockNr;
use dmeta::block::memory::MemorySource;
use dmeta::block::{BlockSource, ReadError};
use dmeta::format::block::{identify, seal};
use dmeta::format::{BLOCK_SIZE, Block, BlockKind};
use dmeta::pack;
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The compressed images in `testdata`.
fn kernel_images() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/kernel");
    let cases = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("image.img.xz"));
    let images: Vec<_> = cases.filter(|image| image.exists()).collect();
    assert!(images.len() > 10);
    images
}

/// All blocks, in order.
fn blocks(source: &dyn BlockSource) -> Vec<Box<Block>> {
    (0..source.nr_blocks()).map(|block| source.read(BlockNr(block)).unwrap()).collect()
}

fn packed(source: &dyn BlockSource, threads: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack::encode(source, &mut bytes, threads).unwrap();
    bytes
}

fn unpacked(bytes: &[u8], threads: usize) -> Result<MemorySource, pack::PackError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    pack::decode(&file, bytes.len() as u64, threads)
}

fn fault(bytes: &[u8]) -> String {
    match unpacked(bytes, 1) {
        Ok(_) => panic!("taken: {bytes:02x?}"),
        Err(error) => error.to_string(),
    }
}

fn header(nr_blocks: u64) -> Vec<u8> {
    let mut bytes = packed(&MemorySource::new(0), 1);
    bytes[24..].copy_from_slice(&nr_blocks.to_le_bytes());
    bytes
}

fn frame(records: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(records).unwrap();
    let stream = encoder.finish().unwrap();
    [&(stream.len() as u64).to_le_bytes()[..], &stream].concat()
}

fn sealed(kind: BlockKind, location: u64, fill: u8) -> Box<Block> {
    let mut block = Box::new([fill; BLOCK_SIZE]);
    seal(&mut block, kind, BlockNr(location));
    block
}

/// A record with the whole block as a literal.
fn record(location: u64, block: &Block) -> Vec<u8> {
    [&location.to_le_bytes()[..], &[0xa2, 0x00, 0x10], block].concat()
}

#[test]
fn images_that_a_kernel_wrote_come_out_again() {
    for path in kernel_images() {
        let image = pack::open::open(&path, &pack::OpenOptions::default()).unwrap();
        let bytes = packed(&*image.source, 1);
        assert_eq!(bytes, packed(&*image.source, 3), "{}: more threads, other bytes", path.display());
        for threads in [1, 3] {
            let back = unpacked(&bytes, threads).unwrap();
            assert_eq!(back.nr_blocks(), image.source.nr_blocks());
            for (number, (is, was)) in blocks(&back).into_iter().zip(blocks(&*image.source)).enumerate() {
                let expected = if identify(&was).is_some() { was } else { Box::new([0; BLOCK_SIZE]) };
                assert!(is == expected, "{}: block {number}", path.display());
            }
        }
    }
}

#[test]
fn no_block_is_dropped_at_any_size() {
    for nr_blocks in [1, 2, 127, 128, 1023, 1024, 1025, 4095, 4096, 4097, 5000] {
        let mut image = MemorySource::new(nr_blocks);
        for block in 0..nr_blocks {
            image.put(BlockNr(block), &sealed(BlockKind::Bitmap, block, 0)).unwrap();
        }
        let back = unpacked(&packed(&image, 2), 2).unwrap();
        assert_eq!(back.nr_present() as u64, nr_blocks);
        assert!(blocks(&back) == blocks(&image), "{nr_blocks} blocks");
    }
}

#[test]
fn blocks_far_beyond_any_metadata_take_no_memory_for_those_between() {
    let mut image = header(u64::MAX);
    image.extend(frame(&record(1 << 60, &sealed(BlockKind::Node, 5, 1))));
    let back = unpacked(&image, 1).unwrap();
    assert_eq!(back.read(BlockNr(1 << 60)).unwrap()[9..], sealed(BlockKind::Node, 5, 1)[9..]);
    assert_eq!(back.read(BlockNr(1 << 59)).unwrap()[..], [0; BLOCK_SIZE]);
}

#[test]
fn what_could_not_be_read_is_told() {
    let mut file = tempfile::tempfile().unwrap();
    for block in 0..20 {
        file.write_all(&sealed(BlockKind::Bitmap, block, 0)[..]).unwrap();
    }
    let source = dmeta::block::mapped::MappedSource::new(file.try_clone().unwrap(), 20).unwrap();
    file.set_len(12 * BLOCK_SIZE as u64).unwrap();
    let told = pack::encode(&source, &mut std::io::sink(), 2).unwrap();
    assert_eq!((told.nr_blocks, told.nr_packed, told.nr_skipped, told.nr_unreadable), (20, 12, 0, 8));
    assert!(told.unreadable.iter().all(|(block, error)| block.0 >= 12 && matches!(error, ReadError::Io(_))));
}

#[test]
fn an_output_that_fails_ends_the_packing() {
    let mut image = MemorySource::new(9000);
    for block in 0..9000 {
        image.put(BlockNr(block), &sealed(BlockKind::Bitmap, block, 0)).unwrap();
    }
    for threads in [1, 4] {
        let full = &mut File::options().write(true).open("/dev/full").unwrap();
        assert!(pack::encode(&image, full, threads).unwrap_err().to_string().contains("cannot write"));
    }
}

#[test]
fn damaged_packs_are_refused_and_the_place_is_named() {
    let good = sealed(BlockKind::Index, 3, 7);
    let with = |frames: &[Vec<u8>]| [header(10), frames.concat()].concat();
    assert!(unpacked(&with(&[frame(&record(3, &good))]), 1).is_ok());
    assert!(unpacked(&with(&[]), 1).is_ok());

    assert!(fault(&header(10)[..31]).contains("too short"));
    assert!(fault(&[&[1], &header(10)[1..]].concat()).contains("not a packed image"));
    assert!(fault(&[&header(10)[..8], &[2], &header(10)[9..]].concat()).contains("version 2"));
    assert!(fault(&[&header(10)[..17], &[0x20], &header(10)[18..]].concat()).contains("blocks have 8192 bytes"));

    let twice = with(&[frame(&record(3, &good)), frame(&record(3, &good))]);
    let second = 32 + frame(&record(3, &good)).len();
    assert!(fault(&twice).contains(&format!("frame 1 at byte {second} of the packed image")), "{}", fault(&twice));
    assert!(fault(&twice).contains("block 3 is there twice"));
    assert!(fault(&with(&[frame(&record(10, &good))])).contains("block 10 is past the end"));
    assert!(fault(&with(&[frame(&record(3, &[7; BLOCK_SIZE]))])).contains("block 3 has the checksum of no kind"));
    assert!(fault(&with(&[frame(&record(3, &good)[..4000])])).contains("ends within a block"));
    assert!(fault(&with(&[frame(&[record(3, &good), vec![1; 5]].concat())])).contains("ends within a block"));
    assert!(fault(&with(&[vec![0; 8]])).contains("it is empty"));
    assert!(fault(&with(&[vec![1; 7]])).contains("ends in its length field"));
    assert!(fault(&with(&[u64::MAX.to_le_bytes().to_vec()])).contains("only 0 are left"));
    let surplus = [&13u64.to_le_bytes()[..], &frame(&[])[8..], &[0; 5]].concat();
    assert!(fault(&with(&[surplus])).contains("5 bytes follow its compressed data"));
    let mut corrupt = frame(&record(3, &good));
    let last = corrupt.len() - 1;
    corrupt[last] ^= 1;
    assert!(fault(&with(&[corrupt])).contains("damaged"));
}

#[test]
fn a_check_says_what_is_there_and_keeps_nothing() {
    let mut image = MemorySource::new(3000);
    for block in 0..2000 {
        image.put(BlockNr(block), &sealed(BlockKind::Bitmap, block, 0)).unwrap();
    }
    let mut bytes = packed(&image, 1);
    let check = |bytes: &[u8], threads| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        pack::check(&file, bytes.len() as u64, threads)
    };
    for threads in [1, 3] {
        assert_eq!(check(&bytes, threads).unwrap(), pack::Contents { nr_blocks: 3000, nr_packed: 2000 });
    }
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(check(&bytes, 3).unwrap_err().to_string(), fault(&bytes));
}

#[test]
fn a_bomb_is_refused() {
    // A node without entries again and again at other places: two bytes for each, compressed.
    let node = sealed(BlockKind::Node, 0, 0);
    let rest = [0xa1, 0x20].iter().chain(&node[..32]).chain(&[0x01, 0, 0x61, 0xfb]).copied().collect::<Vec<u8>>();
    let records: Vec<u8> = (0..100_000u64).flat_map(|block| [&block.to_le_bytes()[..], &rest].concat()).collect();
    let bomb = [header(1 << 22), frame(&records)].concat();
    for threads in [1, 2] {
        let error = unpacked(&bomb, threads).unwrap_err().to_string();
        assert!(error.contains("unfolds to more than"), "{error}");
    }
}

#[test]
fn a_pack_cut_anywhere_is_refused() {
    let mut image = MemorySource::new(3000);
    for block in [0, 1, 2, 1500, 2500] {
        image.put(BlockNr(block), &sealed(BlockKind::Bitmap, block, 0)).unwrap();
    }
    let bytes = packed(&image, 1);
    let nr_accepted = (0..bytes.len()).filter(|len| unpacked(&bytes[..*len], 1).is_ok()).count();
    // Between two frames the format has nothing that tells that more should follow.
    assert_eq!(nr_accepted, 3);
}

#[test]
fn with_many_threads_the_first_fault_is_named() {
    let mut bytes = header(1 << 20);
    for index in 0..300u64 {
        let fill = if index % 100 == 70 { [0xee; BLOCK_SIZE] } else { *sealed(BlockKind::Bitmap, index, 0) };
        let mut noise = [0; BLOCK_SIZE];
        let mut state = index + 1;
        noise.fill_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        seal(&mut noise, BlockKind::Bitmap, BlockNr(index));
        let records = [record(2 * index, &noise), record(2 * index + 1, &fill)].concat();
        bytes.extend(frame(&records));
    }
    assert!(bytes.len() > 1 << 20, "enough for several threads");
    let alone = unpacked(&bytes, 1).unwrap_err().to_string();
    assert!(alone.starts_with("frame 70 "), "{alone}");
    for _ in 0..5 {
        assert_eq!(unpacked(&bytes, 4).unwrap_err().to_string(), alone);
    }
}

/// Nodes with any header, good or not, and blocks of other kinds.
fn any_block() -> impl Strategy<Value = Box<Block>> {
    let kind = prop::sample::select(BlockKind::ALL.to_vec());
    let flags = prop::sample::select(vec![0, 1, 2, 3, u32::MAX]);
    let capacity = prop::sample::select(vec![0u32, 1, 126, 252, 253, 254, 255, 336, 508, 509, u32::MAX]);
    let value_size = prop::sample::select(vec![0u32, 4, 8, 16, 24, u32::MAX]);
    let words = prop::collection::vec((any::<u64>(), 0u32..64, 1usize..40, 0u64..300), 1..60);
    (kind, flags, capacity, value_size, words).prop_map(|(kind, flags, capacity, value_size, runs)| {
        let mut block = Box::new([0; BLOCK_SIZE]);
        let words = runs.into_iter().flat_map(|(start, shift, len, step)| {
            (0..len as u64).map(move |n| (start >> shift).wrapping_add(n.wrapping_mul(step)))
        });
        for (place, word) in block[32..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        for (at, field) in [(4, flags), (20, capacity), (24, value_size)] {
            block[at..at + 4].copy_from_slice(&field.to_le_bytes());
        }
        seal(&mut block, kind, BlockNr(1));
        block
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_block_comes_out_again(blocks_in in prop::collection::vec(any_block(), 1..8)) {
        let mut image = MemorySource::new(blocks_in.len() as u64);
        for (number, block) in blocks_in.iter().enumerate() {
            image.put(BlockNr(number as u64), block).unwrap();
        }
        let back = unpacked(&packed(&image, 1), 1).unwrap();
        assert!(blocks(&back) == blocks_in);
    }

    #[test]
    fn any_instructions_end(records in prop::collection::vec(any::<u8>(), 0..6000)) {
        let _ = unpacked(&[header(1000), frame(&records)].concat(), 1);
    }

    #[test]
    fn any_change_to_a_pack_is_noticed(at in 32usize..2000, flip in 1u8..) {
        let mut image = MemorySource::new(50);
        for block in 0..50 {
            image.put(BlockNr(block), &sealed(BlockKind::Bitmap, block, block as u8)).unwrap();
        }
        let mut bytes = packed(&image, 1);
        let at = at % (bytes.len() - 32) + 32;
        bytes[at] ^= flip;
        if let Ok(back) = unpacked(&bytes, 1) {
            // A compressed stream has a bit or two without meaning.
            assert!(blocks(&back) == blocks(&image));
        }
    }
}
