//! A long wire on a kernel without netem, and what a bare TCP stream gets through it.

mod hold;
mod stream;

use std::time::Duration;

const USAGE: &str = "hold QUEUE MILLISECONDS | listen ADDRESS | send ADDRESS SECONDS";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["hold", queue, ms] => hold::hold(queue.parse()?, Duration::from_millis(ms.parse()?)),
        ["listen", address] => stream::listen(address),
        ["send", address, seconds] => stream::send(address, Duration::from_secs(seconds.parse()?)),
        _ => Err(USAGE.into()),
    }
}
