//! Claims about the library and the binary as others see them.

mod command_line;
mod load_lines;
mod processes;
