//! From what was typed to what clap reads: every form that callers of the older tools use becomes one plain form.
//!
//! Works from the tool's own clap definition, so a new tool needs nothing here. Understood beyond clap:
//! unambiguous long prefixes; `-V` and `-h` anywhere; empty arguments, which are dropped; optional values attached
//! as in `-m7` and `-nshort`; and a block number on its own after `-m`.

use super::options::METADATA_SNAP;
use clap::error::ErrorKind;
use clap::{Arg, Command};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// `-V`, which wins over everything else.
    Version,
    /// `-h`, which wins over all but `-V`.
    Help,
    /// Work: options as `--long=value`, then `--` and the positionals.
    Run(Vec<OsString>),
}

/// Brings `arguments` (without the program's name) into the plain form.
///
/// # Errors
/// Where a long prefix is ambiguous. All else that is wrong is left for clap to say.
pub fn normalise(command: &Command, arguments: Vec<OsString>) -> Result<Line, clap::Error> {
    let mut lexer = Lexer::new(command);
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            lexer.positionals.extend(arguments.by_ref().filter(|rest| !rest.is_empty()));
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            lexer.long(&argument, long, &mut arguments);
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            lexer.shorts(&bytes[1..], &mut arguments);
        } else if !bytes.is_empty() {
            lexer.positionals.push(argument);
        }
    }
    lexer.finish()
}

/// The arguments that are still to come, of which an option may take the next as its value.
type Rest = std::iter::Peekable<std::vec::IntoIter<OsString>>;

struct Lexer<'a> {
    command: &'a Command,
    options: Vec<OsString>,
    positionals: Vec<OsString>,
    version: bool,
    help: bool,
    ambiguous: Option<String>,
    /// Where in `options` a bare `-m` is, and how many positionals came before it.
    bare_snap: Option<(usize, usize)>,
}

impl<'a> Lexer<'a> {
    fn new(command: &'a Command) -> Self {
        Lexer {
            command,
            options: Vec::new(),
            positionals: Vec::new(),
            version: false,
            help: false,
            ambiguous: None,
            bare_snap: None,
        }
    }

    /// `--name` or `--name=value`.
    fn long(&mut self, whole: &OsStr, text: &[u8], rest: &mut Rest) {
        let (name, value) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]))),
            None => (text, None),
        };
        match std::str::from_utf8(name).ok().and_then(|name| self.resolve(name)) {
            Some(arg) => self.option(arg, value, rest),
            None => self.options.push(whole.to_os_string()),
        }
    }

    /// The option of that name, or the only one whose name begins so. Those that are shown go before hidden ones,
    /// which must not make a prefix ambiguous.
    fn resolve(&mut self, name: &str) -> Option<&'a Arg> {
        let command = self.command;
        if name.is_empty() {
            return None;
        }
        if let Some(exact) = command.get_arguments().find(|arg| long_names(arg).contains(&name)) {
            return Some(exact);
        }
        for hidden in [false, true] {
            let candidates: Vec<&Arg> = command
                .get_arguments()
                .filter(|arg| arg.is_hide_set() == hidden)
                .filter(|arg| long_names(arg).iter().any(|long| long.starts_with(name)))
                .collect();
            match candidates.as_slice() {
                [] => {}
                [one] => return Some(one),
                many => {
                    let names: Vec<String> =
                        many.iter().filter_map(|arg| arg.get_long()).map(|long| format!("'--{long}'")).collect();
                    let message = format!("'--{name}' is short for more than one option: {}", names.join(", "));
                    self.ambiguous.get_or_insert(message);
                    return None;
                }
            }
        }
        None
    }

    /// `-abc`: flags in a row; the first that takes a value takes all that follows.
    fn shorts(&mut self, mut text: &[u8], rest: &mut Rest) {
        let command = self.command;
        while let Some((first, tail)) = text.split_first() {
            let arg = command.get_arguments().find(|arg| has_short(arg, char::from(*first)));
            let Some(arg) = arg else {
                self.options.push(OsString::from_vec([b"-", text].concat()));
                return;
            };
            let attached = OsStr::from_bytes(tail.strip_prefix(b"=").unwrap_or(tail));
            let takes_tail = match (takes_value(arg), tail.is_empty()) {
                (Takes::Nothing, _) | (_, true) => false,
                (Takes::Required, false) => true,
                (Takes::Optional, false) => tail[0] == b'=' || is_optional_value(arg, tail),
            };
            if takes_tail {
                self.option(arg, Some(attached), rest);
                return;
            }
            self.option(arg, None, rest);
            text = tail;
        }
    }

    fn option(&mut self, arg: &Arg, value: Option<&OsStr>, rest: &mut Rest) {
        match (arg.get_id().as_str(), value) {
            ("version", None) => self.version = true,
            ("help", None) => self.help = true,
            (METADATA_SNAP, None) => self.bare_snap = Some((self.options.len(), self.positionals.len())),
            _ => {}
        }
        let next = match (takes_value(arg), value) {
            (Takes::Required, None) => rest.next_if(|next| !looks_like_option(next)),
            _ => None,
        };
        self.options.push(plain(arg, value.or(next.as_deref())));
    }

    fn finish(mut self) -> Result<Line, clap::Error> {
        if self.version {
            return Ok(Line::Version);
        }
        if self.help {
            return Ok(Line::Help);
        }
        if let Some(message) = self.ambiguous {
            return Err(self.command.clone().error(ErrorKind::UnknownArgument, message));
        }
        self.attach_block_number();
        let mut line = self.options;
        if !self.positionals.is_empty() {
            line.push("--".into());
            line.append(&mut self.positionals);
        }
        Ok(Line::Run(line))
    }

    /// `-m N` with a blank: if there is one positional too many, and one after the `-m` is a number, that is N.
    fn attach_block_number(&mut self) {
        let Some((option, before)) = self.bare_snap else { return };
        if self.positionals.len() != self.command.get_positionals().count() + 1 {
            return;
        }
        let number = self.positionals.iter().skip(before).position(|word| is_number(word.as_bytes()));
        if let Some(number) = number {
            let word = self.positionals.remove(before + number);
            self.options[option].push("=");
            self.options[option].push(word);
        }
    }
}

fn long_names(arg: &Arg) -> Vec<&str> {
    arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()).collect()
}

fn has_short(arg: &Arg, short: char) -> bool {
    arg.get_short() == Some(short) || arg.get_all_short_aliases().unwrap_or_default().contains(&short)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Optional,
    Required,
}

fn takes_value(arg: &Arg) -> Takes {
    if !arg.get_action().takes_values() {
        Takes::Nothing
    } else if arg.get_num_args().is_some_and(|number| number.min_values() == 0) {
        Takes::Optional
    } else {
        Takes::Required
    }
}

/// Whether what stands directly behind a short option with an optional value is that value, not more flags.
fn is_optional_value(arg: &Arg, text: &[u8]) -> bool {
    is_number(text) || arg.get_possible_values().iter().any(|value| value.get_name().as_bytes() == text)
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// A value that looks like an option is more likely a forgotten value; `--opt=-x` says it is one.
fn looks_like_option(word: &OsStr) -> bool {
    word.len() > 1 && word.as_bytes()[0] == b'-'
}

fn plain(arg: &Arg, value: Option<&OsStr>) -> OsString {
    let mut text = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => OsString::from(format!("--{long}")),
        (None, Some(short)) => OsString::from(format!("-{short}")),
        (None, None) => OsString::new(),
    };
    if let Some(value) = value {
        text.push("=");
        text.push(value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Line, normalise};
    use crate::cli::registry::{Tool, find};
    use clap::{Arg, Command};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    /// `-n[=short|long]` is a form of tools whose definitions are elsewhere.
    fn command() -> Command {
        let numeric = Arg::new("numeric-only").short('n').long("numeric-only").num_args(0..=1).require_equals(true);
        find("thin_dump").map(Tool::command).unwrap().arg(numeric.value_parser(["short", "long"]))
    }

    fn line(words: &str) -> String {
        let words = words.split(' ').map(|word| if word == "''" { "" } else { word }).map(OsString::from).collect();
        match normalise(&command(), words) {
            Ok(Line::Version) => "version".into(),
            Ok(Line::Help) => "help".into(),
            Ok(Line::Run(words)) => words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string().lines().next().unwrap().to_string(),
        }
    }

    #[test]
    fn plain_forms() {
        assert_eq!(line("x"), "-- x");
        assert_eq!(line("-q x -o y"), "--quiet --output=y -- x");
        assert_eq!(line("--output=y --output z x"), "--output=y --output=z -- x");
        assert_eq!(line("-oy x"), "--output=y -- x");
        assert_eq!(line("-o=y x"), "--output=y -- x");
        assert_eq!(line("-qfxml -qmr x"), "--quiet --format=xml --quiet --metadata-snap --repair -- x");
        assert_eq!(line("-vvv x -v"), "-v -v -v -v -- x");
        assert_eq!(line("--io-engine sync x"), "--io-engine=sync -- x");
        assert_eq!(line("- -o -"), "--output=- -- -");
    }

    #[test]
    fn after_two_dashes_all_are_positionals() {
        assert_eq!(line("-q -- -V '' --help"), "--quiet -- -V --help");
        assert_eq!(line("-q --"), "--quiet");
    }

    #[test]
    fn empty_arguments_are_dropped_unless_they_are_values() {
        assert_eq!(line("'' x ''"), "-- x");
        assert_eq!(line("-o '' x"), "--output= -- x");
    }

    #[test]
    fn prefixes() {
        assert_eq!(line("--quie --skip x"), "--quiet --skip-mappings -- x");
        assert_eq!(line("--metadata x"), "--metadata-snap -- x");
        assert_eq!(line("--metadata-snapsh=4 x"), "--metadata-snap=4 -- x");
        assert_eq!(line("--dev 3 x"), "--dev-id=3 -- x");
        assert_eq!(line("--f xml"), "error: '--f' is short for more than one option: '--format', '--flat'");
        assert_eq!(line("--unknown x"), "--unknown -- x");
        assert_eq!(line("--=3 x"), "--=3 -- x");
    }

    #[test]
    fn metadata_snapshot_forms() {
        assert_eq!(line("-m x"), "--metadata-snap -- x");
        assert_eq!(line("-m12 x"), "--metadata-snap=12 -- x");
        assert_eq!(line("-m=12 x"), "--metadata-snap=12 -- x");
        assert_eq!(line("-qm12 x"), "--quiet --metadata-snap=12 -- x");
        assert_eq!(line("-mq x"), "--metadata-snap --quiet -- x");
        assert_eq!(line("--metadata-snapshot=9 x"), "--metadata-snap=9 -- x");
        assert_eq!(line("-f xml x -m 12"), "--format=xml --metadata-snap=12 -- x");
        assert_eq!(line("-m 12 x"), "--metadata-snap=12 -- x");
        assert_eq!(line("-m 12 34"), "--metadata-snap=12 -- 34");
        assert_eq!(line("12 -m 34"), "--metadata-snap=34 -- 12");
        assert_eq!(line("-m 12"), "--metadata-snap -- 12");
        assert_eq!(line("12 x -m"), "--metadata-snap -- 12 x");
        assert_eq!(line("x -m y"), "--metadata-snap -- x y");
        assert_eq!(line("x -m 1 2"), "--metadata-snap -- x 1 2");
        assert_eq!(line("-m3 x 4"), "--metadata-snap=3 -- x 4");
    }

    #[test]
    fn optional_values_of_other_options() {
        assert_eq!(line("-nshort"), "--numeric-only=short");
        assert_eq!(line("-n=long -q"), "--numeric-only=long --quiet");
        assert_eq!(line("-nq"), "--numeric-only --quiet");
        assert_eq!(line("--numeric"), "--numeric-only");
    }

    #[test]
    fn version_and_help_win() {
        assert_eq!(line("x -V"), "version");
        assert_eq!(line("--nonsense --f -qV y"), "version");
        assert_eq!(line("-h --vers"), "version");
        assert_eq!(line("--nonsense x --help"), "help");
        assert_eq!(line("-o -V"), "version");
    }

    #[test]
    fn unknown_and_incomplete_are_left_to_clap() {
        assert_eq!(line("-qzo x"), "--quiet -zo -- x");
        assert_eq!(line("-o"), "--output");
        assert_eq!(line("-o -q"), "--output --quiet");
        assert_eq!(line("--quiet=3 x"), "--quiet=3 -- x");
    }

    proptest::proptest! {
        /// Whatever is typed: a plain line or an error, and clap reads the line without complaint about its form.
        #[test]
        fn anything_can_be_typed(words in proptest::collection::vec(word(), 0..6)) {
            if let Ok(Line::Run(plain)) = normalise(&command(), words) {
                let positionals = plain.iter().position(|word| word == "--").unwrap_or(plain.len());
                assert!(plain[..positionals].iter().all(|word| word.to_string_lossy().starts_with('-')));
                let _parsed = command().try_get_matches_from(std::iter::once(OsString::from("x")).chain(plain));
            }
        }
    }

    fn word() -> impl proptest::strategy::Strategy<Value = OsString> {
        use proptest::strategy::Strategy;
        let known = proptest::sample::select(vec![
            "-m",
            "-o",
            "--dev-id",
            "--fl",
            "--metadata-snap",
            "-n",
            "--",
            "-q",
            "7",
            "",
        ]);
        let noise = proptest::collection::vec(proptest::sample::select(b"-=mqofn7\xff,\xc3\xa4x".to_vec()), 0..7);
        proptest::prop_oneof![known.prop_map(OsString::from), noise.prop_map(OsString::from_vec)]
    }

    #[test]
    fn names_need_not_be_text() {
        let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let words = vec![odd(b"-o\xff"), odd(b"--output=\xfe"), odd(b"\xfd"), odd(b"--\xfc"), odd(b"-\xfb")];
        let plain = vec![odd(b"--output=\xff"), odd(b"--output=\xfe"), odd(b"--\xfc"), odd(b"-\xfb")];
        let plain = plain.into_iter().chain([odd(b"--"), odd(b"\xfd")]).collect();
        assert_eq!(normalise(&command(), words).unwrap(), Line::Run(plain));
    }
}
