//! Block devices, with sectors of 512 and of 4096 bytes.
//!
//! Without the right to set up loop devices these tests say so and pass, except under `CI`.

use dmeta::base::BlockNr;
use dmeta::block::{BlockSource, ReadError};
use dmeta::pack::Form;
use dmeta::pack::open::{Access, OpenOptions, Opened, open};
use std::fs::{File, OpenOptions as FileOptions};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const EXCLUSIVE: OpenOptions = OpenOptions { access: Access::Exclusive, direct: false };
const LIVE: OpenOptions = OpenOptions { access: Access::Live, direct: false };

/// A loop device over a file of blocks, each filled with its number plus 1.
struct Loop {
    device: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Loop {
    fn new(nr_blocks: u8, sector_size: u32) -> Option<Loop> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for block in 0..nr_blocks {
            file.write_all(&[block + 1; 4096]).unwrap();
        }
        let size = sector_size.to_string();
        let output =
            Command::new("losetup").args(["--find", "--show", "--sector-size", &size]).arg(file.path()).output();
        match output {
            Ok(output) if output.status.success() => {
                let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
                Some(Loop { device, file })
            }
            other => {
                assert!(std::env::var_os("CI").is_none(), "loop devices are needed: {other:?}");
                println!("skipped: no loop device with sectors of {sector_size} bytes: {other:?}");
                None
            }
        }
    }

    fn open(&self, options: &OpenOptions) -> Opened {
        open(&self.device, options).unwrap_or_else(|error| panic!("{error}"))
    }

    fn change(&self, block: u64, byte: u8) {
        self.file.as_file().write_all_at(&[byte; 4096], block * 4096).unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let done = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

fn read(source: &dyn BlockSource, blocks: impl IntoIterator<Item = u64>) -> Vec<Result<u8, ReadError>> {
    let blocks: Vec<_> = blocks.into_iter().map(BlockNr).collect();
    let mut bytes = Vec::new();
    source.read_many(&blocks, &mut |_, block| {
        bytes.push(block.map(|block| block[1234]));
        ControlFlow::Continue(())
    });
    bytes
}

fn with_each(nr_blocks: u8, test: impl Fn(&Loop)) {
    for sector_size in [512, 4096] {
        if let Some(device) = Loop::new(nr_blocks, sector_size) {
            test(&device);
        }
    }
}

#[test]
fn devices_are_read_whole_by_either_way() {
    with_each(100, |device| {
        for options in [EXCLUSIVE, LIVE, OpenOptions { direct: true, ..EXCLUSIVE }] {
            let opened = device.open(&options);
            assert_eq!((opened.form, opened.trailing_bytes, opened.cached), (Form::BlockDevice, 0, false));
            assert_eq!(opened.source.nr_blocks(), 100);
            let bytes: Vec<_> = read(&*opened.source, 0..100).into_iter().map(Result::unwrap).collect();
            assert_eq!(bytes, (1..=100).collect::<Vec<u8>>());
            assert_eq!(read(&*opened.source, [7, 3, 99, 4]), [Ok(8), Ok(4), Ok(100), Ok(5)]);
            assert_eq!(read(&*opened.source, [100]), [Err(ReadError::OutOfRange { nr_blocks: 100 })]);
        }
    });
}

#[test]
fn a_device_in_use_is_refused_but_for_live_reading() {
    with_each(20, |device| {
        // O_EXCL, as a mounted file system or an active table has it.
        let _holder = FileOptions::new().read(true).custom_flags(0o200).open(&device.device).unwrap();
        let Err(error) = open(&device.device, &EXCLUSIVE) else { panic!("opened") };
        let message = error.to_string();
        assert!(message.contains("is in use: deactivate the pool"), "{message}");
        assert!(message.contains("reserve_metadata_snap) and use --metadata-snap"), "{message}");
        assert_eq!(read(&*device.open(&LIVE).source, [5]), [Ok(6)]);
    });
}

/// Changes below the device, as a kernel makes them, are not seen by its page cache.
#[test]
fn a_stale_page_cache_does_not_show() {
    with_each(50, |device| {
        let mut keeper = File::open(&device.device).unwrap();
        keeper.read_exact(&mut [0; 50 * 4096]).unwrap();
        let live = device.open(&LIVE);
        assert_eq!(read(&*live.source, [10, 11]), [Ok(11), Ok(12)]);
        for byte in [0xd1, 0xd2] {
            device.change(10, byte);
            assert_eq!(read(&*live.source, [10, 11]), [Ok(byte), Ok(12)]);
        }
        let mut cached = [0; 4096];
        keeper.read_exact_at(&mut cached, 10 * 4096).unwrap();
        assert_eq!(cached[0], 11, "the page cache has to be stale for this test to mean anything");
        drop(live);

        let exclusive = device.open(&EXCLUSIVE);
        assert_eq!(read(&*exclusive.source, [10, 11]), [Ok(0xd2), Ok(12)]);
    });
}

#[test]
fn only_the_blocks_that_cannot_be_read_are_errors() {
    with_each(60, |device| {
        for options in [EXCLUSIVE, LIVE] {
            let opened = device.open(&options);
            // The device stays as it is; what lies behind its second half is gone.
            device.file.as_file().set_len(30 * 4096).unwrap();
            let blocks = read(&*opened.source, 0..60);
            for (number, block) in blocks.into_iter().enumerate() {
                match block {
                    Ok(byte) => assert!(number < 30 && usize::from(byte) == number + 1, "{number}: {byte}"),
                    Err(error) => {
                        assert!(
                            number >= 30 && error.to_string().contains("the device gave an error"),
                            "{number}: {error}"
                        );
                    }
                }
            }
            assert_eq!(opened.source.nr_faults(), 0);
            drop(opened);
            for block in 30..60 {
                device.change(block, block as u8 + 1);
            }
        }
    });
}

#[test]
fn a_device_is_reached_through_a_descriptor_too() {
    use std::os::fd::AsRawFd;
    with_each(20, |device| {
        let file = File::open(&device.device).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(read(&*open(Path::new(&path), &EXCLUSIVE).unwrap().source, [5]), [Ok(6)]);
    });
}
