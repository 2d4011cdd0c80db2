//! What the cluster says about itself.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::api::Api;
use super::json::json_answer;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PAGE: &str = "
PUT GET DELETE  /v1/trees/{tree}/keys/{key}   the key percent-encoded, the value as it is
GET             /v1/trees/{tree}/keys         ?prefix= &after= &limit=
POST            /v1/trees/{tree}/batch        {\"ops\":[{\"op\":\"set\",\"key\":\"k\",\"value\":\"v\"}]}
GET             /v1/trees/{tree}/changes      ?from=now|beginning or ?cursor=, &resolved=true; stays open (curl -N)
GET             /v1/trees/{tree}/digest       equal on clusters that hold the same
POST            /v1/admin/trees/{tree}/snapshot   write one now: the next start replays less
POST            /v1/admin/trees/{tree}/gc?dry_run=   let the log forget what nobody needs, and report
GET             /v1/status                    trees, peers, sinks, health
GET             /v1/admin/sinks               POST .../{name}/pause|resume|restart, DELETE .../{name}; ?tree=
GET             /v1/admin/dead-letters/{sink} what a destination does not take
GET             /v1/admin/trees/{tree}/dead-letters   what can never be applied here; POST .../{dot}/replay, DELETE .../{dot}
GET POST        /v1/admin/peers               POST .../{id}/pause|resume|restart|reseed|seal, DELETE .../{id}
GET             /healthz /readyz /metrics
";

impl Api {
    pub(super) fn page(&self) -> Response {
        let version = env!("CARGO_PKG_VERSION");
        format!("tidewire {version}, cluster {}\n{PAGE}", self.site.id()).into_response()
    }

    pub(super) fn status(&self) -> Response {
        let mut status = self.site.status();
        status.listen.http.get_or_insert_with(|| self.config.address.to_string());
        json_answer(&status)
    }

    pub(super) fn ready(&self) -> Response {
        match self.site.readiness() {
            Ok(()) => json_answer(&json!({"ready": true, "reasons": []})),
            Err(reasons) => {
                let body = json_answer(&json!({"ready": false, "reasons": reasons}));
                (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
            }
        }
    }

    pub(super) fn metrics(&self) -> Response {
        ([(CONTENT_TYPE, OPENMETRICS)], self.site.metrics().render()).into_response()
    }
}
