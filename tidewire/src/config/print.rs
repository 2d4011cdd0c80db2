//! Prints configurations: the commented example, and the effective settings with where each came from.

use std::fmt::Write as _;
use std::path::Path;

use super::file::{self, Origin};
use super::schema::{Key, SECTIONS, SINK_TYPES, Section};
use super::{ClusterConfig, ConfigError, Peer, TreeConfig};

/// The configuration that the example shows: every default, one tree.
fn example_config() -> ClusterConfig {
    let mut config = ClusterConfig::new("eu-west", "./data");
    config.trees.push(TreeConfig::new("orders"));
    config
}

/// A complete file: every key with its default, unit and meaning. A peer is shown as comments.
pub fn example() -> String {
    let mut text = String::from(
        "# A Tidewire cluster. Every key is here with its default; ids and names have none.\n\
         # A single key of [cluster], [listen], [limits] and [log] can be overridden by the environment:\n\
         # TIDEWIRE__SECTION__KEY, for example TIDEWIRE__LISTEN__HTTP=127.0.0.1:8401\n",
    );
    let mut config = example_config();
    config.peers.push(Peer::new("us-east", "http://127.0.0.1:7410"));
    let values = to_table(&config);
    for section in SECTIONS {
        let table = match values.get(section.name) {
            Some(toml::Value::Array(items)) => items.first().and_then(toml::Value::as_table),
            other => other.and_then(toml::Value::as_table),
        };
        let mark = if matches!(section.name, "peers" | "sinks") { "# " } else { "" };
        line(&mut text, format_args!("\n# {}\n{mark}{}", section.meaning, section.head()));
        for key in section.keys {
            match table.and_then(|table| table.get(key.name)) {
                Some(value) => {
                    let assignment = format!("{mark}{} = {value}", key.name);
                    line(&mut text, format_args!("{assignment:<42} # {}", key.meaning));
                }
                None => line(&mut text, format_args!("# {:<40} # {}", key.name, key.meaning)),
            }
        }
        if section.open {
            sink_types(&mut text);
        }
    }
    text
}

/// The keys of each type of sink, as comments.
fn sink_types(text: &mut String) {
    for (kind, keys) in SINK_TYPES {
        line(text, format_args!("# Of type = {kind:?}:"));
        for key in *keys {
            line(text, format_args!("# {:<40} # {}", key.name, key.meaning));
        }
    }
}

/// The effective settings of a file, each with where it came from.
///
/// # Errors
/// The file cannot be used.
pub fn show(path: &Path) -> Result<String, ConfigError> {
    Ok(render(&file::load_with_origins(path)?))
}

pub(super) fn render(loaded: &file::Loaded) -> String {
    let values = to_table(&loaded.config);
    let mut text = String::new();
    for section in SECTIONS {
        match values.get(section.name) {
            Some(toml::Value::Array(items)) => {
                for (index, table) in items.iter().filter_map(toml::Value::as_table).enumerate() {
                    show_section(&mut text, section, &format!("{}[{index}]", section.name), table, loaded);
                }
            }
            Some(toml::Value::Table(table)) => show_section(&mut text, section, section.name, table, loaded),
            _ => {}
        }
    }
    text
}

fn show_section(
    text: &mut String,
    section: &Section,
    path: &str,
    table: &toml::Table,
    loaded: &file::Loaded,
) {
    if !text.is_empty() {
        text.push('\n');
    }
    line(text, format_args!("{}", section.head()));
    let set = |key: &&Key| table.contains_key(key.name);
    for key in section.keys_of(table).into_iter().filter(set) {
        let origin = match loaded.origins.get(&format!("{path}.{}", key.name)) {
            Some(Origin::Line(line)) => format!("line {line}"),
            Some(Origin::Environment) => "environment".to_owned(),
            None => "default".to_owned(),
        };
        let assignment = format!("{} = {}", key.name, table[key.name]);
        line(text, format_args!("{assignment:<42} # {origin}"));
    }
}

fn to_table(config: &ClusterConfig) -> toml::Table {
    toml::Table::try_from(config).expect("plain settings are a TOML table")
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse;

    fn read(text: &str) -> ClusterConfig {
        parse(text, std::iter::empty()).unwrap_or_else(|error| panic!("{error}\n{text}")).config
    }

    #[test]
    fn the_example_parses_to_the_defaults() {
        assert_eq!(read(&example()), example_config());
    }

    #[test]
    fn the_example_shows_every_key_and_its_comments_are_valid_when_taken_in() {
        let text = example();
        for section in SECTIONS {
            assert!(text.contains(&section.head()), "{}", section.name);
            for key in section.keys {
                assert!(text.contains(key.meaning), "{}.{}", section.name, key.name);
            }
        }
        let peers = text.find("# [[peers]]").expect("peers are shown");
        let sinks = text.find("# A destination").expect("sinks are named");
        let taken_in = text[peers..sinks].replace("\n# ", "\n").replacen("# ", "", 1);
        let config = read(&format!("{}{taken_in}", &text[..peers]));
        assert_eq!(config.peers, [Peer::new("us-east", "http://127.0.0.1:7410")]);
    }

    #[test]
    fn show_tells_defaults_lines_and_the_environment_apart() {
        let text = "[cluster]\nid = \"a\"\n[limits]\ndrain_budget = \"10s\"\n";
        let variables = [("TIDEWIRE__LISTEN__HTTP".to_owned(), "127.0.0.1:9".to_owned())];
        let shown = render(&parse(text, variables.into_iter()).expect("valid"));
        let has = |start: &str, end: &str| shown.lines().any(|l| l.starts_with(start) && l.ends_with(end));
        assert!(has("drain_budget = \"10s\"", "# line 4"), "{shown}");
        assert!(has("http = \"127.0.0.1:9\"", "# environment"), "{shown}");
        assert!(has("max_record_bytes = \"1MiB\"", "# default"), "{shown}");
        assert_eq!(read(&shown).limits.drain_budget.to_string(), "10s");
    }
}
