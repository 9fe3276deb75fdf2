//! Manual pages and shell completions, made from the registry.

use super::VERSION;
use super::registry::{COMMANDS, TOOLS, Tool};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, line_break, roman};
use std::io;

/// Stands in every file that is made here, so that an installer knows whose it is.
pub const MARK: &str = "Made from the tool registry of dmeta";

/// A part of a manual page that can't be made from the options.
#[derive(Clone, Debug)]
pub struct Section {
    /// In capitals, by custom.
    pub title: &'static str,
    /// What it says.
    pub parts: Vec<Part>,
}

/// What a section is made of.
#[derive(Clone, Debug)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// A term and what it means.
    Entry(String, String),
    /// Lines to be shown as they are.
    Example(String),
}

impl Part {
    /// A paragraph.
    pub fn text(text: impl Into<String>) -> Part {
        Part::Text(text.into())
    }

    /// A term and what it means.
    pub fn entry(term: impl Into<String>, meaning: impl Into<String>) -> Part {
        Part::Entry(term.into(), meaning.into())
    }

    /// Lines to be shown as they are.
    pub fn example(lines: impl Into<String>) -> Part {
        Part::Example(lines.into())
    }
}

/// A file that is shipped with the binary.
#[derive(Debug)]
pub struct Page {
    /// Below the folder `man` of the repository.
    pub source: String,
    /// Below the prefix of an installation.
    pub installed: String,
    /// What is in it.
    pub text: String,
}

/// Every manual page and completion.
///
/// # Errors
/// Never in practice: writing to memory does not fail.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut pages = vec![binary_page()?];
    for tool in TOOLS {
        pages.push(tool_page(tool)?);
        pages.push(completion(tool, Shell::Bash, "bash", "bash-completion/completions", tool.name.to_string())?);
        pages.push(completion(tool, Shell::Zsh, "zsh", "zsh/site-functions", format!("_{}", tool.name))?);
        pages.push(completion(tool, Shell::Fish, "fish", "fish/vendor_completions.d", format!("{}.fish", tool.name))?);
    }
    Ok(pages)
}

fn man_page(name: &str, text: Vec<u8>) -> Page {
    let file = format!("{name}.8");
    let text = format!(".\\\" {MARK}.\n{}", String::from_utf8_lossy(&text));
    Page { installed: format!("share/man/man8/{file}"), source: file, text }
}

fn man(tool: &Tool) -> Man {
    Man::new(tool.command()).section("8").source(format!("dmeta {VERSION}")).manual("System Administration")
}

fn tool_page(tool: &Tool) -> io::Result<Page> {
    let mut text = Vec::new();
    let man = man(tool);
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    let (before, after): (Vec<Section>, Vec<Section>) =
        (tool.manual)().into_iter().partition(|section| section.title == "DESCRIPTION");
    write_sections(&before, &mut text)?;
    man.render_options_section(&mut text)?;
    write_sections(&after, &mut text)?;
    if !after.iter().any(|section| section.title == EXIT_STATUS) {
        write_sections(&[exit_status(vec![])], &mut text)?;
    }
    write_sections(&[see_also(tool.name)], &mut text)?;
    Ok(man_page(tool.name, text))
}

fn binary_page() -> io::Result<Page> {
    let mut text = Vec::new();
    let mut roff = Roff::new();
    roff.control("TH", ["pdata_tools", "8", "", &format!("dmeta {VERSION}"), "System Administration"]);
    roff.to_writer(&mut text)?;
    let list = |tools: &[Tool]| tools.iter().map(|tool| Part::entry(tool.name, tool.about)).collect();
    let mut sections = vec![
        section("NAME", vec![Part::text("pdata_tools - offline metadata tools for device-mapper thin pools")]),
        section("SYNOPSIS", vec![Part::example("pdata_tools TOOL [ARGUMENT]...\nTOOL [ARGUMENT]...")]),
        section(
            "DESCRIPTION",
            vec![
                Part::text(
                    "One binary holds all tools. It is the tool whose name it is called by, usually through a link; \
                     called by any other name, it is the tool that its first argument names.",
                ),
                Part::text(
                    "Every tool knows --help and --version, takes options before and after its arguments and long \
                     options by any unambiguous beginning, and lets the last of repeated options count.",
                ),
            ],
        ),
        section("TOOLS", list(TOOLS)),
        section("COMMANDS", list(COMMANDS)),
    ];
    sections.extend(COMMANDS.iter().flat_map(|command| (command.manual)()));
    sections.extend([exit_status(vec![]), see_also("pdata_tools")]);
    write_sections(&sections, &mut text)?;
    Ok(man_page("pdata_tools", text))
}

fn section(title: &'static str, parts: Vec<Part>) -> Section {
    Section { title, parts }
}

const EXIT_STATUS: &str = "EXIT STATUS";

/// What every tool's exit status means, and what this one's means beside that.
pub fn exit_status(more: Vec<Part>) -> Section {
    let mut parts = vec![
        Part::entry("0", "Success."),
        Part::entry("1", "Failure of any kind: damage was found, the input can't be used, the command line is wrong."),
        Part::entry("141 in a shell", "The reader of the output went away, and SIGPIPE ended the tool silently."),
        Part::text(
            "No other number is used. In particular 2 is not, which LVM takes for a missing tool. With --exit-codes=fsck \
             the statuses are those of fsck(8): 0, success; 1, damage was put right; 4, damage was found and is still \
             there; 8, the tool could not do its work; 16, the command line is wrong.",
        ),
    ];
    parts.extend(more);
    section(EXIT_STATUS, parts)
}

fn see_also(name: &str) -> Section {
    let others =
        std::iter::once("pdata_tools").chain(TOOLS.iter().map(|tool| tool.name)).filter(|other| *other != name);
    let list: Vec<String> = others.map(|other| format!("{other}(8)")).collect();
    section("SEE ALSO", vec![Part::text(list.join(", "))])
}

fn write_sections(sections: &[Section], out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    for section in sections.iter().filter(|section| !section.parts.is_empty()) {
        roff.control("SH", [section.title]);
        for (index, part) in section.parts.iter().enumerate() {
            write_part(&mut roff, part, index == 0);
        }
    }
    roff.to_writer(out)
}

fn write_part(roff: &mut Roff, part: &Part, first: bool) {
    match part {
        Part::Text(text) => {
            if !first {
                roff.control("PP", []);
            }
            roff.text([roman(text)]);
        }
        Part::Entry(term, meaning) => {
            roff.control("TP", []);
            roff.text([bold(term)]);
            roff.text([roman(meaning)]);
        }
        Part::Example(lines) => {
            roff.control("PP", []).control("RS", ["4"]).control("nf", []);
            let mut inlines = Vec::new();
            for line in lines.lines() {
                inlines.extend([roman(line), line_break()]);
            }
            inlines.pop();
            roff.text(inlines);
            roff.control("fi", []).control("RE", []);
        }
    }
}

/// The command without what is hidden: completions would offer it.
fn shown(tool: &Tool) -> Command {
    let command = tool.command();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let shown = Command::new(tool.name).about(tool.about).disable_help_flag(true).disable_version_flag(true);
    shown.args(arguments)
}

fn completion(tool: &Tool, shell: Shell, folder: &str, installed: &str, file: String) -> io::Result<Page> {
    let mut script = Vec::new();
    let mut command = shown(tool);
    clap_complete::generate(shell, &mut command, tool.name, &mut script);
    let script = String::from_utf8_lossy(&script);
    // zsh wants its #compdef on the first line.
    let text = match script.split_once('\n') {
        Some((first, rest)) if first.starts_with("#compdef") => format!("{first}\n# {MARK}.\n{rest}"),
        _ => format!("# {MARK}.\n{script}"),
    };
    Ok(Page { source: format!("completions/{folder}/{file}"), installed: format!("share/{installed}/{file}"), text })
}

#[cfg(test)]
mod tests {
    use super::{MARK, pages};

    #[test]
    fn hidden_options_are_nowhere() {
        for page in pages().unwrap() {
            assert!(!page.text.contains("io-engine"), "{}", page.source);
        }
    }

    #[test]
    fn every_page_bears_the_mark_near_its_top() {
        for page in pages().unwrap() {
            assert!(page.text.lines().take(2).any(|line| line.contains(MARK)), "{}", page.source);
        }
    }
}
