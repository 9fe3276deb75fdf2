//! Bodies for packed images and undo files.

use super::{Bytes, overlay};
use dmeta::base::BlockNr;
use dmeta::block::BlockSource;
use dmeta::block::memory::MemorySource;
use dmeta::format::block::{BLOCK_SIZE, crc32c};
use dmeta::pack::{decode, encode};
use dmeta::pdata::commit::Undo;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

const MAGIC: u64 = 0xA537_A0AA_6309_EF77;

fn file(bytes: &[u8]) -> File {
    thread_local! {
        static FILE: File = tempfile::tempfile().unwrap();
    }
    let mut file = FILE.with(|file| file.try_clone().unwrap());
    file.set_len(0).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// A packed image: bytes as they are, or instructions that are put into frames first.
pub fn pack(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let packed = match bytes.u8() % 2 {
        0 => bytes.rest().to_vec(),
        _ => frames(&mut bytes),
    };
    let file = file(&packed);
    let Ok(image) = decode(&file, packed.len() as u64, 1) else { return };
    assert!(image.nr_present() as u64 * BLOCK_SIZE as u64 <= (64 << 20) + 1024 * packed.len() as u64);
    if BlockSource::nr_blocks(&image) > 1 << 12 {
        return;
    }
    let mut out = Vec::new();
    encode(&image, &mut out, 1).unwrap();
    let again = decode(&self::file(&out), out.len() as u64, 1).unwrap();
    assert_eq!(BlockSource::nr_blocks(&image), BlockSource::nr_blocks(&again));
    let differs = (0..BlockSource::nr_blocks(&image)).map(BlockNr).find(|at| image.get(*at) != again.get(*at));
    assert_eq!(differs, None, "a block is another one when packed again");
}

/// A header, and frames of what follows; each begins with its length.
fn frames(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut packed = Vec::new();
    [MAGIC, 3, BLOCK_SIZE as u64, u64::from(bytes.u8())].iter().for_each(|n| packed.extend(n.to_le_bytes()));
    while !bytes.is_empty() {
        let length = usize::from(bytes.u16());
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes.take(length.max(1))).unwrap();
        let frame = encoder.finish().unwrap();
        packed.extend((frame.len() as u64).to_le_bytes());
        packed.extend(frame);
    }
    packed
}

/// An undo file, with its checksum made right.
pub fn undo(data: &[u8]) {
    let Some((how, body)) = data.split_first() else { return };
    let mut file = body.to_vec();
    if how % 2 == 1 {
        file.extend(crc32c(body).to_le_bytes());
    }
    let Ok(undo) = Undo::from_bytes(&file) else { return };
    assert_eq!(undo.to_bytes(), file);
    assert!(!undo.is_empty());
    // It puts back what it holds, or leaves all as it is.
    let sound = overlay::memory(&overlay::bases()[1].image).unwrap();
    let mut changed = sound.clone();
    let applied = undo.apply(&sound, &mut changed);
    let blocks = || (0..BlockSource::nr_blocks(&sound)).map(BlockNr);
    let differ = blocks().filter(|at| sound.get(*at) != changed.get(*at)).count();
    assert!(differ <= undo.len() && (applied.is_ok() || differ == 0), "refused, but {differ} blocks were written");
}

/// A good undo file for the second base, without its checksum.
pub fn undo_seed() -> Vec<u8> {
    let image: MemorySource = overlay::memory(&overlay::bases()[1].image).unwrap();
    let undo = Undo::of(&image, [BlockNr(3), BlockNr(18)], image.get(BlockNr(0)).unwrap()).unwrap();
    let mut bytes = undo.to_bytes();
    bytes.truncate(bytes.len() - 4);
    bytes
}
