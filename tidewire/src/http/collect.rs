//! One pass of the collector, on demand.

use axum::response::Response;
use tidewire_core::error::Error;

use super::api::Api;
use super::failure::invalid;
use super::json::json_answer;
use super::query::Query;
use crate::collected::Collected;

impl Api {
    pub(super) async fn gc(&self, tree: &str, query: Option<&str>) -> Result<Response, Error> {
        let dry_run = match Query::parse(query, &["dry_run"])?.take_text("dry_run")?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(invalid(format!("dry_run is true or false, not {other:?}"))),
        };
        self.tree(tree)?;
        let report = self.site.gc(tree, dry_run).await?;
        Ok(json_answer(&Collected::from(&report)))
    }
}
