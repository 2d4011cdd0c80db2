//! Load on a [`Peer`]: writers are threads.

use crate::engines::Peer;
use crate::failure::Outcome;
use crate::latencies::Latencies;
use crate::turn::Figures;
use crate::window::{Laps, Window};
use crate::workload::{round_key, value};

/// Each writer writes, waits for the answer, and writes again.
pub fn closed(peer: &dyn Peer, writers: usize, bytes: usize, seconds: f64) -> Outcome<Figures> {
    let window = Window::new(seconds);
    let value = value(bytes);
    let write = |writer: usize| -> Outcome<Latencies> {
        let mut laps = Laps::new(window);
        for step in 0.. {
            peer.append(writer, &round_key(writer, step), &value)?;
            if !laps.next() {
                break;
            }
        }
        Ok(laps.latencies())
    };
    let mut all = Latencies::default();
    std::thread::scope(|scope| -> Outcome<()> {
        let write = &write;
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a writer panicked")??);
        }
        Ok(())
    })?;
    Ok(window.figures(all, 1))
}

/// One writer, so many records in one write.
pub fn batches(peer: &dyn Peer, records: usize, bytes: usize, seconds: f64) -> Outcome<Figures> {
    let window = Window::new(seconds);
    let value = value(bytes);
    let keys: Vec<_> = (0..records as u64).map(|key| round_key(0, key)).collect();
    let mut laps = Laps::new(window);
    loop {
        peer.append_many(0, &keys, &value)?;
        if !laps.next() {
            return Ok(window.figures(laps.latencies(), records));
        }
    }
}
