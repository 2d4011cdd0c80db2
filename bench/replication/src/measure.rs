//! One turn of one system: a backlog, then live writes behind it.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::failure::Outcome;
use crate::kind::{Kind, Kit};
use crate::limits::synced_write;
use crate::live::{Live, LiveWrites};
use crate::system::System;
use crate::workload::Workload;

/// Nothing has arrived after so long: it does not work.
const FIRST: Duration = Duration::from_secs(90);
/// Between two looks at the target.
const LOOK: Duration = Duration::from_millis(10);

/// What one turn does.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub entries: u64,
    /// How long the backlog may take once it has begun to arrive.
    pub most: Duration,
    pub live: LivePlan,
}

/// Which live writes follow the backlog.
#[derive(Clone, Copy, Debug)]
pub enum LivePlan {
    None,
    /// The peak is looked for, from the rate of the backlog on.
    Peak {
        lasting: Duration,
    },
    Rate {
        per_second: f64,
        lasting: Duration,
    },
}

/// What one turn gave.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub loaded_in: Duration,
    /// From the start of the target to the first entries there.
    pub first_after: Duration,
    pub backlog: Backlog,
    /// A synced write, just before the live writes.
    pub synced_write_ms: f64,
    pub peak: Option<f64>,
    pub live: Option<Live>,
}

/// How a backlog arrived.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    pub per_second: f64,
    pub whole: bool,
}

/// Runs it.
pub async fn measure(kind: Kind, kit: &Kit, workload: &Workload, turn: Turn) -> Outcome<Figures> {
    let mut system = kind.start(kit, workload).await?;
    let began = Instant::now();
    system.load(turn.entries).await?;
    let loaded_in = began.elapsed();
    let began = Instant::now();
    system.open().await?;
    let first = first_arrival(system.as_mut(), began).await?;
    let backlog = backlog(system.as_mut(), first, turn).await?;
    let synced_write_ms = synced_write(&kit.dir)?;
    let (mut peak, mut live) = (None, None);
    if backlog.whole {
        match turn.live {
            LivePlan::None => {}
            LivePlan::Peak { lasting } => {
                let mut writes = LiveWrites::new(system.as_mut(), turn.entries).await?;
                peak = Some(writes.peak(system.as_mut(), backlog.per_second, lasting).await?);
            }
            LivePlan::Rate { per_second, lasting } => {
                let mut writes = LiveWrites::new(system.as_mut(), turn.entries).await?;
                live = Some(writes.run(system.as_mut(), per_second, lasting).await?);
            }
        }
    }
    system.stop().await?;
    let first_after = first.1 - began;
    Ok(Figures { loaded_in, first_after, backlog, synced_write_ms, peak, live })
}

/// Waits for the first entries; how many they were, and when.
async fn first_arrival(system: &mut dyn System, began: Instant) -> Outcome<(u64, Instant)> {
    loop {
        let arrived = system.arrived().await?;
        if arrived > 0 {
            return Ok((arrived, Instant::now()));
        }
        if began.elapsed() > FIRST {
            return Err(format!("nothing arrived within {FIRST:?}").into());
        }
        sleep(LOOK).await;
    }
}

/// Waits until everything is there, or until it has taken long enough.
async fn backlog(system: &mut dyn System, first: (u64, Instant), turn: Turn) -> Outcome<Backlog> {
    loop {
        let arrived = system.arrived().await?;
        let took = first.1.elapsed();
        let whole = arrived >= turn.entries;
        if whole || took > turn.most {
            // All but the first look's: those arrived in an unknown time.
            let per_second = (arrived - first.0) as f64 / took.as_secs_f64();
            return Ok(Backlog { per_second, whole });
        }
        sleep(LOOK).await;
    }
}
