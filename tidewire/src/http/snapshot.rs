//! Writing a snapshot on demand.

use axum::response::Response;
use serde_json::json;
use tidewire_core::error::Error;
use tidewire_core::tree::Tree;

use super::json::json_answer;

/// Writes a snapshot and answers when it is durable.
pub(super) async fn snapshot(tree: &Tree) -> Result<Response, Error> {
    let report = tree.snapshot().await?;
    Ok(json_answer(&json!({
        "tree": tree.identity().tree.to_string(),
        "number": report.snapshot.number,
        "covered": report.snapshot.covered.to_string(),
        "entries": report.snapshot.entries,
        "bytes": report.snapshot.bytes,
        "path": report.path.display().to_string(),
        "seconds": report.took.as_secs_f64(),
    })))
}
