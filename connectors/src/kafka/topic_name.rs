//! The name of a topic: a template, filled in with the tree.

/// The one placeholder.
const TREE: &str = "{tree}";
const LONGEST: usize = 249;

/// The topic of a tree. A tree's name is always a valid part of a topic's name.
pub(super) fn of(template: &str, tree: &str) -> String {
    template.replace(TREE, tree)
}

/// Refuses what can be the topic of no tree.
///
/// # Errors
/// What is allowed.
pub(super) fn check(template: &str) -> Result<(), String> {
    let filled = of(template, "t");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let sound = (1..=LONGEST).contains(&filled.len()) && filled.chars().all(plain);
    if sound && filled != "." && filled != ".." {
        return Ok(());
    }
    Err(format!(
        "{template:?} can be no topic; allowed: at most {LONGEST} letters, digits, '.', '_' and '-', and {TREE} for \
         the name of the tree"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_the_tree_and_nothing_that_kafka_refuses() {
        assert_eq!(of("site.{tree}.v1", "orders"), "site.orders.v1");
        assert_eq!(of("orders", "other"), "orders");
        for good in ["orders", "{tree}", "a.{tree}_b-c"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "{cluster}", "a/b", "grün", &"x".repeat(250)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
