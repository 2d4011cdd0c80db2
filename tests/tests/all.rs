//! Claims about the whole: one module for each.

mod simulation;
mod tidy;
