//! [`Stamp`]: the headers of a message, which say which write it is.

use std::fmt::Write as _;

use rdkafka::message::{Header, OwnedHeaders};
use tidewire_core::id::OriginTag;
use tidewire_core::record::Kind;
use tidewire_core::tree::{Change, ChangeView};

/// The cluster that a write comes from.
pub(super) const ORIGIN: &str = "tw-origin";
/// Its clock reading, a decimal number.
pub(super) const HLC: &str = "tw-hlc";
/// Its identity: `origin/partition/offset`, the partition that of the tree. Missing where it is not known: what came with a
/// seed, or lay below what the log retained.
pub(super) const DOT: &str = "tw-dot";
/// `set`, `delete` or `delete_range`.
pub(super) const OP: &str = "tw-op";
/// When the value expires, in milliseconds since 1970; only on values that do.
pub(super) const DEADLINE: &str = "tw-deadline";

/// Makes headers. Keeps the names of origins and the memory for the texts.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    origins: Vec<(OriginTag, String)>,
    text: String,
}

impl Stamp {
    /// The headers of a change.
    pub(super) fn headers(&mut self, view: &dyn ChangeView, change: &Change) -> OwnedHeaders {
        let op = match change.kind {
            Kind::Set => "set",
            Kind::Delete => "delete",
            Kind::DeleteRange => "delete_range",
            Kind::Mark => "mark",
        };
        let at = self.origin(view, change.version.origin);
        let (origins, text) = (&self.origins, &mut self.text);
        let name = origins[at].1.as_str();
        let mut write = |headers: OwnedHeaders, key, value: std::fmt::Arguments<'_>| {
            text.clear();
            text.write_fmt(value).expect("a text takes what is written to it");
            headers.insert(Header { key, value: Some(text.as_str()) })
        };
        let headers = OwnedHeaders::new_with_capacity(5);
        let headers = headers.insert(Header { key: ORIGIN, value: Some(name) });
        let headers = write(headers, HLC, format_args!("{}", change.version.hlc));
        let headers = match &change.dot {
            Some(dot) => write(headers, DOT, format_args!("{name}/{}/{}", dot.partition, dot.offset)),
            None => headers,
        };
        let headers = headers.insert(Header { key: OP, value: Some(op) });
        match change.deadline_ms {
            Some(deadline) => write(headers, DEADLINE, format_args!("{deadline}")),
            None => headers,
        }
    }

    fn origin(&mut self, view: &dyn ChangeView, origin: OriginTag) -> usize {
        if let Some(at) = self.origins.iter().position(|(known, _)| *known == origin) {
            return at;
        }
        self.origins.push((origin, view.origin_name(origin)));
        self.origins.len() - 1
    }
}
