//! The house stays tidy: walks the tree and checks what neither the compiler nor clippy does.
//!
//! A rule is a function from a [`Source`] (or a path, or a manifest) to findings; each shows in its own test that it
//! catches a bad sample. The walk at the end applies all of them to the project.

mod order;
mod rules;
mod source;

use std::path::{Path, PathBuf};

use source::Source;

/// Files that a program wrote: neither their length nor their docs are ours.
const GENERATED: &[&str] = &["core/proto/replication.rs"];
/// Folders of the root that hold no source of the project.
const SKIPPED: &[&str] = &["target", ".git", "bench"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// Every file below the root, as a path from there, sorted.
#[expect(clippy::disallowed_methods, reason = "reads the source tree, which no Disk knows")]
fn project() -> Vec<(String, String)> {
    let root = root();
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the tree can be listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                files.push((name, text));
            }
        }
    }
    files.sort();
    files
}

fn findings_of(path: &str, text: &str) -> Vec<String> {
    let mut findings = rules::names_of_places(path);
    if path.ends_with("Cargo.toml") {
        findings.extend(order::crates(path, text));
    }
    if path.ends_with(".rs") {
        let source = Source::new(path, text);
        if !GENERATED.contains(&path) {
            findings.extend(rules::length(&source));
            findings.extend(rules::module_docs(&source));
        }
        findings.extend(rules::leftovers(&source));
        findings.extend(rules::unsafe_code(&source));
        findings.extend(rules::biased_selects(&source));
        findings.extend(rules::test_names(&source));
        findings.extend(order::rooms_of_core(&source));
    }
    findings
}

#[test]
fn the_house_is_tidy() {
    let findings: Vec<String> = project().iter().flat_map(|(path, text)| findings_of(path, text)).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn the_walk_sees_every_crate() {
    let files = project();
    for package in ["core", "shipper", "applier", "connectors", "tidewire", "examples", "tests"] {
        let lib = format!("{package}/src/lib.rs");
        assert!(files.iter().any(|(path, _)| *path == lib), "{lib} is not seen");
    }
    assert!(files.iter().all(|(path, _)| !path.starts_with("target/")));
}

#[test]
fn each_generated_file_is_still_there() {
    let files = project();
    for generated in GENERATED {
        assert!(files.iter().any(|(path, _)| path == generated), "{generated} is gone");
    }
}
