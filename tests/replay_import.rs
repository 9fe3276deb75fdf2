//! Real recordings, as they are and damaged: every line is taken or dropped, and nothing panics or hangs.

use dmeta::replay::trace::{ImportOptions, Mapping, parse, read_any};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/replay");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| !path.ends_with("README.txt")).collect();
    files.sort();
    files
}

fn everything() -> ImportOptions {
    let map = vec![Mapping::parse("*:1").unwrap()];
    ImportOptions { map, ..ImportOptions::default() }
}

/// What is taken, with what is dropped, is the whole text; and what is written reads back.
fn is_accounted_for(text: &str, options: &ImportOptions) -> bool {
    let Ok((trace, account)) = read_any(text, options) else { return false };
    assert_eq!(account.lines(), text.lines().count() as u64, "{account:?}");
    assert_eq!(parse(&trace.text(), false).unwrap(), trace);
    true
}

#[test]
fn real_recordings_are_accounted_for() {
    let files = recordings();
    assert!(files.len() > 4, "{files:?}");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() < 100 << 10, "{}", path.display());
        for action in ['Q', 'D', 'I', 'A'] {
            for by_process in [false, true] {
                let options = ImportOptions { action, by_process, ..everything() };
                assert!(is_accounted_for(&text, &options), "{}", path.display());
            }
        }
        let (trace, account) = read_any(&text, &everything()).unwrap();
        assert!(trace.nr_events() > 2 && account.taken > 2, "{}: {account:?}", path.display());
        let windows = read_any(&text.replace('\n', "\r\n"), &everything()).unwrap();
        assert!(windows == (trace, account), "{}", path.display());
    }
}

const WORDS: [&str; 11] =
    ["", "x", "-1", "18446744073709551616", "18446744073709551615", "99999999.9", "C", "A", "<-", "wait", "+"];

/// Something that goes wrong with a file.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Byte(usize, u8),
    Swap(usize, usize),
    Double(usize),
    Word(usize, usize, &'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), 9u8..127).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Damage::Swap(one, other)),
        any::<usize>().prop_map(Damage::Double),
        (any::<usize>(), 0usize..10, prop::sample::select(&WORDS[..]))
            .prop_map(|(line, word, new)| Damage::Word(line, word, new)),
    ]
}

fn damaged(text: &str, damages: &[Damage]) -> String {
    let mut text = text.to_string();
    for damage in damages {
        let mut lines: Vec<String> = text.split_inclusive('\n').map(String::from).collect();
        let nr = lines.len().max(1);
        if lines.is_empty() {
            return text;
        }
        match damage {
            Damage::Cut(at) => {
                text.truncate(at % (text.len() + 1));
                continue;
            }
            Damage::Byte(at, byte) => {
                let mut bytes = text.into_bytes();
                let at = at % bytes.len();
                bytes[at] = *byte;
                text = String::from_utf8_lossy(&bytes).into_owned();
                continue;
            }
            Damage::Swap(one, other) => lines.swap(one % nr, other % nr),
            Damage::Double(line) => {
                let line = line % nr;
                lines.insert(line, lines[line].clone());
            }
            Damage::Word(line, word, new) => {
                let line = &mut lines[line % nr];
                let mut words: Vec<&str> = line.split_whitespace().collect();
                if let Some(word) = words.get_mut(*word) {
                    *word = new;
                }
                *line = words.join(" ") + "\n";
            }
        }
        text = lines.concat();
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_recordings_are_accounted_for_or_refused(
        file in any::<usize>(), damages in prop::collection::vec(damage(), 0..5),
        action in prop::sample::select(vec!['Q', 'A', 'D']), by_process: bool,
    ) {
        let files = recordings();
        let text = damaged(&fs::read_to_string(&files[file % files.len()]).unwrap(), &damages);
        let options = ImportOptions { action, by_process, ..everything() };
        if let Err(error) = read_any(&text, &options) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
            return Ok(());
        }
        prop_assert!(is_accounted_for(&text, &options));
    }
}
