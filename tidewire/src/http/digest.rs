//! What two clusters compare.

use axum::response::Response;
use serde_json::json;
use tidewire_core::error::Error;
use tidewire_core::tree::Tree;

use super::api::Api;
use super::json::{frontier_json, json_answer};

impl Api {
    pub(super) async fn digest(&self, tree: Tree) -> Result<Response, Error> {
        let _turn = self.digests.acquire().await.map_err(|_| Error::shutting_down())?;
        let read = tree.clone();
        let digest = self.tasks.blocking(move || read.digest()).await?;
        Ok(json_answer(&json!({
            "frontier": frontier_json(&tree, &digest.frontier),
            "digest": format!("{:032x}", digest.digest),
            "entries": digest.entries,
        })))
    }
}
