//! [`Watch`]: looks at every site after each step that it makes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::Tree;
use tidewire_core::tree::{ApplyTarget, LogView};
use tokio::task::JoinSet;

use crate::site::Site;

/// Looks before it rests for a millisecond of virtual time, which passes only while everybody rests.
const LOOKS: u32 = 16;

/// Readers that look all the time.
pub struct Watch {
    readers: JoinSet<()>,
    looks: Arc<Mutex<u64>>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    /// Starts a reader on each site. It is handed the site's number and its tree whenever something was applied or
    /// promised there, and says what is wrong.
    pub fn start<F>(sites: &[Site], look: F) -> Self
    where
        F: Fn(usize, &Tree) -> Result<(), String> + Clone + Send + 'static,
    {
        let mut watch = Self { readers: JoinSet::new(), looks: Arc::default(), wrong: Arc::default() };
        for (at, site) in sites.iter().enumerate() {
            let (slot, look) = (site.slot(), look.clone());
            let (looks, wrong) = (watch.looks.clone(), watch.wrong.clone());
            watch.readers.spawn(async move {
                let mut seen = None;
                for turn in 1_u32.. {
                    if let Some(tree) = slot.lock().clone() {
                        let now = (tree.end(), tree.progress().frontier);
                        if seen.as_ref() != Some(&now) {
                            seen = Some(now);
                            *looks.lock() += 1;
                            wrong
                                .lock()
                                .extend(look(at, &tree).err().map(|what| format!("site {at}: {what}")));
                        }
                    }
                    if turn % LOOKS == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        watch
    }

    /// Ends the readers and fails if one saw something wrong. Returns how often they looked.
    pub async fn finish(mut self, seed: u64) -> u64 {
        self.readers.shutdown().await;
        let wrong = self.wrong.lock();
        assert!(wrong.is_empty(), "seed {seed}: {} looks were wrong, first: {}", wrong.len(), wrong[0]);
        drop(wrong);
        *self.looks.lock()
    }
}
