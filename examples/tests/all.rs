//! Runs every example to its end: each asserts what it shows.

#[path = "../custom_sink.rs"]
mod custom_sink;
#[path = "../custom_transport.rs"]
mod custom_transport;
#[path = "../embed.rs"]
mod embed;
#[path = "../kafka.rs"]
mod kafka;
#[path = "../replicate.rs"]
mod replicate;
#[path = "../resume_after_crash.rs"]
mod resume_after_crash;

#[test]
fn the_embed_example_runs_to_its_end() {
    embed::main().expect("embed");
}

#[test]
fn the_replicate_example_runs_to_its_end() {
    replicate::main().expect("replicate");
}

#[test]
fn the_custom_sink_example_runs_to_its_end() {
    custom_sink::main().expect("custom_sink");
}

#[test]
fn the_custom_transport_example_runs_to_its_end() {
    custom_transport::main().expect("custom_transport");
}

#[test]
fn the_resume_after_crash_example_runs_to_its_end() {
    resume_after_crash::main().expect("resume_after_crash");
}

#[test]
fn the_kafka_example_runs_to_its_end() {
    kafka::main().expect("kafka");
}

#[test]
fn every_example_stays_below_eighty_lines() {
    for (name, text) in [
        ("custom_sink", include_str!("../custom_sink.rs")),
        ("custom_transport", include_str!("../custom_transport.rs")),
        ("embed", include_str!("../embed.rs")),
        ("kafka", include_str!("../kafka.rs")),
        ("replicate", include_str!("../replicate.rs")),
        ("resume_after_crash", include_str!("../resume_after_crash.rs")),
    ] {
        assert!(text.lines().count() < 80, "{name} has {} lines", text.lines().count());
    }
}
