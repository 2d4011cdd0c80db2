//! Claims about the API through a real socket, over a tree on a disk in memory.

mod access;
mod harness;
mod keys;
mod pages;
mod snapshots;
mod stream;
