//! A bare TCP stream: what a wire carries when nothing else is done.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const CHUNK: usize = 64 * 1024;

/// Takes one stream, and prints the bytes a second that arrived after its first bytes.
pub fn listen(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    let (mut buffer, mut bytes) = (vec![0; CHUNK], 0_u64);
    bytes += stream.read(&mut buffer)? as u64;
    let (began, mut last) = (Instant::now(), Instant::now());
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                bytes += count as u64;
                last = Instant::now();
            }
            // The sender does not wait for what is on its way.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error.into()),
        }
    }
    println!("{:.0}", bytes as f64 / (last - began).as_secs_f64());
    Ok(())
}

/// Sends for a while, as much as goes.
pub fn send(address: &str, lasting: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(lasting))?;
    let (began, buffer) = (Instant::now(), vec![7; CHUNK]);
    while began.elapsed() < lasting {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
