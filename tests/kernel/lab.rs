//! What a guest boots from: the distribution's kernel with its device-mapper modules, and a first file system with busybox,
//! dmsetup, LVM, and our tools, statically linked. Everything is kept in `target/kernel`.

use crate::cpio::Archive;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set, these tests run; `CI` sets them too.
const SWITCH: &str = "KERNEL_TESTS";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What has to be installed: a program, and Debian's package of it.
const PROGRAMS: [(&str, &str); 5] = [
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/busybox", "busybox-static"),
    ("/usr/sbin/dmsetup", "dmsetup"),
    ("/usr/sbin/lvm", "lvm2"),
    ("/usr/bin/ldd", "libc-bin"),
];

const MODULES: [&str; 13] = [
    "crc32c_generic",
    "crc32c_intel",
    "virtio_pci",
    "virtio_blk",
    "dm_mod",
    "dm_thin_pool",
    "dm_cache",
    "dm_cache_smq",
    "dm_era",
    "dm_zero",
    "dm_flakey",
    "dm_delay",
    "dm_snapshot",
];

/// Everything that guests have in common.
pub struct Lab {
    pub kernel: PathBuf,
    /// The first file system, without what belongs to one scenario.
    pub files: Vec<u8>,
}

/// The lab, made at first use. `None` where these tests were not asked for; under `CI` they always are.
pub fn lab() -> Option<&'static Lab> {
    static LAB: OnceLock<Option<Lab>> = OnceLock::new();
    LAB.get_or_init(|| {
        let missing: Vec<&str> =
            PROGRAMS.iter().filter(|(program, _)| !Path::new(program).exists()).map(|(_, package)| *package).collect();
        let wanted = [SWITCH, "CI"].iter().any(|name| std::env::var_os(name).is_some());
        if !wanted {
            // Tests that pass may not print; this is to be seen.
            let install = if missing.is_empty() {
                String::new()
            } else {
                format!(", after apt-get install {}", missing.join(" "))
            };
            let hint = format!("\nno kernel was booted; {SWITCH}=1 cargo test --test kernel does that{install}\n");
            std::io::stderr().write_all(hint.as_bytes()).unwrap();
            return None;
        }
        assert!(missing.is_empty(), "to boot a kernel: apt-get install {}", missing.join(" "));
        Some(make())
    })
    .as_ref()
}

fn make() -> Lab {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("kernel");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel");
    if !folder.join("vmlinuz").exists() {
        done(Command::new(here.join("fetch")).arg(&folder));
    }
    let mut files = Archive::new();
    for path in [
        "bin", "sbin", "lib", "lib64", "dev", "proc", "sys", "run", "tmp", "etc", "modules", "guest", "scenario",
        "tools",
    ] {
        files.folder(path);
    }
    add_modules(&mut files, &folder.join("modules"));
    add_programs(&mut files);
    add_ours(&mut files, &folder, &here);
    Lab { kernel: folder.join("vmlinuz"), files: files.finish() }
}

/// The distribution's programs, with the libraries that they need.
fn add_programs(files: &mut Archive) {
    let mut libraries = BTreeMap::new();
    files.file("bin/busybox", &fs::read("/usr/bin/busybox").unwrap());
    for program in ["/usr/sbin/dmsetup", "/usr/sbin/lvm"] {
        let name = program.rsplit('/').next().unwrap();
        files.file(&format!("sbin/{name}"), &fs::read(program).unwrap());
        let listing = done(Command::new("ldd").arg(program));
        for path in listing.split_whitespace().filter(|word| word.starts_with('/')) {
            libraries.insert(path.rsplit('/').next().unwrap().to_string(), fs::read(path).unwrap());
        }
    }
    for (name, content) in libraries {
        let folder = if name.starts_with("ld-linux") { "lib64" } else { "lib" };
        files.file(&format!("{folder}/{name}"), &content);
    }
}

/// Our tools, and what the scenarios are made of.
fn add_ours(files: &mut Archive, folder: &Path, here: &Path) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = folder.parent().unwrap().join("static");
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    // With --target, so that the flags are not for what runs while building.
    done(
        Command::new(cargo)
            .args(["build", "--quiet", "--release", "--bin", "pdata_tools", "--target", TARGET, "--target-dir"])
            .arg(&target)
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .current_dir(top),
    );
    let binary = fs::read(target.join(TARGET).join("release/pdata_tools")).unwrap();
    files.file("tools/pdata_tools", &binary);
    for tool in dmeta::cli::registry::TOOLS {
        files.link(&format!("tools/{}", tool.name), "pdata_tools");
    }

    let blocks = folder.join("blocks");
    done(
        Command::new("rustc")
            .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "--target", TARGET, "-o"])
            .args([&blocks, &here.join("guest/blocks.rs")]),
    );
    files.file("bin/blocks", &fs::read(&blocks).unwrap());
    files.file("init", &fs::read(here.join("guest/init")).unwrap());
    files.file("guest/pool.sh", &fs::read(here.join("guest/pool.sh")).unwrap());
}

/// The modules, unpacked, and `modules/order`, in which they have to be loaded.
fn add_modules(files: &mut Archive, folder: &Path) {
    let mut found = BTreeMap::new();
    find_modules(folder, &mut found);
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap().replace('-', "_");
    let mut order = Vec::new();
    for name in MODULES {
        load(name, &found, &built_in, files, &mut order);
    }
    files.file("modules/order", (order.join("\n") + "\n").as_bytes());
}

fn load(name: &str, found: &BTreeMap<String, PathBuf>, built_in: &str, files: &mut Archive, order: &mut Vec<String>) {
    if order.iter().any(|loaded| loaded == name) {
        return;
    }
    let Some(path) = found.get(name) else {
        assert!(built_in.contains(&format!("/{name}.ko")), "this kernel has no module {name}");
        return;
    };
    let module = read_module(path);
    for needed in dependencies(&module) {
        load(&needed, found, built_in, files, order);
    }
    files.file(&format!("modules/{name}.ko"), &module);
    order.push(name.to_string());
}

fn find_modules(folder: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_modules(&path, found);
        } else if let Some((name, _)) = path.file_name().unwrap().to_str().unwrap().split_once(".ko") {
            found.insert(name.replace('-', "_"), path.clone());
        }
    }
}

fn read_module(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path).unwrap();
    match path.extension().unwrap().to_str() {
        Some("xz") => lzma_rust2::XzReader::new(file, false).read_to_end(&mut bytes).unwrap(),
        Some("ko") => { file }.read_to_end(&mut bytes).unwrap(),
        other => panic!("modules compressed as {other:?}"),
    };
    bytes
}

/// A module names those that it needs in its section `.modinfo`, a list of `key=value`, each with a zero byte after it.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|bytes| bytes == key) else { return Vec::new() };
    let list: Vec<u8> = module[at + key.len()..].iter().copied().take_while(|byte| *byte != 0).collect();
    let list = String::from_utf8(list).unwrap();
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// What a command printed that has to succeed.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
