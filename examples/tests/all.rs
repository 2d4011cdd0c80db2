//! Runs every example to its end: each asserts what it shows.

#[path = "../custom_transport.rs"]
mod custom_transport;
#[path = "../embed.rs"]
mod embed;
#[path = "../replicate.rs"]
mod replicate;

#[test]
fn the_embed_example_runs_to_its_end() {
    embed::main().expect("embed");
}

#[test]
fn the_replicate_example_runs_to_its_end() {
    replicate::main().expect("replicate");
}

#[test]
fn the_custom_transport_example_runs_to_its_end() {
    custom_transport::main().expect("custom_transport");
}
