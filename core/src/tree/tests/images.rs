//! What a crash can leave: after every operation of the disk, the durable bytes with any part of the unsynced.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::run::{Other, Run, demand_reopened};
use crate::disk::CrashImages;
use crate::trials::Seeds;

#[tokio::test(start_paused = true)]
async fn whatever_a_crash_leaves_after_any_disk_operation_opens_with_all_that_was_acknowledged() {
    let mut seeds = Seeds::new(
        "whatever_a_crash_leaves_after_any_disk_operation_opens_with_all_that_was_acknowledged",
        Duration::from_secs(3),
        0.4,
    );
    let (mut moments, mut by_snapshot) = (0, 0);
    while let Some(seed) = seeds.next() {
        let mut images = None;
        let mut run = Run::new(seed, Other::new(seed, 12).await, |inner, disk, history| {
            let recording = Arc::new(CrashImages::over(inner, disk, move || history.lock().clone()));
            recording.record(true);
            images = Some(recording.clone());
            recording
        })
        .await;
        for _ in 0..14 {
            run.step_without_restart().await;
        }
        let images = images.expect("a new tree was opened on it").take();
        run.faults.heal();
        seeds.did(images.len() as u64);
        for (at, (image, history)) in images.into_iter().enumerate() {
            println!("moment {at}");
            // The process alone may end as well: then everything is seen, and little of it is durable.
            let found = if run.random.chance(0.7) { image.crash(run.random.id()) } else { image.kill() };
            found.set_quota(u64::MAX);
            let history = Mutex::new(history);
            let tree = run.site.open(Arc::new(found.clone())).await;
            let tree = tree.unwrap_or_else(|error| panic!("a crash leaves a tree that opens: {error}"));
            demand_reopened(&tree, &history).await;
            by_snapshot += u64::from(tree.last_snapshot().is_some());
            moments += 1;
            // It goes on, and what it says now is as safe as what it said before.
            let number = history.lock().ask(vec![crate::record::Mutation::set("after", "it")]);
            let answer = tree.put("after", "it").await;
            history.lock().answer(number, &answer);
            answer.expect("the tree goes on");
            let again = if at % 2 == 0 { found.crash(run.random.id()) } else { found.kill() };
            let tree = run.site.open(Arc::new(again)).await.expect("opens again");
            demand_reopened(&tree, &history).await;
        }
    }
    println!("{moments} moments, {by_snapshot} opened by a snapshot");
    assert!(moments > 150 && by_snapshot > 0, "{moments} moments, {by_snapshot} opened by a snapshot");
}
