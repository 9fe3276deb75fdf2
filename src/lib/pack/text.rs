//! Text, plain or compressed, from a file or standard input; compression is recognised by content.

use super::compressed::Compression;
use crate::block::open::{self, Access, FileError};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Text that is open for reading.
pub enum Text {
    /// A file with the text as it is, which can be read more than once.
    Plain(File),
    /// What can be read once only.
    Stream(Box<dyn Read>),
}

/// Opens text. `-` is standard input, which is [`Text::Plain`] where it is a file read from its beginning.
///
/// # Errors
/// Where it can't be opened, or is neither a regular file nor a block device.
pub fn open_text(path: &Path) -> Result<Text, FileError> {
    if path.as_os_str() == "-" {
        return open_stdin().map_err(|source| FileError::Io { path: path.into(), doing: "read", source });
    }
    let mut file = open::open(path, Access::Exclusive)?.file;
    let io_error = |source| FileError::Io { path: path.into(), doing: "read", source };
    let magic = first_bytes(&mut file).map_err(io_error)?;
    match Compression::recognise(&magic) {
        Some(compression) => Ok(Text::Stream(compression.reader(BufReader::new(Cursor::new(magic).chain(file))))),
        None => Ok(Text::Plain(file)),
    }
}

fn open_stdin() -> io::Result<Text> {
    let stdin = io::stdin();
    let mut file = File::from(stdin.as_fd().try_clone_to_owned()?);
    let at_begin = file.metadata()?.is_file() && io::Seek::stream_position(&mut file)? == 0;
    let magic = first_bytes(&mut file)?;
    Ok(match Compression::recognise(&magic) {
        Some(compression) => Text::Stream(compression.reader(BufReader::new(Cursor::new(magic).chain(file)))),
        None if at_begin => Text::Plain(file),
        None => Text::Stream(Box::new(Cursor::new(magic).chain(file))),
    })
}

/// As many of the first bytes as tell how something is compressed.
fn first_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut magic = Vec::new();
    input.take(6).read_to_end(&mut magic)?;
    Ok(magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    /// What `printf hello | xz` writes.
    const XZ_HELLO: [u8; 64] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, //
        0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x04, 0x68, 0x65, 0x6c, 0x6c, 0x6f, //
        0x00, 0x00, 0x00, 0x00, 0xb1, 0x37, 0xb9, 0xdb, 0xe5, 0xda, 0x1e, 0x9b, 0x00, 0x01, 0x1d, 0x05, //
        0xb8, 0x2d, 0x80, 0xaf, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a, //
    ];

    fn read(path: &Path) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        match open_text(path).map_err(io::Error::other)? {
            Text::Plain(mut file) => {
                io::Seek::rewind(&mut file)?;
                file.read_to_end(&mut text)?
            }
            Text::Stream(mut stream) => stream.read_to_end(&mut text)?,
        };
        Ok(text)
    }

    #[test]
    fn text_of_every_form_reads_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let text: Vec<u8> = (0..300_000u32).flat_map(|number| number.to_string().into_bytes()).collect();
        for written in [text.clone(), gzip(&text), zstd(&text)] {
            std::fs::write(&path, &written).unwrap();
            assert!(read(&path).unwrap() == text);
        }
        for compress in [gzip, zstd] {
            std::fs::write(&path, [compress(&text[..1000]), compress(&text[1000..])].concat()).unwrap();
            assert!(read(&path).unwrap() == text);
            let mut cut = compress(&text);
            cut.truncate(cut.len() - 1);
            std::fs::write(&path, &cut).unwrap();
            assert!(read(&path).is_err());
        }
        std::fs::write(&path, XZ_HELLO).unwrap();
        assert_eq!(read(&path).unwrap(), b"hello");
        std::fs::write(&path, &XZ_HELLO[..63]).unwrap();
        assert!(read(&path).is_err());
    }
}
