//! Rules about one file or one path.

use super::source::{Source, words};

const LONGEST: usize = 450;

pub(super) fn length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    if lines <= LONGEST {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines; at most {LONGEST}: give a part its own file", source.path)]
}

pub(super) fn module_docs(source: &Source) -> Vec<String> {
    let first = source.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    match first.and_then(|line| line.strip_prefix("//!")) {
        Some(docs) if !docs.trim().is_empty() && docs.trim() != "Placeholder." => Vec::new(),
        _ => vec![format!("{}: no `//!` docs: say what the module owns and who calls it", source.path)],
    }
}

pub(super) fn leftovers(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        let calls = source.words(name).filter(|at| source.code[at + name.len()..].starts_with('!'));
        findings.extend(calls.map(|at| source.finding(at, &format!("`{name}!` is left over"))));
    }
    for mark in ["TODO", "FIXME", "XXX", "HACK"] {
        findings.extend(
            words(&source.comments, mark).map(|at| source.finding(at, &format!("{mark} is left over"))),
        );
    }
    findings
}

pub(super) fn unsafe_code(source: &Source) -> Vec<String> {
    source.words("unsafe").map(|at| source.finding(at, "unsafe code; there is no file for it yet")).collect()
}

/// Folders and files are nouns of the domain.
pub(super) fn names_of_places(path: &str) -> Vec<String> {
    const VAGUE: &[&str] = &["utils", "util", "common", "helpers", "helper", "types", "misc"];
    let vague = path.split('/').find(|part| VAGUE.contains(&part.strip_suffix(".rs").unwrap_or(part)));
    vague.map(|part| format!("{path}: {part:?} says nothing; name what it holds")).into_iter().collect()
}

pub(super) fn biased_selects(source: &Source) -> Vec<String> {
    let unbiased = source.words("select").filter(|at| {
        let Some(rest) = source.code[at + "select".len()..].strip_prefix('!') else { return false };
        let Some(inside) = rest.trim_start().strip_prefix(['{', '(', '[']) else { return false };
        !inside.trim_start().strip_prefix("biased").is_some_and(|rest| rest.trim_start().starts_with(';'))
    });
    unbiased.map(|at| source.finding(at, "`select!` without `biased;`: the order would be random")).collect()
}

/// The name of a test is a claim: three words at least, and not "test" first.
pub(super) fn test_names(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for marker in ["#[test]", "#[tokio::test"] {
        for (at, _) in source.code.match_indices(marker) {
            let Some(name) = source.code[at..].split_once("fn ").map(|(_, rest)| rest) else { continue };
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let claim = name.matches('_').count() >= 2 && !name.starts_with("test_");
            if !claim {
                findings.push(source.finding(at, &format!("the test name {name:?} is not a claim")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(rule: fn(&Source) -> Vec<String>, text: &str) -> usize {
        rule(&Source::new("core/src/x.rs", text)).len()
    }

    #[test]
    fn a_file_over_the_ceiling_is_caught() {
        assert_eq!(caught(length, &"x\n".repeat(LONGEST)), 0);
        assert_eq!(caught(length, &"x\n".repeat(LONGEST + 1)), 1);
    }

    #[test]
    fn a_module_without_docs_is_caught() {
        assert_eq!(caught(module_docs, "//! What it owns.\n\nuse x;"), 0);
        assert_eq!(caught(module_docs, "#![allow(x)]\n//! What it owns.\n"), 0);
        for bad in ["use x;\n//! late", "", "//!\n", "/// not of the module\nfn f() {}", "//! Placeholder.\n"]
        {
            assert_eq!(caught(module_docs, bad), 1, "{bad:?}");
        }
    }

    #[test]
    fn leftovers_are_caught_in_code_and_comments_but_not_in_texts() {
        for bad in [
            "fn f() { todo!() }",
            "std::unimplemented!();",
            "dbg!(x)",
            "// FIXME later",
            "/* XXX */",
            "/// TODO: x",
        ] {
            assert_eq!(caught(leftovers, bad), 1, "{bad}");
        }
        assert_eq!(caught(leftovers, "let todo = \"todo!() FIXME\"; // todo list, XXXL"), 0);
    }

    #[test]
    fn unsafe_code_is_caught_but_not_the_word() {
        assert_eq!(caught(unsafe_code, "fn f() { unsafe { g() } }\nunsafe impl Send for X {}"), 2);
        assert_eq!(caught(unsafe_code, "#![forbid(unsafe_code)] // unsafe is not needed"), 0);
    }

    #[test]
    fn vague_folders_and_files_are_caught() {
        for bad in
            ["core/src/utils/x.rs", "core/src/common.rs", "tests/src/helpers/mod.rs", "types/src/lib.rs"]
        {
            assert_eq!(names_of_places(bad).len(), 1, "{bad}");
        }
        assert!(names_of_places("core/src/wal/commonplace.rs").is_empty());
    }

    #[test]
    fn a_select_that_is_not_biased_is_caught() {
        let bad = "tokio::select! { a = b => {} }\nselect!(biased_first = c => {})";
        assert_eq!(caught(biased_selects, bad), 2);
        assert_eq!(
            caught(biased_selects, "tokio::select! {\n    // stop first\n    biased;\n    a = b => {}\n}"),
            0
        );
        assert_eq!(caught(biased_selects, "// `select!` is biased\nlet select = 1;"), 0);
    }

    #[test]
    fn a_test_name_that_claims_nothing_is_caught() {
        for bad in
            ["#[test]\nfn works() {}", "#[tokio::test(start_paused = true)]\nasync fn test_the_log() {}"]
        {
            assert_eq!(caught(test_names, bad), 1, "{bad}");
        }
        assert_eq!(caught(test_names, "#[test]\nfn a_log_never_loses_an_answer() {}"), 0);
    }
}
