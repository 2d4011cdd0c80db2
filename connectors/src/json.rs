//! A change as JSON: the one envelope of the HTTP stream of changes and of every sink that writes JSON.
//!
//! Clock readings, deadlines and offsets are decimal strings, because they exceed what a JSON number holds exactly. A key or value
//! that is not UTF-8 appears under another name, in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tidewire_core::id::TreeName;
use tidewire_core::record::Kind;
use tidewire_core::tree::{Change, ChangeView};

/// Bytes as text where they are text, else as base64: exactly one of the two.
pub fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    tree: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_key_base64: Option<String>,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<String>,
    version: String,
    hlc_ms: u64,
    origin: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dot: Option<String>,
    cursor: String,
}

/// Appends a change as one object, without a line break. A range delete has its first key and the one after its last.
/// A row of the state has no dot. Maintenance is nothing that anybody is told.
pub fn write_change(into: &mut Vec<u8>, tree: &TreeName, view: &dyn ChangeView, change: &Change) {
    let (op, has_value) = match change.kind {
        Kind::Set => ("set", true),
        Kind::Delete => ("delete", false),
        Kind::DeleteRange => ("delete_range", false),
        Kind::Mark => return,
    };
    let origin = view.origin_name(change.version.origin);
    let (key, key_base64) = text_or_base64(&change.key);
    let (end_key, end_key_base64) = change.end_key.as_deref().map_or((None, None), text_or_base64);
    let (value, value_base64) = if has_value { text_or_base64(&change.value) } else { (None, None) };
    let json = ChangeJson {
        tree: tree.as_str(),
        key,
        key_base64,
        end_key,
        end_key_base64,
        op,
        value,
        value_base64,
        deadline_ms: change.deadline_ms.map(|deadline| deadline.to_string()),
        version: format!("{}@{origin}", change.version.hlc),
        hlc_ms: change.version.hlc.millis(),
        origin: &origin,
        dot: change.dot.map(|dot| format!("{origin}/{}/{}", dot.partition, dot.offset)),
        cursor: change.cursor.to_string(),
    };
    serde_json::to_writer(into, &json).expect("plain data into memory always serializes");
}
