//! Changes, rows and positions as JSON.
//!
//! Clock readings and offsets are decimal strings, because they exceed what a JSON number holds exactly. A key or value
//! that is not UTF-8 appears under another name, in base64.

use std::collections::BTreeMap;

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use tidewire_connectors::json::{self, text_or_base64};
use tidewire_core::causal::VersionVector;
use tidewire_core::error::Error;
use tidewire_core::feed::Cursor;
use tidewire_core::id::Version;
use tidewire_core::tree::{Change, Row, Tree};

use super::failure::invalid;

/// An answer in JSON.
pub(super) fn json_answer(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("plain data with text for keys always serializes");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// A version as clients see it: `<hlc>@<origin>`.
pub(super) fn version_text(tree: &Tree, version: Version) -> String {
    format!("{}@{}", version.hlc, tree.origin_name(version.origin))
}

/// Clock readings by the names of their origins.
pub(super) fn frontier_json(tree: &Tree, frontier: &VersionVector) -> BTreeMap<String, String> {
    frontier.iter().map(|(origin, hlc)| (tree.origin_name(origin), hlc.to_string())).collect()
}

/// The bytes of a field that a request gave as text or as base64; None if it gave neither.
///
/// # Errors
/// `Invalid` when it gave both, or what is no base64.
pub(super) fn bytes_of(
    name: &str,
    text: Option<String>,
    base64: Option<impl AsRef<[u8]>>,
) -> Result<Option<Vec<u8>>, Error> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(invalid(format!("{name} and {name}_base64 exclude each other"))),
        (text, None) => Ok(text.map(String::into_bytes)),
        (None, Some(encoded)) => match STANDARD.decode(encoded) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(invalid(format!("{name}_base64 is no base64: {error}"))),
        },
    }
}

/// Writes a change as one line.
pub(super) fn write_change(line: &mut Vec<u8>, tree: &Tree, change: &Change) {
    json::write_change(line, &tree.identity().tree, tree, change);
    line.push(b'\n');
}

/// Writes a mark as one line.
pub(super) fn write_resolved(line: &mut Vec<u8>, tree: &Tree, frontier: &VersionVector, cursor: Cursor) {
    let mark = json!({"resolved": frontier_json(tree, frontier), "cursor": cursor.to_string()});
    write_line(line, &mark);
}

/// Writes anything as one line.
pub(super) fn write_line(line: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *line, value).expect("plain data into memory always serializes");
    line.push(b'\n');
}

#[derive(Serialize)]
struct EntryJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    value_base64: String,
    version: String,
}

#[derive(Serialize)]
struct PageJson<'a> {
    entries: Vec<EntryJson<'a>>,
    /// Null at the end; absent where the key is given in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_base64: Option<String>,
}

/// Rows of a scan, and the key that the next page starts after, if there is one.
pub(super) fn page_json(tree: &Tree, rows: &[Row], next: Option<&[u8]>) -> Response {
    let entries = rows.iter().map(|row| {
        let (key, key_base64) = text_or_base64(&row.key);
        let value_base64 = STANDARD.encode(&row.value);
        EntryJson { key, key_base64, value_base64, version: version_text(tree, row.version) }
    });
    let (text, next_base64) = next.map_or((None, None), text_or_base64);
    let next = if next_base64.is_some() { None } else { Some(text) };
    json_answer(&PageJson { entries: entries.collect(), next, next_base64 })
}
