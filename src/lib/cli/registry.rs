//! The one list of tools. Dispatch, help, manual pages, completions, links and the common tests come from it.

use super::context::Context;
use super::exit::Outcome;
use super::manual::Section;
use super::{
    install, options, thin_check, thin_delete, thin_dump, thin_generate_damage, thin_generate_metadata,
    thin_metadata_pack, thin_metadata_unpack, thin_repair, thin_replay, thin_restore, thin_undo,
};
use clap::{ArgMatches, Command};

/// One tool.
#[derive(Debug)]
pub struct Tool {
    /// The name that it is called by.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Adds the tool's own options and positionals.
    pub arguments: fn(Command) -> Command,
    /// Does the work. An error is printed and fails the run.
    pub run: fn(&ArgMatches, &Context) -> anyhow::Result<Outcome>,
    /// What its manual page says beside the options.
    pub manual: fn() -> Vec<Section>,
}

impl Tool {
    /// The whole command line: the tool's own arguments and those that every tool has.
    pub fn command(&self) -> Command {
        options::common((self.arguments)(Command::new(self.name).about(self.about)))
    }
}

/// Every tool, by name.
pub const TOOLS: &[Tool] = &[
    thin_check::TOOL,
    thin_delete::TOOL,
    thin_dump::TOOL,
    thin_generate_damage::TOOL,
    thin_generate_metadata::TOOL,
    thin_metadata_pack::TOOL,
    thin_metadata_unpack::TOOL,
    thin_repair::TOOL,
    thin_replay::TOOL,
    thin_restore::TOOL,
    thin_undo::TOOL,
];

/// What the multi-call binary itself can do: called by first argument only, without links.
pub const COMMANDS: &[Tool] = &[install::COMMAND];

/// The tool or command of that name.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().chain(COMMANDS).find(|tool| tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, TOOLS, find};

    #[test]
    fn sorted_and_without_repetition() {
        for pair in TOOLS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} before {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn every_definition_passes_claps_own_check() {
        for tool in TOOLS.iter().chain(COMMANDS) {
            tool.command().debug_assert();
            assert!(find(tool.name).is_some());
        }
    }

    #[test]
    fn every_option_with_a_value_has_a_long_name() {
        for tool in TOOLS {
            for option in tool.command().get_opts().filter(|option| option.get_action().takes_values()) {
                assert!(option.get_long().is_some(), "{}: {}", tool.name, option.get_id());
            }
        }
    }

    #[test]
    fn every_visible_argument_is_explained() {
        for tool in TOOLS {
            for argument in tool.command().get_arguments().filter(|a| !a.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{}: {}", tool.name, argument.get_id());
            }
        }
    }
}
