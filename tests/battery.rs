//! What holds for every tool in the registry, whatever it does.

mod support;

use dmeta::cli::VERSION;
use dmeta::cli::registry::{TOOLS, Tool};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{BINARY, Run, finish, make_fifo, run, wait};

const SIGPIPE: i32 = 13;

/// A complete command line that makes `tool` read `input`.
fn line(tool: &Tool, input: &Path) -> Vec<OsString> {
    let command = tool.command();
    let has = |name: &str| command.get_arguments().any(|argument| argument.get_id() == name);
    if !has("input") && command.get_positionals().next().is_none() {
        // It changes what it is given: in a way that needs something sound.
        let change = match () {
            () if has("set-needs-check") => vec!["--set-needs-check".into()],
            () if has("kind") => vec!["--kind".into(), "bit-rot".into()],
            () => vec![],
        };
        return [vec!["-o".into(), input.into()], change].concat();
    }
    let mut line = Vec::new();
    if command.get_opts().any(|option| option.get_id() == "input") {
        line.push("-i".into());
    }
    line.push(input.into());
    for _ in command.get_positionals().filter(|positional| positional.is_required_set()).skip(1) {
        line.push(input.with_extension("out").into());
    }
    if command.get_opts().any(|option| option.get_id() == "output")
        && command.get_opts().any(|option| option.get_id() == "input")
    {
        line.push("-o".into());
        line.push(input.with_extension("out").into());
    }
    line
}

/// Whether the tool takes blocks that are no metadata: a packed image of them holds nothing.
fn takes_any_blocks(tool: &Tool) -> bool {
    tool.name == "thin_metadata_pack"
}

fn has_quiet(tool: &Tool) -> bool {
    tool.command().get_arguments().any(|argument| argument.get_id() == "quiet")
}

/// Inputs that no tool can read, by name.
fn bad_inputs(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let fifo = folder.join("fifo");
    make_fifo(&fifo);
    vec![
        ("missing", folder.join("missing")),
        ("a directory", folder.to_path_buf()),
        ("a FIFO", fifo),
        ("a character device", "/dev/null".into()),
        ("an empty file", file("empty", b"")),
        ("a short file", file("short", &[7; 100])),
        ("half an XML document", file("xml", "<superblock uuid=\"\" time=\"0\">\n".repeat(500).as_bytes())),
        ("zeros", file("zeros", &vec![0; 1 << 20])),
        (
            "noise",
            file("noise", &(0..1 << 20).map(|i: u32| (i.wrapping_mul(2654435761) >> 13) as u8).collect::<Vec<_>>()),
        ),
    ]
}

#[track_caller]
fn expect_failure(run: &Run) {
    run.expect_code(1).expect("a message on standard error", |run| !run.stderr.trim().is_empty());
    run.expect("nothing on standard output", |run| run.stdout.is_empty());
}

#[test]
fn help_goes_to_standard_output() {
    for tool in TOOLS {
        for flag in ["--help", "-h", "--hel"] {
            let run = run(tool.name, [flag]);
            run.expect_code(0).expect("no words on standard error", |run| run.stderr.is_empty());
            run.expect("usage", |run| run.stdout.contains(&format!("Usage: {}", tool.name)));
            run.expect("an account of the tool", |run| run.stdout.contains(tool.about));
        }
    }
}

#[test]
fn version_wins_over_everything() {
    for tool in TOOLS {
        for words in [
            &["-V"][..],
            &["--version"],
            &["/missing", "-V"],
            &["-V", "/missing"],
            &["--nonsense", "-V"],
            &["-h", "-V"],
        ] {
            let run = run(tool.name, words);
            run.expect_code(0).expect("the bare number", |run| run.stdout == format!("{VERSION}\n"));
            run.expect("no words on standard error", |run| run.stderr.is_empty());
        }
    }
    let numbers: Vec<u32> = VERSION.split('.').map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers[0] >= 1);
}

#[test]
fn a_wrong_command_line_is_said_and_fails_with_1() {
    for tool in TOOLS {
        let whole = line(tool, Path::new("/missing"));
        for extra in ["--nonsense", "-Z", "--nonsense=1", "one-positional-too-many"] {
            let words = whole.iter().cloned().chain([extra.into()]);
            let run = run(tool.name, words);
            expect_failure(&run);
            run.expect("the word that is wrong", |run| run.stderr.contains(extra.split('=').next().unwrap()));
            run.expect("what to do next", |run| run.stderr.contains(&format!("'{} --help'", tool.name)));
        }
        let words = whole.iter().cloned().chain(["--nonsense".into(), "-q".into()]);
        expect_failure(&run(tool.name, words));
    }
}

#[test]
fn an_empty_argument_changes_nothing() {
    for tool in TOOLS {
        let plain = line(tool, Path::new("/missing"));
        let padded: Vec<OsString> =
            [OsString::new()].into_iter().chain(plain.clone()).chain([OsString::new()]).collect();
        let (plain, padded) = (run(tool.name, plain), run(tool.name, padded));
        expect_failure(&padded);
        padded.expect("the same words as without", |run| run.stderr == plain.stderr);
    }
}

#[test]
fn hidden_options_are_accepted() {
    for tool in TOOLS {
        let plain = run(tool.name, line(tool, Path::new("/missing")));
        for hidden in ["-v -vv", "--io-engine sync", "--io-engine=async", "--io-engine spindle --io-engine sync"] {
            let words = support::words(hidden).into_iter().chain(line(tool, Path::new("/missing")));
            let run = run(tool.name, words);
            expect_failure(&run);
            run.expect("the same words as without", |run| run.stderr == plain.stderr);
        }
    }
}

#[test]
fn bad_input_fails_with_1() {
    let folder = tempfile::tempdir().unwrap();
    for (what, input) in bad_inputs(folder.path()) {
        for tool in TOOLS {
            let run = run(tool.name, line(tool, &input));
            eprintln!("{}: {what}", tool.name);
            if takes_any_blocks(tool) && ["zeros", "noise"].contains(&what) {
                run.expect_code(0).expect("a warning", |run| run.stderr.contains("no metadata"));
            } else {
                expect_failure(&run);
            }
        }
    }
}

#[test]
fn quiet_means_silence() {
    let folder = tempfile::tempdir().unwrap();
    for (what, input) in bad_inputs(folder.path()) {
        for tool in TOOLS.iter().filter(|tool| has_quiet(tool)) {
            let run = run(tool.name, line(tool, &input).into_iter().chain(["-q".into()]));
            eprintln!("{}: {what}", tool.name);
            let code = i32::from(!(takes_any_blocks(tool) && ["zeros", "noise"].contains(&what)));
            run.expect_code(code).expect("silence", |run| run.stdout.is_empty() && run.stderr.is_empty());
        }
    }
}

#[test]
fn nothing_of_the_environment_is_needed() {
    for tool in TOOLS {
        let mut command = support::tool(tool.name);
        expect_failure(&finish(command.env_clear().current_dir("/").args(line(tool, Path::new("/missing")))));
        let mut command = support::tool(tool.name);
        finish(command.env_clear().arg("--help")).expect_code(0);
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_tool_silently() {
    for tool in TOOLS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = support::tool(tool.name);
        let mut child = command.arg("--help").stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let status = wait(&mut child, tool.name);
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!((signal, stderr.as_str()), (Some(SIGPIPE), ""), "{}", tool.name);
    }
}

#[test]
fn a_full_disk_is_a_failure() {
    for tool in TOOLS {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = support::tool(tool.name);
        let output = command.arg("--help").stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {stderr}", tool.name);
        assert!(stderr.contains("standard output"), "{}: {stderr}", tool.name);
    }
}

#[test]
fn closed_standard_error_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    fs::write(&input, vec![0; 1 << 20]).unwrap();
    for tool in TOOLS {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "exec \"$0\" \"$@\" 2>&-", BINARY, tool.name]).args(line(tool, &input));
        let code = i32::from(!takes_any_blocks(tool));
        finish(&mut shell).expect_code(code).expect("silence", |run| run.stdout.is_empty());
        assert!(fs::read(&input).unwrap().iter().all(|byte| *byte == 0), "{} wrote to its input", tool.name);
    }
}

#[test]
fn a_link_is_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let link = folder.path().join(tool.name);
        symlink(BINARY, &link).unwrap();
        let through_link = finish(Command::new(&link).arg("--help"));
        let by_argument = run(tool.name, ["--help"]);
        assert_eq!(through_link.stdout, by_argument.stdout);
    }
    for name in ["pdata_tools_dev", "renamed copy"] {
        let link = folder.path().join(name);
        symlink(BINARY, &link).unwrap();
        finish(Command::new(&link).args([TOOLS[0].name, "-V"])).expect_code(0);
    }
}

#[test]
fn the_binary_itself_lists_the_tools() {
    let run_it = |words: &[&str]| finish(Command::new(BINARY).args(words));
    for words in [&[][..], &["no_such_tool"], &[""], &["no_such_tool", "-V"]] {
        let run = run_it(words);
        expect_failure(&run);
        run.expect("every tool", |run| TOOLS.iter().all(|tool| run.stderr.contains(tool.name)));
    }
    for word in ["--help", "-h"] {
        let run = run_it(&[word]);
        run.expect_code(0).expect("every tool", |run| TOOLS.iter().all(|tool| run.stdout.contains(tool.name)));
    }
    for word in ["--version", "-V"] {
        run_it(&[word]).expect_code(0).expect("the bare number", |run| run.stdout == format!("{VERSION}\n"));
    }
}
