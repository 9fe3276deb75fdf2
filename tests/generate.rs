//! `thin_generate_metadata` and `thin_generate_damage` from the command line.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Run, finish, peer, run, tool, words};

fn file(folder: &Path, blocks: usize) -> PathBuf {
    let path = folder.join("pool.img");
    fs::write(&path, vec![0; blocks * 4096]).unwrap();
    path
}

fn on(name: &str, image: &Path, line: &str) -> Run {
    finish(tool(name).arg("-o").arg(image).args(words(line)))
}

fn superblock_line(image: &Path) -> String {
    let dump = run("thin_dump", [image]);
    dump.expect_code(0);
    dump.stdout.lines().next().unwrap().to_string()
}

#[test]
fn made_up_pools_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = peer("thin_check");
    for line in [
        "",
        "--devices 0",
        "--devices 7 --snapshots 3 --mappings 3000 --seed 9",
        "--mappings 100000 --run-length 1 --leaf-fill 40-70 --snapshots 2 --change 10",
        "--devices 2 --snapshots 2 --metadata-snapshot --block-size 1024 --nr-data-blocks 1000000",
    ] {
        let image = file(folder.path(), 4000);
        on("thin_generate_metadata", &image, line)
            .expect_code(0)
            .expect("a summary", |run| run.stdout.contains("devices"));
        run("thin_check", [&image]).expect_code(0);
        if let Some(program) = &theirs {
            finish(Command::new(program).arg(&image)).expect_code(0);
        }
        let first = fs::read(&image).unwrap();
        on("thin_generate_metadata", &image, &format!("{line} -q"))
            .expect_code(0)
            .expect("silence", |run| run.stdout.is_empty() && run.stderr.is_empty());
        assert!(fs::read(&image).unwrap() == first, "{line}");
    }
}

#[test]
fn a_new_pool_and_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    let image = file(folder.path(), 20);
    on("thin_generate_metadata", &image, "--format").expect_code(0);
    let line = |flags, size, blocks| {
        format!(
            "<superblock uuid=\"\" time=\"0\" transaction=\"0\" flags=\"{flags}\" version=\"2\" \
             data_block_size=\"{size}\" nr_data_blocks=\"{blocks}\">"
        )
    };
    assert_eq!(superblock_line(&image), line(0, 128, 10_240));
    on("thin_generate_metadata", &image, "--format --block-size 2048 --nr-data-blocks 0").expect_code(0);
    assert_eq!(superblock_line(&image), line(0, 2048, 0));
    for (option, flags) in [("", 1), ("=false", 0), ("=true", 1)] {
        on("thin_generate_metadata", &image, &format!("--set-needs-check{option}")).expect_code(0);
        assert_eq!(superblock_line(&image), line(flags, 2048, 0));
    }
    for wrong in
        ["--format --set-needs-check", "--format --devices 3", "--leaf-fill x", "--leaf-fill 5", "--block-size 7"]
    {
        let before = fs::read(&image).unwrap();
        on("thin_generate_metadata", &image, wrong).expect_code(1);
        assert!(fs::read(&image).unwrap() == before, "{wrong}");
    }
}

#[test]
fn damage_is_done_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let image = file(folder.path(), 1000);
    on("thin_generate_metadata", &image, "--devices 3 --mappings 20000 --snapshots 1").expect_code(0);
    let sound = fs::read(&image).unwrap();
    for (line, blocks) in [
        ("--kind bit-rot", 1),
        ("--kind zeroed --target mapping-leaf --count 5 --seed 3", 5),
        ("--kind swapped --target data-bitmap --reseal", 2),
        ("--kind cycle --target mapping-node --reseal", 1),
        ("--kind noise --block 17", 1),
        ("--override --mapping-root 7 --details-root 8", 1),
    ] {
        fs::write(&image, &sound).unwrap();
        let told = on("thin_generate_damage", &image, line);
        told.expect_code(0).expect("a line for each block", |run| {
            run.stdout.lines().filter(|line| line.starts_with("block ")).count() == blocks
        });
        let after = fs::read(&image).unwrap();
        let changed = sound.chunks(4096).zip(after.chunks(4096)).filter(|(before, after)| before != after).count();
        assert_eq!(changed, blocks, "{line}");
        run("thin_check", [&image]).expect_code(1);
    }
    fs::write(&image, &sound).unwrap();
    let leaks = "--create-metadata-leaks --expected 0 --actual 1 --nr-blocks 16";
    on("thin_generate_damage", &image, leaks).expect_code(0);
    run("thin_check", [&image]).expect_code(1).expect("16 leaks", |run| run.stderr.contains("metadata-leak"));
    run("thin_check", [Path::new("--ignore-non-fatal-errors"), &image]).expect_code(0);
    run("thin_check", [Path::new("--auto-repair"), &image]).expect_code(0);
    run("thin_check", [&image]).expect_code(0);
    for wrong in ["", "--override", "--kind nonsense", "--kind cycle --target data-bitmap", "--create-metadata-leaks"] {
        let before = fs::read(&image).unwrap();
        on("thin_generate_damage", &image, wrong).expect_code(1);
        assert!(fs::read(&image).unwrap() == before, "{wrong}");
    }
}
