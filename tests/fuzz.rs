//! The bodies of the fuzz targets, run by the stable toolchain: on their seeds, on every case that was found and kept,
//! and on inputs that are made from these by a seed.
//!
//! `FUZZ_RUNS=100000` in the environment makes so many inputs for each target, `FUZZ_FIRST=17` begins with that one,
//! `FUZZ_TARGET=xml` runs that target alone; `FUZZ_CORPUS=folder` writes the seeds there, for the fuzzer to begin with.

#[path = "../fuzz/bodies/mod.rs"]
mod bodies;

use bodies::{TARGETS, run, seeds};
use dmeta::base::Random;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Inputs for each target in an ordinary run.
const RUNS: u64 = 300;
/// Longer inputs are cut.
const LONGEST: usize = 8192;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn targets() -> impl Iterator<Item = &'static str> {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    TARGETS.into_iter().filter(move |target| wanted.is_empty() || *target == wanted)
}

/// The kept cases of a target.
fn cases(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/cases").join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// Another input, made from two.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| seeds[random.below(seeds.len() as u64) as usize].clone();
    let mut input = pick(random);
    for _ in 0..random.within(1, 6) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let length = (random.within(1, 24) as usize).min(input.len() - at);
        match random.below(11) {
            0 | 1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 if at < input.len() => input[at] = random.number() as u8,
            3 => _ = input.drain(at..at + length),
            4 => input.splice(at..at, (0..length.max(1)).map(|_| random.number() as u8)).for_each(drop),
            5 => {
                let copy = input[at..at + length].to_vec();
                let to = random.below(input.len() as u64 + 1) as usize;
                input.splice(to..to, copy).for_each(drop);
            }
            6 => {
                let other = pick(random);
                let from = random.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            7 => {
                // The same again and again: limits are met by length alone, too.
                let piece = input[at..at + length.min(8)].to_vec();
                let piece = if piece.is_empty() { vec![b' '] } else { piece };
                input.splice(at..at, piece.repeat(random.within(2, 4096) as usize / piece.len() + 1)).for_each(drop);
            }
            8 => put_digits(&mut input, at, random),
            _ => {
                let odd = [0, 1, 0x7f, 0x80, 0xff, 1 << 24, u64::from(u32::MAX), 1 << 40, u64::MAX, u64::MAX >> 1];
                let bytes = odd[random.below(odd.len() as u64) as usize].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4) as usize].min(input.len() - at);
                input[at..at + width].copy_from_slice(&bytes[..width]);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

/// Another number in place of one in a text, the next after `at`.
fn put_digits(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(begin) = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else { return };
    let length = input[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let odd = ["0", "1", "255", "16777216", "4294967296", "18446744073709551615", "18446744073709551616", "-1", ""];
    let text = match random.below(3) {
        0 => odd[random.below(odd.len() as u64) as usize].to_string(),
        1 => random.below(1000).to_string(),
        _ => (random.number() >> random.below(64)).to_string(),
    };
    input.splice(begin..begin + length, text.into_bytes()).for_each(drop);
}

#[test]
fn seeds_and_kept_cases_pass() {
    for target in targets() {
        seeds(target).iter().for_each(|seed| run(target, seed));
        for case in cases(target) {
            eprintln!("{}", case.display());
            run(target, &fs::read(&case).unwrap());
        }
    }
    if let Some(folder) = std::env::var_os("FUZZ_CORPUS") {
        for target in targets() {
            let folder = Path::new(&folder).join(target);
            fs::create_dir_all(&folder).unwrap();
            let cases = cases(target).into_iter().map(|case| fs::read(case).unwrap());
            for (number, seed) in seeds(target).into_iter().chain(cases).enumerate() {
                fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
            }
        }
    }
}

#[test]
fn inputs_from_a_seed_pass() {
    let (first, runs) = (from_environment("FUZZ_FIRST", 0), from_environment("FUZZ_RUNS", RUNS));
    let mut failed = Vec::new();
    for target in targets() {
        let mut known = seeds(target);
        known.extend(cases(target).into_iter().map(|case| fs::read(case).unwrap()));
        for number in first..first + runs {
            let mut random = Random::new(number ^ u64::from(crc32c::crc32c(target.as_bytes())) << 32);
            let input = mutate(&known, &mut random);
            if catch_unwind(AssertUnwindSafe(|| run(target, &input))).is_err() {
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{number}"));
                fs::write(&path, &input).unwrap();
                failed.push(format!("FUZZ_TARGET={target} FUZZ_FIRST={number} FUZZ_RUNS=1: {}", path.display()));
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// A kept case is read by a target that there is, and small enough to look at.
#[test]
fn kept_cases_are_in_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/cases");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.contains(&name.as_str()), "{name} is no target");
        for case in cases(&name) {
            assert!(fs::metadata(&case).unwrap().len() <= LONGEST as u64, "{} is too long", case.display());
        }
    }
}
