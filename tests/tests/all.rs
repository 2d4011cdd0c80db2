//! Claims about the whole: one module for each.

mod acknowledged;
mod bootstrap;
mod causality;
mod clock;
mod closed_order;
mod collecting;
mod dead_letters;
mod effective;
mod flow;
mod gaps;
mod golden;
mod kills;
mod minutes;
mod no_loops;
mod on_demand;
mod peers;
mod ranges;
mod reaping;
mod relay;
mod retention;
mod simulation;
mod sinks;
mod snapshots;
mod tidy;
mod verbatim;
mod went_back;
