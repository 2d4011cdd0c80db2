//! The binary: everything is in the library, but the choice of an allocator, which belongs to programs.

/// Applying what comes from elsewhere is allocating, one piece of memory an entry (docs/decisions/0036).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tidewire::cli::main()
}
