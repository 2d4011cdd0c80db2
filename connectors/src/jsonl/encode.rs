//! A batch as lines.

use tidewire_core::feed::Batch;
use tidewire_core::sink::SinkContext;

use crate::json::write_change;

/// The effective changes of a batch, one line each; empty where nothing was effective.
pub(super) fn lines(ctx: &SinkContext, batch: &Batch) -> Vec<u8> {
    let tree = ctx.log.identity().tree;
    let mut lines = Vec::new();
    for change in ctx.changes.decode(batch, batch.start().lsn) {
        write_change(&mut lines, &tree, ctx.changes.as_ref(), &change);
        lines.push(b'\n');
    }
    lines
}
