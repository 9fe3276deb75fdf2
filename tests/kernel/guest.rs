//! One boot: a guest with disks that runs a scenario and says what it saw.

use crate::cpio::Archive;
use crate::lab::Lab;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Only a guest that hangs needs this long.
const LIMIT: Duration = Duration::from_secs(900);

/// What the kernel is told. Guarding against other users costs an emulated processor much.
const APPEND: &str = "console=ttyS0 panic=-1 quiet random.trust_cpu=on mitigations=off no5lvl";

/// A guest that is being prepared.
pub struct Guest<'a> {
    lab: &'a Lab,
    script: String,
    variables: String,
    disks: Vec<String>,
    files: Archive,
    kill_after: Option<Duration>,
}

/// What came of it.
pub struct Outcome {
    /// What it told, line by line.
    pub told: Vec<String>,
    console: String,
    /// The status of the scenario; `None` if the guest did not come to its end.
    status: Option<i32>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--- told\n{}\n--- console\n{}\n---", self.told.join("\n"), self.console)
    }
}

impl Outcome {
    /// Fails the test, with everything, unless the scenario went well.
    #[track_caller]
    pub fn expect_success(&self) {
        assert_eq!(self.status, Some(0), "\n{self}");
    }

    /// Fails the test, with everything, unless the guest was killed while it worked.
    #[track_caller]
    pub fn expect_killed(&self) {
        assert_eq!(self.status, None, "\n{self}");
        assert!(self.told.iter().any(|line| line == "armed"), "\n{self}");
    }

    /// The lines that begin with `word`, without it.
    pub fn lines<'b>(&'b self, word: &'b str) -> impl Iterator<Item = &'b str> {
        self.told.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }
}

impl<'a> Guest<'a> {
    /// A guest that runs the script `guest/NAME.sh`.
    pub fn new(lab: &'a Lab, name: &str) -> Guest<'a> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/guest").join(name).with_extension("sh");
        let script = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (variables, files) = (String::new(), Archive::new());
        Guest { lab, script, variables, disks: Vec::new(), files, kill_after: None }
    }

    /// The next of /dev/vda, /dev/vdb and so on; returns its name. What the guest writes is in the file.
    pub fn disk(&mut self, image: &Path) -> String {
        let letter = char::from(b'a' + u8::try_from(self.disks.len()).unwrap());
        assert!(letter <= 'x', "too many disks");
        self.disks.push(format!("file={},format=raw,if=virtio,cache=unsafe,discard=unmap", image.display()));
        format!("/dev/vd{letter}")
    }

    /// A variable for the script.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        self.variables.push_str(&format!("{name}='{value}'\n"));
    }

    /// The file `/scenario/NAME` of the guest.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.files.file(&format!("scenario/{name}"), content);
    }

    /// Kills the guest, as a power cut does, that long after the script has called `armed`.
    pub fn kill_after(&mut self, time: Duration) {
        self.kill_after = Some(time);
    }

    /// Boots, and fails the test unless the scenario goes well.
    #[track_caller]
    pub fn run_to_end(self) -> Outcome {
        let outcome = self.run();
        outcome.expect_success();
        outcome
    }

    /// Boots, and waits for the end.
    pub fn run(self) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let mut files = self.files;
        files.file("scenario/script", self.script.as_bytes());
        files.file("scenario/variables", self.variables.as_bytes());
        fs::write(place("files"), [self.lab.files.clone(), files.finish()].concat()).unwrap();
        let (console, told) = (place("console"), place("told"));
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "512",
            "-nic",
            "none",
            "-no-reboot",
        ]);
        command.args(["-display", "none", "-monitor", "none", "-append", APPEND]);
        command.arg("-kernel").arg(&self.lab.kernel).arg("-initrd").arg(place("files"));
        for port in [&console, &told] {
            command.arg("-serial").arg(format!("file:{}", port.display()));
        }
        command.args(self.disks.iter().flat_map(|disk| ["-drive", disk]));
        let errors = fs::File::create(place("errors")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        wait(child, &told, self.kill_after);

        let text = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
        let mut told: Vec<String> = text(told).lines().map(String::from).collect();
        let status = told.last().and_then(|line| line.strip_prefix("end ")?.parse().ok());
        if status.is_some() {
            told.pop();
        }
        Outcome { told, console: text(place("errors")) + &text(console), status }
    }
}

fn wait(mut child: Child, told: &Path, kill_after: Option<Duration>) {
    let started = Instant::now();
    let mut kill_at = None;
    while child.try_wait().unwrap().is_none() {
        if let (Some(after), None) = (kill_after, kill_at)
            && fs::read(told).is_ok_and(|text| text.windows(5).any(|bytes| bytes == b"armed"))
        {
            kill_at = Some(Instant::now() + after);
        }
        let now = Instant::now();
        if kill_at.is_some_and(|at| now >= at) || now - started > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}
