//! The binary: everything is in the library.

fn main() -> std::process::ExitCode {
    tidewire::cli::main()
}
