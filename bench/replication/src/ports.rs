//! Ports of loopback that nobody listens on.

use std::net::TcpListener;

use crate::failure::Outcome;

/// So many free ports, all different.
pub fn free<const N: usize>() -> Outcome<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind(("127.0.0.1", 0))?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
