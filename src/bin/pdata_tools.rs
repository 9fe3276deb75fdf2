//! The one binary: picks the tool by the name it was called with, or by its first argument.

#[global_allocator]
static ALLOCATOR: dmeta::block::scarce::Allocator = dmeta::block::scarce::Allocator;

fn main() -> std::process::ExitCode {
    dmeta::cli::main()
}
