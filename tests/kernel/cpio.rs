//! Archives in the form that the kernel unpacks at boot ("newc": Documentation/driver-api/early-userspace/buffer-format).
//! Several of them, one after the other, are unpacked over each other.

/// An archive that is being written.
pub struct Archive {
    bytes: Vec<u8>,
    nr_entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    pub fn new() -> Archive {
        Archive { bytes: Vec::new(), nr_entries: 0 }
    }

    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[]);
    }

    /// A file; all of them may be run.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.nr_entries += 1;
        let size = u32::try_from(content.len()).unwrap();
        let name_size = u32::try_from(path.len()).unwrap() + 1;
        // inode, mode, user, group, links, time, size, device (4 numbers), size of the name, checksum
        let fields = [self.nr_entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
