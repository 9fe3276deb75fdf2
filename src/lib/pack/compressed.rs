//! Files and streams that are compressed as a whole: gzip, xz and zstd, seen through.

use super::bound;
use crate::base::BlockNr;
use crate::block::memory::MemorySource;
use crate::format::{BLOCK_SIZE, Block, block};
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fmt;
use std::io::{self, BufRead, Read};

/// Memory for the window of a decompressor, in KiB: what the strongest usual settings need.
const WINDOW_KIB: u32 = 136 << 10;
/// Blocks that the largest metadata device has: 16 GiB. The kernel uses a little less (docs/format.md 3.5).
const IMAGE_BLOCKS_MAX: u64 = 1 << 22;

/// Ways of compression that are seen through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip, also several members one after the other.
    Gzip,
    /// xz, also several streams one after the other.
    Xz,
    /// zstd, also several frames one after the other.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        })
    }
}

impl Compression {
    /// How a file that begins with these bytes is compressed.
    pub fn recognise(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Some(Compression::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The decompressed bytes of `input`. Takes at most about 136 MiB, and no more than the output has.
    ///
    /// The reader returned gives an error where the data are damaged or end too early.
    pub fn reader<'a>(self, input: impl BufRead + Send + 'a) -> Box<dyn Read + Send + 'a> {
        match self {
            Compression::Gzip => Box::new(Explained(MultiGzDecoder::new(input))),
            Compression::Xz => Box::new(Explained(XzReader::new_mem_limit(input, true, WINDOW_KIB))),
            Compression::Zstd => Box::new(Explained(ZstdReader::new(input))),
        }
    }
}

/// Says of compressed data that end too early what that means.
struct Explained<R>(R);

impl<R: Read> Read for Explained<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(
                error.kind(),
                "the compressed data end too early: the file is cut off, copy or make it again",
            ),
            _ => error,
        })
    }
}

/// Frames of zstd, one after the other.
struct ZstdReader<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(u64::from(WINDOW_KIB) << 10);
        ZstdReader { input, decoder, in_frame: false }
    }

    /// Begins the next frame. `false` at the end of the input.
    fn start(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.input).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }
}

fn damaged(error: FrameDecoderError) -> io::Error {
    let ends_early = std::iter::successors(std::error::Error::source(&error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::UnexpectedEof);
    let kind = if ends_early { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::InvalidData };
    io::Error::new(kind, error.to_string())
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.start()? {
                return Ok(0);
            }
            self.in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1)).map_err(damaged)?;
            }
            let len = self.decoder.read(out)?;
            if len > 0 {
                return Ok(len);
            }
            let stored = self.decoder.get_checksum_from_data();
            if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "bad checksum"));
            }
            self.in_frame = false;
        }
    }
}

/// Why a decompressed stream is not taken for an image.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The compressed data are damaged or incomplete, or cannot be read.
    #[error("cannot decompress it: {0}")]
    Io(#[from] io::Error),
    /// It is larger than metadata can be.
    #[error("decompressed, it has more than the 16 GiB that metadata can have")]
    TooLarge,
    /// More comes out than metadata of this compressed size could give.
    #[error("decompressed, more than {0} of its blocks are not zeros, which no metadata compressed to this size has")]
    Bomb(u64),
}

/// An image of which only the blocks that are not zeros are kept, and the number of bytes after the last whole block.
///
/// `stream` comes from `input_bytes` compressed bytes. Takes at most what [`super::decode()`] takes for as many.
///
/// # Errors
/// Where the stream fails, or is no image of metadata by its size.
pub(super) fn read_image(stream: &mut dyn Read, input_bytes: u64) -> Result<(MemorySource, u64), StreamError> {
    read_image_within(stream, IMAGE_BLOCKS_MAX, bound::max_blocks(input_bytes))
}

fn read_image_within(
    stream: &mut dyn Read,
    max_image: u64,
    max_blocks: u64,
) -> Result<(MemorySource, u64), StreamError> {
    let mut image = MemorySource::new(max_image);
    let mut bytes: Box<Block> = Box::new([0; BLOCK_SIZE]);
    let mut location = BlockNr(0);
    loop {
        let len = bound::read_full(stream, &mut bytes[..])?;
        if len < BLOCK_SIZE {
            image.resize(location.0);
            return Ok((image, len as u64));
        }
        if location.0 >= max_image {
            return Err(StreamError::TooLarge);
        }
        if !block::is_zero(&bytes) {
            if image.nr_present() as u64 >= max_blocks {
                return Err(StreamError::Bomb(max_blocks));
            }
            image.put(location, &bytes).map_err(|error| io::Error::other(error.to_string()))?;
        }
        location.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockSource;

    #[test]
    fn an_image_is_bounded_in_length_and_in_what_is_kept() {
        let zeros = |len| io::repeat(0).take(len);
        let (image, trailing) = read_image_within(&mut zeros(10 * 4096 + 7), 10, 0).unwrap();
        assert_eq!((image.nr_blocks(), image.nr_present(), trailing), (10, 0, 7));
        assert!(matches!(read_image_within(&mut zeros(11 * 4096), 10, 0), Err(StreamError::TooLarge)));
        assert!(matches!(read_image_within(&mut io::repeat(0), 10, 0), Err(StreamError::TooLarge)));
        assert!(matches!(read_image_within(&mut io::repeat(1), 10, 3), Err(StreamError::Bomb(3))));
        assert_eq!(read_image_within(&mut io::repeat(1).take(3 * 4096), 10, 3).unwrap().0.nr_present(), 3);
    }
}
