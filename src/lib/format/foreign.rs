//! Recognises what was given instead of metadata, so that a message can name it.

use super::block::{BLOCK_SIZE, Block, BlockKind, identify, le64};
use super::superblock::{CACHE_MAGIC, ERA_MAGIC};
use std::fmt;

/// Bytes from the beginning that [`recognise`] can make use of.
pub const HEAD_BYTES: usize = 68 << 10;
/// Bytes that have to be text for the whole to be taken for it.
const TEXT_BYTES: usize = 512;

/// Something that is not the metadata of a thin pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Nothing but zeros in the bytes that were looked at.
    Zeros,
    /// XML, as a dump has it.
    Xml,
    /// Other text.
    Text,
    /// A packed image.
    Pack,
    /// Metadata of a cache.
    Cache,
    /// Metadata of an era device.
    Era,
    /// Data compressed by gzip.
    Gzip,
    /// Data compressed by xz.
    Xz,
    /// Data compressed by zstd.
    Zstd,
    /// Data compressed by bzip2.
    Bzip2,
    /// A zip archive.
    Zip,
    /// A tar archive.
    Tar,
    /// A program or library.
    Elf,
    /// A disk image of QEMU.
    Qcow,
    /// An encrypted device, and the version of its header.
    Luks(u8),
    /// A physical volume of LVM.
    LvmVolume,
    /// A member of an MD array.
    MdMember,
    /// A file system.
    FileSystem(&'static str),
    /// Swap space.
    Swap,
    /// A disk with a partition table.
    Partitions(&'static str),
}

impl fmt::Display for Foreign {
    /// Words that fit behind "this looks like".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Zeros => "zeros: never used, or wiped",
            Foreign::Xml => "XML: a dump, which thin_restore writes to a device",
            Foreign::Text => "text",
            Foreign::Pack => "a packed image: copy it to a regular file, or unpack it with thin_metadata_unpack",
            Foreign::Cache => "metadata of a cache: use cache_check, cache_dump and so on",
            Foreign::Era => "metadata of an era device: use era_check, era_dump and so on",
            Foreign::Gzip => "gzip data",
            Foreign::Xz => "xz data",
            Foreign::Zstd => "zstd data",
            Foreign::Bzip2 => "bzip2 data: decompress it first",
            Foreign::Zip => "a zip archive: unpack it first",
            Foreign::Tar => "a tar archive: unpack it first",
            Foreign::Elf => "a program",
            Foreign::Qcow => "a qcow2 disk image: convert it to a raw image first",
            Foreign::Luks(version) => {
                return write!(f, "an encrypted device (LUKS{version}): open it and give the device that appears");
            }
            Foreign::LvmVolume => "a physical volume of LVM: give the pool's metadata volume, VG-POOL_tmeta",
            Foreign::MdMember => "a member of an MD array: give the array",
            Foreign::FileSystem(name) => return write!(f, "a {name} file system"),
            Foreign::Swap => "swap space",
            Foreign::Partitions(name) => {
                return write!(f, "a disk with {name}: give the device with the metadata on it");
            }
        })
    }
}

/// Byte strings that tell what something is, and where they lie. The strong ones come first.
const MAGICS: &[(usize, &[u8], Foreign)] = &[
    (0, b"\x77\xef\x09\x63\xaa\xa0\x37\xa5", Foreign::Pack),
    (0, b"\x1f\x8b\x08", Foreign::Gzip),
    (0, b"\xfd7zXZ\0", Foreign::Xz),
    (0, b"\x28\xb5\x2f\xfd", Foreign::Zstd),
    (0, b"BZh", Foreign::Bzip2),
    (0, b"PK\x03\x04", Foreign::Zip),
    (0, b"\x7fELF", Foreign::Elf),
    (0, b"QFI\xfb", Foreign::Qcow),
    (0, b"LUKS\xba\xbe\0\x01", Foreign::Luks(1)),
    (0, b"LUKS\xba\xbe\0\x02", Foreign::Luks(2)),
    (0, b"XFSB", Foreign::FileSystem("XFS")),
    (0, b"hsqs", Foreign::FileSystem("squashfs")),
    (0, b"\xfc\x4e\x2b\xa9", Foreign::MdMember),
    (4096, b"\xfc\x4e\x2b\xa9", Foreign::MdMember),
    (512, b"LABELONE", Foreign::LvmVolume),
    (512, b"EFI PART", Foreign::Partitions("GPT partitions")),
    (4096, b"EFI PART", Foreign::Partitions("GPT partitions")),
    (4086, b"SWAPSPACE2", Foreign::Swap),
    (4086, b"SWAP-SPACE", Foreign::Swap),
    (65_600, b"_BHRfS_M", Foreign::FileSystem("Btrfs")),
    (32_769, b"CD001", Foreign::FileSystem("ISO 9660")),
    (1024, b"\x10\x20\xf5\xf2", Foreign::FileSystem("F2FS")),
    (3, b"NTFS    ", Foreign::FileSystem("NTFS")),
    (54, b"FAT1", Foreign::FileSystem("FAT")),
    (82, b"FAT32", Foreign::FileSystem("FAT")),
    (257, b"ustar", Foreign::Tar),
    (1080, b"\x53\xef", Foreign::FileSystem("ext2, ext3 or ext4")),
    (510, b"\x55\xaa", Foreign::Partitions("MBR partitions")),
];

/// What the first bytes of a file or device say it is; `None` where they say nothing.
///
/// Good thin metadata is never taken for anything else, as its checksum is looked at first. The more bytes there are, up
/// to [`HEAD_BYTES`], the more is recognised.
pub fn recognise(bytes: &[u8]) -> Option<Foreign> {
    let first = bytes.get(..BLOCK_SIZE).and_then(|bytes| <&Block>::try_from(bytes).ok());
    if let Some(kind) = first.and_then(identify) {
        return match kind {
            BlockKind::CacheSuperblock => Some(Foreign::Cache),
            BlockKind::EraSuperblock => Some(Foreign::Era),
            _ => None,
        };
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(Foreign::Zeros);
    }
    if is_xml(bytes) {
        return Some(Foreign::Xml);
    }
    let has = |at: usize, magic: &[u8]| bytes.get(at..at.saturating_add(magic.len())) == Some(magic);
    if let Some((_, _, found)) = MAGICS.iter().find(|(at, magic, _)| has(*at, magic)) {
        return Some(*found);
    }
    match first.map(|block| le64(block, 32)) {
        Some(CACHE_MAGIC) => Some(Foreign::Cache),
        Some(ERA_MAGIC) => Some(Foreign::Era),
        _ => is_text(bytes).then_some(Foreign::Text),
    }
}

/// Whether this begins like an XML document, in UTF-8 or UTF-16.
fn is_xml(bytes: &[u8]) -> bool {
    if bytes.starts_with(b"\xff\xfe<\0") || bytes.starts_with(b"\xfe\xff\0<") {
        return true;
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    matches!(text, [b'<', b'?' | b'!' | b'a'..=b'z' | b'A'..=b'Z', ..])
}

fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(TEXT_BYTES)];
    let is_utf8 = match std::str::from_utf8(start) {
        Ok(_) => true,
        // Cut within a character.
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    is_utf8 && !start.iter().any(|byte| matches!(byte, 0..=8 | 14..=31 | 127))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::BlockNr;
    use crate::format::block::seal;

    fn with(at: usize, magic: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        bytes
    }

    #[test]
    fn every_magic_is_found_where_it_belongs_and_only_there() {
        for (at, magic, found) in MAGICS {
            assert_eq!(recognise(&with(*at, magic)), Some(*found), "{found:?}");
            let elsewhere = recognise(&with(at + 8, magic));
            assert!(elsewhere != Some(*found), "{found:?}");
            assert!(!found.to_string().is_empty());
        }
    }

    #[test]
    fn text_is_told_from_other_bytes() {
        let xml = "<superblock uuid=\"\" time=\"1\">";
        for prefix in ["", "\u{feff}", "\n  "] {
            assert_eq!(recognise(format!("{prefix}{xml}").as_bytes()), Some(Foreign::Xml));
        }
        assert_eq!(recognise(b"<?xml version=\"1.0\"?>"), Some(Foreign::Xml));
        assert_eq!(recognise(b"\xff\xfe<\0s\0"), Some(Foreign::Xml));
        assert_eq!(recognise("hello, wörld\n".as_bytes()), Some(Foreign::Text));
        assert_eq!(recognise(b"< 1 2 3"), Some(Foreign::Text));
        assert_eq!(recognise(b"hello\x01"), None);
        assert_eq!(recognise(&[0; 4096]), Some(Foreign::Zeros));
        assert_eq!(recognise(&[0xa5; 8192]), None);
    }

    #[test]
    fn metadata_is_known_by_its_checksum() {
        let mut bytes = with(1080, b"\x53\xef");
        let mut seal_as = |kind| {
            let mut block = [0; BLOCK_SIZE];
            block.copy_from_slice(&bytes[..BLOCK_SIZE]);
            seal(&mut block, kind, BlockNr(0));
            bytes[..BLOCK_SIZE].copy_from_slice(&block);
            recognise(&bytes)
        };
        assert_eq!(seal_as(BlockKind::CacheSuperblock), Some(Foreign::Cache));
        assert_eq!(seal_as(BlockKind::EraSuperblock), Some(Foreign::Era));
        assert_eq!(seal_as(BlockKind::ThinSuperblock), None);
        let mut damaged = vec![0xee; BLOCK_SIZE];
        damaged[32..40].copy_from_slice(&CACHE_MAGIC.to_le_bytes());
        assert_eq!(recognise(&damaged), Some(Foreign::Cache));
    }
}
