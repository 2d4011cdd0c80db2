//! Claims about the log on files, below the writer: groups are handed to the provider as a committer would.

mod rig;

mod at_rest;
mod filling;
mod model;
mod opening;
mod overtaken;
mod reading;
mod trimming;
