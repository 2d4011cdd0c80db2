//! Holds every packet of an NFQUEUE back for a while and lets it go.
//!
//! `iptables -A INPUT -j NFQUEUE --queue-num 1` on the receiving side brings packets here; on the sending side TCP takes
//! a packet that waits for one that is lost. Packets leave in the order in which they came. When this ends, the kernel drops
//! what is in the queue and what comes: nothing passes a wire that is not there.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use nfq::{Message, Queue, Verdict};

/// Packets that the kernel holds for us, at most; more are lost.
const PACKETS: u32 = 65_536;
/// Between two looks while packets wait for their time.
const LOOK: Duration = Duration::from_micros(300);
/// Between two looks while there is none.
const IDLE: Duration = Duration::from_millis(1);
/// The kernel had more for us than the socket takes (ENOBUFS).
const NO_ROOM: i32 = 105;

/// Does so until the process is ended.
pub fn hold(number: u16, delay: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut queue = Queue::open()?;
    queue.bind(number)?;
    queue.set_queue_max_len(number, PACKETS)?;
    // Nothing of a packet is looked at.
    queue.set_copy_range(number, 0)?;
    queue.set_nonblocking(true);
    let mut waiting: VecDeque<(Instant, Message)> = VecDeque::new();
    loop {
        loop {
            match queue.recv() {
                Ok(message) => waiting.push_back((Instant::now() + delay, message)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Those packets are lost, as on a wire.
                Err(error) if error.raw_os_error() == Some(NO_ROOM) => {}
                // An answer of the kernel to a verdict that came too late.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        while waiting.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            if let Some((_, mut message)) = waiting.pop_front() {
                message.set_verdict(Verdict::Accept);
                match queue.verdict(message) {
                    // Its interface went down meanwhile, and the kernel dropped it.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    answered => answered?,
                }
            }
        }
        std::thread::sleep(if waiting.is_empty() { IDLE } else { LOOK });
    }
}
