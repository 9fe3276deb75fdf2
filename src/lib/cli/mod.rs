//! The command layer.

/// Runs the tool.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
