//! Claims about writer and committer over providers that do what a test says.

mod rig;
mod threaded;

mod above;
mod company;
mod conforming;
mod failing;
mod flights;
mod hanging;
mod idle;
mod leading;
mod model;
mod stopping;
