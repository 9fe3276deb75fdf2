//! The first bytes of a packed image (docs/format.md 10.1).

use super::decode::PackError;
use crate::format::BLOCK_SIZE;

/// The first eight bytes, little endian.
pub const MAGIC: u64 = 0xA537_A0AA_6309_EF77;
/// The only version there is.
pub const VERSION: u64 = 3;
/// Bytes of the header.
pub const HEADER_SIZE: usize = 32;
/// Records of a frame at most, when we write.
pub const RECORDS_PER_FRAME: u64 = 1024;

/// Whether a file that begins like this is a packed image, of whatever version.
pub fn is_pack(head: &[u8]) -> bool {
    head.starts_with(&MAGIC.to_le_bytes())
}

/// The header for an image of so many blocks.
pub fn header(nr_blocks: u64) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    for (field, value) in bytes.chunks_exact_mut(8).zip([MAGIC, VERSION, BLOCK_SIZE as u64, nr_blocks]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The number of blocks of the image that a header tells.
///
/// # Errors
/// Where it is the header of something else, or of another version.
pub fn parse(bytes: &[u8; HEADER_SIZE]) -> Result<u64, PackError> {
    let mut fields = [0; 4];
    for (value, field) in fields.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut wide = [0; 8];
        wide.copy_from_slice(field);
        *value = u64::from_le_bytes(wide);
    }
    match fields {
        [magic, ..] if magic != MAGIC => Err(PackError::Magic),
        [_, version, ..] if version != VERSION => Err(PackError::Version(version)),
        [_, _, block_size, _] if block_size != BLOCK_SIZE as u64 => Err(PackError::BlockSize(block_size)),
        [_, _, _, nr_blocks] => Ok(nr_blocks),
    }
}
