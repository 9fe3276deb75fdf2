//! The one binary: picks the tool by the name it was called with, or by its first argument.

fn main() -> std::process::ExitCode {
    dmeta::cli::main()
}
