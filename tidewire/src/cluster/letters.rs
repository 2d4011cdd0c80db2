//! What the trees of a cluster cannot apply: listed, shown, replayed, dropped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidewire_connectors::json::text_or_base64;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::Dot;
use tidewire_core::letters::Letter;
use tidewire_core::record::{Kind, RecordView};
use tidewire_core::tree::Tree;

use super::handle::Cluster;
use crate::http::LetterAction;

impl Cluster {
    pub(super) async fn carry_out_letters(&self, tree: &str, action: LetterAction) -> Result<Value, Error> {
        let nothing = || Error::new(ErrorKind::NotFound, format!("there is no tree {tree}"));
        let tree = self.find_tree(tree).ok_or_else(nothing)?;
        match action {
            LetterAction::List => {
                let lines: Vec<Value> =
                    tree.dead_letters().iter().map(|letter| letter_json(&tree, letter)).collect();
                Ok(json!({"dead_letters": lines}))
            }
            LetterAction::Show(name) => {
                let letter = find(&tree, &name)?;
                let mut shown = letter_json(&tree, &letter);
                shown["record_base64"] = json!(STANDARD.encode(&letter.bytes));
                Ok(shown)
            }
            LetterAction::Replay(name) => {
                let records = tree.replay_letter(find(&tree, &name)?.dot()).await?;
                Ok(json!({"dot": name, "replayed": records}))
            }
            LetterAction::Drop(name) => {
                let letter = find(&tree, &name)?;
                tree.drop_letter(letter.dot()).await?;
                Ok(json!({"dot": name, "dropped": letter.records()}))
            }
        }
    }
}

fn dot_text(tree: &Tree, dot: Dot) -> String {
    format!("{}/{}/{}", tree.origin_name(dot.origin), dot.partition, dot.offset)
}

fn find(tree: &Tree, name: &str) -> Result<Letter, Error> {
    let mut letters = tree.dead_letters().into_iter();
    letters.find(|letter| dot_text(tree, letter.dot()) == name).ok_or_else(|| {
        let said = format!("nothing is parked as {name}; see `tidewire dead-letters list`");
        Error::new(ErrorKind::NotFound, said)
    })
}

/// A letter without its value.
fn letter_json(tree: &Tree, letter: &Letter) -> Value {
    let origin = tree.origin_name(letter.origin);
    let record = RecordView::parse(&letter.bytes).ok().map(|(record, _)| record);
    let (key, key_base64) = record.map_or((None, None), |record| text_or_base64(record.key));
    let op = record.map(|record| match record.kind {
        Kind::Set => "set",
        Kind::Delete => "delete",
        Kind::DeleteRange => "delete_range",
        Kind::Mark => "mark",
    });
    json!({
        "dot": dot_text(tree, letter.dot()),
        "origin": origin,
        "version": format!("{}@{origin}", letter.hlc),
        "hlc": letter.hlc.to_string(),
        "records": letter.records(),
        "bytes": letter.bytes.len(),
        "op": op,
        "key": key,
        "key_base64": key_base64,
        "reason": letter.reason,
        "first_seen_ms": letter.first_seen_ms,
    })
}
