//! Rules about who may use whom: the rooms of core stand in order, and so do the crates.

use super::source::Source;

/// The rooms of core, tier by tier. A room uses its own tier and those above it.
const ROOMS: &[&[&str]] = &[
    &["limits", "id", "error", "random", "latest", "clock", "metrics", "tasks", "budget", "units", "trials"],
    // A block carries a version vector, so the vectors stand above it.
    &["causal"],
    &["record"],
    &["disk"],
    &["meta"],
    &["letters"],
    &["wal"],
    // The feed knows a tree only as the trait that it reads from, so it stands above.
    &["feed"],
    // A consumer's position is the feed's cursor.
    &["cursors"],
    &["tree"],
    &["sink"],
    &["gc"],
];
/// The words that a far side shares with this one; the transport uses nothing else.
const TRANSPORT_USES: &[&str] = &["transport", "record", "causal"];

/// What each crate of the workspace may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("shipper", &["tidewire-core"]),
    ("applier", &["tidewire-core"]),
    ("connectors", &["tidewire-core"]),
    ("tidewire", &["tidewire-core", "tidewire-shipper", "tidewire-applier", "tidewire-connectors"]),
    ("examples", &["tidewire", "tidewire-connectors", "tidewire-core"]),
    ("tests", &["tidewire", "tidewire-core", "tidewire-shipper", "tidewire-applier", "tidewire-connectors"]),
];

/// Imports of core against the order of its rooms. Tests may use what they need.
pub(super) fn rooms_of_core(source: &Source) -> Vec<String> {
    let Some(inside) = source.path.strip_prefix("core/src/") else { return Vec::new() };
    if inside == "lib.rs" || inside.ends_with("tests.rs") || inside.ends_with("/conformance.rs") {
        return Vec::new();
    }
    let room = inside.split(['/', '.']).next().unwrap_or_default();
    if tier(room).is_none() && room != "transport" {
        return vec![format!("{}: the room {room:?} has no place in the order of rooms", source.path)];
    }
    let forbidden = |used: &str| match (tier(room), tier(used)) {
        (None, Some(words)) => words > 0 && !TRANSPORT_USES.contains(&used),
        (None, None) => !TRANSPORT_USES.contains(&used),
        (Some(own), Some(used)) => used > own,
        (Some(_), None) => true,
    };
    rooms_used(source.shipped_code())
        .into_iter()
        .filter(|(_, used)| forbidden(used))
        .map(|(at, used)| source.finding(at, &format!("{room} uses {used}, which does not stand above it")))
        .collect()
}

fn tier(room: &str) -> Option<usize> {
    ROOMS.iter().position(|rooms| rooms.contains(&room))
}

/// The first segments behind each `crate::`, lower case, braces included: modules, that is.
fn rooms_used(code: &str) -> Vec<(usize, String)> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => heads_of_list(list),
            None => vec![head(rest)],
        };
        let modules = names.into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        used.extend(modules.map(|name| (at, name)));
    }
    used
}

fn heads_of_list(list: &str) -> Vec<String> {
    let (mut depth, mut names, mut fresh) = (0, Vec::new(), true);
    for (at, c) in list.char_indices() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                names.push(head(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn head(path: &str) -> String {
    path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// A manifest's dependencies against the order of crates. Development dependencies count too.
pub(super) fn crates(path: &str, text: &str) -> Vec<String> {
    let Some(name) = path.strip_suffix("/Cargo.toml") else { return Vec::new() };
    let Some((_, allowed)) = CRATES.iter().find(|(package, _)| *package == name) else {
        return vec![format!("{path}: the crate has no place in the order of crates")];
    };
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    for line in text.lines() {
        if let Some(section) = line.trim().strip_prefix('[') {
            in_dependencies = section.trim_end_matches(']').ends_with("dependencies");
            continue;
        }
        let dependency: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        let ours = dependency == "tidewire" || dependency.starts_with("tidewire-");
        if in_dependencies && ours && !allowed.contains(&dependency.as_str()) {
            findings.push(format!("{path}: {name} must not depend on {dependency}"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(path: &str, text: &str) -> usize {
        rooms_of_core(&Source::new(path, text)).len()
    }

    #[test]
    fn a_room_that_uses_what_stands_below_it_is_caught() {
        assert_eq!(caught("core/src/disk/real.rs", "use crate::wal::Writer;"), 1);
        assert_eq!(caught("core/src/id.rs", "fn f() { crate::record::g() }"), 1);
        assert_eq!(caught("core/src/wal/x.rs", "use crate::{tree, id::{Lsn, tree}, feed::Cursor};"), 2);
        assert_eq!(caught("core/src/wal/x.rs", "use crate::transport::Frame;"), 1);
        assert_eq!(
            caught("core/src/wal/x.rs", "use crate::disk::Disk; use crate::id::Lsn; // crate::tree"),
            0
        );
        assert_eq!(caught("core/src/wal/x.rs", "#[cfg(test)]\nmod tests { use crate::tree::Tree; }"), 0);
    }

    #[test]
    fn a_transport_that_uses_more_than_words_is_caught() {
        assert_eq!(caught("core/src/transport/x.rs", "use crate::wal::X; use crate::feed::Y;"), 2);
        assert_eq!(
            caught("core/src/transport/x.rs", "use crate::{id::X, record::Y, causal::Z, transport::W};"),
            0
        );
    }

    #[test]
    fn a_room_without_a_place_is_caught() {
        assert_eq!(caught("core/src/attic/x.rs", ""), 1);
    }

    #[test]
    fn a_crate_that_depends_against_the_order_is_caught() {
        let shipper = "[dependencies]\ntidewire-core.workspace = true\ntidewire-applier = { path = \"x\" }\n";
        assert_eq!(crates("shipper/Cargo.toml", shipper).len(), 1);
        assert_eq!(crates("core/Cargo.toml", "[dev-dependencies]\ntidewire.workspace = true\n").len(), 1);
        assert_eq!(crates("attic/Cargo.toml", "").len(), 1);
        assert!(
            crates("tidewire/Cargo.toml", "[package]\nname = \"tidewire\"\n[dependencies]\nserde = \"1\"")
                .is_empty()
        );
    }
}
