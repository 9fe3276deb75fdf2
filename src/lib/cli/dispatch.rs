//! From what was typed to the tool that runs: by the name of the program, or by the first argument.

use super::arguments::{Line, normalise};
use super::context::Context;
use super::exit::{self, Ending, Outcome};
use super::registry::{COMMANDS, TOOLS, Tool, find};
use super::{VERSION, options, output};
use clap::{ArgMatches, Command};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Runs the tool that the command line names, and gives the exit status.
pub fn main() -> ExitCode {
    exit::guard(|| run(std::env::args_os().collect()))
}

enum Choice {
    Tool(&'static Tool, Vec<OsString>),
    Help,
    Version,
    Unknown(OsString),
    Nothing,
}

/// A program name that is no tool's, whatever it is, is that of the multi-call binary itself.
fn choose(mut arguments: Vec<OsString>) -> Choice {
    if arguments.is_empty() {
        return Choice::Nothing;
    }
    let program = arguments.remove(0);
    if let Some(tool) = tool_named(Path::new(&program).file_name()) {
        return Choice::Tool(tool, arguments);
    }
    if arguments.is_empty() {
        return Choice::Nothing;
    }
    let first = arguments.remove(0);
    match first.to_str() {
        Some("-h" | "--help" | "help") => Choice::Help,
        Some("-V" | "--version") => Choice::Version,
        _ => match tool_named(Some(&first)) {
            Some(tool) => Choice::Tool(tool, arguments),
            None => Choice::Unknown(first),
        },
    }
}

fn tool_named(name: Option<&OsStr>) -> Option<&'static Tool> {
    find(name?.to_str()?)
}

fn run(arguments: Vec<OsString>) -> Ending {
    match choose(arguments) {
        Choice::Tool(tool, arguments) => run_tool(tool, arguments),
        Choice::Help => show(&overview()),
        Choice::Version => show(&format!("{VERSION}\n")),
        Choice::Nothing => Ending::usage(overview()),
        Choice::Unknown(name) => {
            Ending::usage(format!("error: there is no tool '{}'\n\n{}", name.to_string_lossy(), overview()))
        }
    }
}

fn run_tool(tool: &'static Tool, arguments: Vec<OsString>) -> Ending {
    let mut command = tool.command();
    // Also a command line that is wrong elsewhere tells so by the status that it asks for.
    exit::set_fsck(asks_for_fsck(&arguments));
    match normalise(&command, arguments) {
        Err(error) => wrong_usage(tool, &error),
        Ok(Line::Version) => show(&format!("{VERSION}\n")),
        Ok(Line::Help) => show(&command.render_help().to_string()),
        Ok(Line::Run(arguments)) => match parse(command, tool.name, arguments) {
            Err(error) => wrong_usage(tool, &error),
            Ok(matches) => {
                let context = Context::new(tool.name, &matches);
                exit::set_quiet(context.is_quiet());
                exit::set_fsck(options::wants_fsck(&matches));
                Ending::of((tool.run)(&matches, &context), &context)
            }
        },
    }
}

/// Whether `--exit-codes=fsck` is there, spelt out.
fn asks_for_fsck(arguments: &[OsString]) -> bool {
    let apart = arguments.windows(2).any(|pair| pair[0] == "--exit-codes" && pair[1] == "fsck");
    apart || arguments.iter().any(|word| word == "--exit-codes=fsck")
}

fn wrong_usage(tool: &Tool, error: &clap::Error) -> Ending {
    Ending::usage(format!(
        "{}\n\n'{} --help' explains the options.\n",
        error.render().to_string().trim_end(),
        tool.name
    ))
}

fn parse(command: Command, name: &str, arguments: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    command.try_get_matches_from(std::iter::once(OsString::from(name)).chain(arguments))
}

fn show(text: &str) -> Ending {
    Ending::of(output::print(text).map(|()| Outcome::Success), &Context::plain("pdata_tools"))
}

fn overview() -> String {
    let width = TOOLS.iter().chain(COMMANDS).map(|tool| tool.name.len()).max().unwrap_or(0);
    let line = |tool: &Tool| format!("  {:width$}  {}\n", tool.name, tool.about);
    let mut text = format!(
        "dmeta {VERSION}: offline metadata tools for the device-mapper targets thin, cache and era\n\n\
         Usage: pdata_tools TOOL [ARGUMENT]...\n\
         \x20      TOOL [ARGUMENT]...   (through a link with the tool's name)\n\n\
         Tools:\n"
    );
    text.extend(TOOLS.iter().map(line));
    text.push_str("\nCommands of the binary itself:\n");
    text.extend(COMMANDS.iter().map(line));
    text.push_str("\n'pdata_tools TOOL --help' explains a tool.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::{Choice, choose};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn chosen(words: &[&str]) -> String {
        match choose(words.iter().map(OsString::from).collect()) {
            Choice::Tool(tool, rest) => format!("{} {}", tool.name, rest.len()),
            Choice::Help => "help".into(),
            Choice::Version => "version".into(),
            Choice::Unknown(name) => format!("unknown {}", name.to_string_lossy()),
            Choice::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn by_program_name() {
        assert_eq!(chosen(&["thin_check", "x"]), "thin_check 1");
        assert_eq!(chosen(&["/usr/sbin/thin_dump"]), "thin_dump 0");
        assert_eq!(chosen(&["./../thin_check", "thin_dump"]), "thin_check 1");
    }

    #[test]
    fn by_first_argument() {
        for program in ["pdata_tools", "/sbin/pdata_tools", "pdata_tools_dev", "odd name-5f3a", "", "/"] {
            assert_eq!(chosen(&[program, "thin_check", "a", "b"]), "thin_check 2");
        }
        let odd = OsString::from_vec(vec![0xff, b'/', 0xfe]);
        assert!(matches!(choose(vec![odd, "thin_dump".into()]), Choice::Tool(tool, _) if tool.name == "thin_dump"));
    }

    #[test]
    fn no_tool() {
        assert_eq!(chosen(&[]), "nothing");
        assert_eq!(chosen(&["pdata_tools"]), "nothing");
        assert_eq!(chosen(&["pdata_tools", "thin_chek", "x"]), "unknown thin_chek");
        assert_eq!(chosen(&["pdata_tools", ""]), "unknown ");
        assert_eq!(chosen(&["pdata_tools", "--help"]), "help");
        assert_eq!(chosen(&["pdata_tools", "-V"]), "version");
    }
}
