//! What the destinations of sinks do not take: listed, shown, dropped.
//!
//! A sink takes over a log in its order, and one position says how far it is durable. A record that was parked lies behind
//! that position; delivering it afterwards would put it behind newer changes of its key. So there is no replay: whoever
//! wants it delivered writes the key anew.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidewire_connectors::json::text_or_base64;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::record::Kind;
use tidewire_core::sink::DeadLetter;
use tidewire_core::tree::Tree;

use super::handle::Cluster;
use crate::http::LetterAction;

impl Cluster {
    pub(super) async fn carry_out_sink_letters(
        &self,
        tree: &str,
        name: &str,
        action: LetterAction,
    ) -> Result<Value, Error> {
        let letters = self.dead_letters(tree, name).await?;
        let names = self.find_tree(tree);
        let find = |dot: &str| {
            let found = letters.iter().find(|letter| dot_text(names.as_ref(), letter) == dot);
            found.ok_or_else(|| {
                let said =
                    format!("nothing of sink {name} is parked as {dot}; see `tidewire dead-letters list {tree} --sink {name}`");
                Error::new(ErrorKind::NotFound, said)
            })
        };
        match action {
            LetterAction::List => {
                let lines = letters.iter().map(|letter| letter_json(names.as_ref(), letter));
                Ok(json!({"dead_letters": lines.collect::<Vec<_>>()}))
            }
            LetterAction::Show(dot) => {
                let letter = find(&dot)?;
                let mut shown = letter_json(names.as_ref(), letter);
                shown["value_base64"] = json!(STANDARD.encode(&letter.value));
                Ok(shown)
            }
            LetterAction::Replay(dot) => {
                find(&dot)?;
                let said = format!(
                    "{dot} lies behind the position of sink {name}: delivered now it would come after newer changes of its \
                     key. Write the key anew, which is delivered in its order; then drop this letter"
                );
                Err(Error::new(ErrorKind::Conflict, said))
            }
            LetterAction::Drop(dot) => {
                self.drop_dead_letter(tree, name, find(&dot)?).await?;
                tracing::warn!(
                    tree,
                    sink = name,
                    dot,
                    "a dead letter was dropped: this record is never delivered"
                );
                Ok(json!({"dot": dot, "dropped": 1}))
            }
        }
    }
}

fn dot_text(tree: Option<&Tree>, letter: &DeadLetter) -> String {
    format!("{}/{}/{}", origin_of(tree, letter), letter.dot.partition, letter.dot.offset)
}

fn origin_of(tree: Option<&Tree>, letter: &DeadLetter) -> String {
    tree.map_or_else(|| letter.dot.origin.to_string(), |tree| tree.origin_name(letter.dot.origin))
}

/// A dead letter without its value.
fn letter_json(tree: Option<&Tree>, letter: &DeadLetter) -> Value {
    let origin = origin_of(tree, letter);
    let (key, key_base64) = text_or_base64(&letter.key);
    let op = match letter.kind {
        Kind::Set => "set",
        Kind::Delete => "delete",
        Kind::DeleteRange => "delete_range",
        Kind::Mark => "mark",
    };
    json!({
        "cursor": letter.at.to_string(),
        "op": op,
        "key": key,
        "key_base64": key_base64,
        "value_bytes": letter.value.len(),
        "version": format!("{}@{origin}", letter.version.hlc),
        "dot": dot_text(tree, letter),
        "error": letter.error,
        "parked_ms": letter.parked_ms,
    })
}
