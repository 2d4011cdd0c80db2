//! The keys of a tree, page by page.

use axum::http::HeaderMap;
use axum::response::Response;
use tidewire_core::error::Error;
use tidewire_core::tree::{Row, Tree};

use super::api::Api;
use super::failure::invalid;
use super::json::page_json;
use super::query::Query;

/// Entries of a page that does not say.
const DEFAULT_LIMIT: usize = 100;
/// Most entries of a page.
const MAX_LIMIT: usize = 10_000;
/// A page ends early at this many bytes of keys and values: it is built in memory.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Rows are copied out of the state in steps that have at most this many bytes.
const STEP_BYTES: usize = 8 * 1024 * 1024;
/// Most rows of a step.
const MAX_STEP: usize = 100;

impl Api {
    pub(super) async fn scan(
        &self,
        tree: Tree,
        headers: &HeaderMap,
        raw: Option<&str>,
    ) -> Result<Response, Error> {
        let known = ["prefix", "prefix_base64", "after", "after_base64", "limit"];
        let mut query = Query::parse(raw, &known)?;
        let prefix = query.take_bytes("prefix", "prefix_base64")?.unwrap_or_default();
        let after = query.take_bytes("after", "after_base64")?;
        let limit = match query.take_text("limit")?.map(|text| text.parse()) {
            None => DEFAULT_LIMIT,
            Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => limit,
            Some(_) => return Err(invalid(format!("limit is a number from 1 to {MAX_LIMIT}"))),
        };
        self.await_token(&tree, headers).await?;
        // Every row of a step may be as large as a record can be.
        let step = (STEP_BYTES / self.config.max_record_bytes.max(1)).clamp(1, MAX_STEP);
        self.tasks.blocking(move || page(&tree, &prefix, after, limit, step)).await
    }
}

fn page(tree: &Tree, prefix: &[u8], mut after: Option<Vec<u8>>, limit: usize, step: usize) -> Response {
    let mut rows: Vec<Row> = Vec::new();
    let mut bytes = 0;
    let more = loop {
        // One row beyond the limit tells whether there are more.
        let wanted = step.min(limit + 1 - rows.len());
        let found = tree.scan(prefix, after.as_deref(), wanted);
        let at_the_end = found.len() < wanted;
        bytes += found.iter().map(|row| row.key.len() + row.value.len()).sum::<usize>();
        rows.extend(found);
        if rows.len() > limit {
            rows.truncate(limit);
            break true;
        }
        if at_the_end || bytes >= PAGE_BYTES {
            break !at_the_end;
        }
        after = rows.last().map(|row| row.key.to_vec());
    };
    let next = rows.last().filter(|_| more).map(|row| &row.key[..]);
    page_json(tree, &rows, next)
}
