//! Reads a configuration file and the environment over it, and says in which line what is wrong.
//!
//! The text is checked against the schema first, key by key, so that a typing error is answered with the nearest key.
//! Only a text that passes becomes a [`ClusterConfig`], which then goes through its own rules.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::schema::{self, SECTIONS, Section};
use super::{ClusterConfig, ConfigError, Problem};

/// Where the value of a key came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A line of the file.
    Line(usize),
    /// The environment.
    Environment,
}

/// A checked configuration, and where each of its keys came from; keys that are not listed have their default.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) config: ClusterConfig,
    pub(super) origins: BTreeMap<String, Origin>,
}

/// Reads, overrides and validates the configuration of a file.
///
/// # Errors
/// Everything that is wrong, each with its line.
pub fn load(path: &Path) -> Result<ClusterConfig, ConfigError> {
    load_with_origins(path).map(|loaded| loaded.config)
}

pub(super) fn load_with_origins(path: &Path) -> Result<Loaded, ConfigError> {
    let file = path.display().to_string();
    #[expect(clippy::disallowed_methods, reason = "the configuration is read once, before there is a Disk")]
    let text = std::fs::read_to_string(path).map_err(|error| {
        let advice = "; `tidewire config example` prints a file to start from";
        ConfigError::from(Problem::new("", format!("cannot be read: {error}{advice}"))).in_file(&file)
    })?;
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    parse(&text, environment).map_err(|error| error.in_file(file))
}

/// The whole way from text to a configuration; `environment` may hold anything.
pub(super) fn parse(
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, ConfigError> {
    let mut reader = Reader { text, problems: Vec::new(), origins: BTreeMap::new() };
    let tree = DeTable::parse(text).map_err(|error| reader.syntax(&error))?;
    let mut values: toml::Table = toml::from_str(text).map_err(|error| reader.syntax(&error))?;
    reader.check_root(tree.get_ref(), &values);
    reader.overlay(environment, &mut values);
    reader.check_required(&values);
    ConfigError::unless_empty(std::mem::take(&mut reader.problems))?;

    let config: ClusterConfig =
        values.try_into().map_err(|error: toml::de::Error| Problem::new("", error.message()))?;
    let config = config.validate().map_err(|error| reader.with_lines(&error))?;
    Ok(Loaded { config, origins: reader.origins })
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    origins: BTreeMap<String, Origin>,
}

impl Reader<'_> {
    fn line_of(&self, position: usize) -> usize {
        1 + self.text.bytes().take(position).filter(|byte| *byte == b'\n').count()
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let line = error.span().map(|span| self.line_of(span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        Problem { line, key: String::new(), message: format!("not valid TOML: {message}") }.into()
    }

    fn report(&mut self, line: usize, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { line: Some(line), key: key.into(), message: message.into() });
    }

    fn check_root(&mut self, tree: &DeTable<'_>, values: &toml::Table) {
        let mut entries: Vec<_> = tree.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let line = self.line_of(name.span().start);
            let name: &str = name.get_ref();
            let Some(section) = Section::named(name) else {
                self.report(line, name, unknown_section(name));
                continue;
            };
            match (section.repeated, value.get_ref(), &values[name]) {
                (false, DeValue::Table(table), toml::Value::Table(plain)) => {
                    self.check_keys(section, name, table, plain);
                }
                (true, DeValue::Array(items), toml::Value::Array(plain)) => {
                    for (index, (item, plain)) in items.iter().zip(plain).enumerate() {
                        self.check_item(section, index, item, plain);
                    }
                }
                _ => self.report(line, name, format!("is a section: write it as {}", section.head())),
            }
        }
    }

    fn check_item(
        &mut self,
        section: &Section,
        index: usize,
        item: &Spanned<DeValue<'_>>,
        plain: &toml::Value,
    ) {
        let path = format!("{}[{index}]", section.name);
        let line = self.line_of(item.span().start);
        self.origins.insert(path.clone(), Origin::Line(line));
        match (item.get_ref(), plain) {
            (DeValue::Table(table), toml::Value::Table(plain)) => {
                self.check_keys(section, &path, table, plain)
            }
            _ => self.report(line, path, format!("is a section: write it as {}", section.head())),
        }
    }

    fn check_keys(&mut self, section: &Section, path: &str, table: &DeTable<'_>, plain: &toml::Table) {
        let keys = section.keys_of(plain);
        // Which keys a table of an unknown type may have, nobody can say; the type is what is reported.
        let unknown_type = section.open && keys.len() == section.keys.len();
        let mut names: Vec<_> = table.keys().collect();
        names.sort_by_key(|name| name.span().start);
        for name in names {
            let line = self.line_of(name.span().start);
            let name: &str = name.get_ref();
            let at = format!("{path}.{name}");
            match keys.iter().find(|key| key.name == name) {
                Some(key) => {
                    if let Err(message) = key.kind.check(&plain[name]) {
                        self.report(line, &at, message);
                    }
                    self.origins.insert(at, Origin::Line(line));
                }
                None if unknown_type => {}
                None => self.report(line, at, unknown_key(name, section, &keys)),
            }
        }
    }

    /// Puts the variables `TIDEWIRE__SECTION__KEY` over what the file says.
    fn overlay(&mut self, environment: impl Iterator<Item = (String, String)>, values: &mut toml::Table) {
        let mut variables: Vec<_> = environment.filter(|(name, _)| name.starts_with("TIDEWIRE__")).collect();
        variables.sort();
        for (variable, given) in variables {
            let Some((section, key)) =
                singles().find(|(section, key)| variable_name(section, key) == variable)
            else {
                let names: Vec<String> =
                    singles().map(|(section, key)| variable_name(section, key)).collect();
                let hint = schema::did_you_mean(&variable, names.iter().map(String::as_str));
                self.problems.push(Problem::new(
                    &variable,
                    format!(
                        "environment variable that names no setting{hint}; allowed: {}",
                        names.join(", ")
                    ),
                ));
                continue;
            };
            let value = match key.kind {
                schema::Kind::Bool => given.parse().map_or(toml::Value::String(given), toml::Value::Boolean),
                _ => toml::Value::String(given),
            };
            if let Err(message) = key.kind.check(&value) {
                self.problems.push(Problem::new(&variable, message));
                continue;
            }
            let entry = values.entry(section.name).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(table) = entry {
                table.insert(key.name.to_owned(), value);
                self.origins.insert(format!("{}.{}", section.name, key.name), Origin::Environment);
            }
        }
    }

    fn check_required(&mut self, values: &toml::Table) {
        for section in SECTIONS {
            let tables: Vec<(String, Option<&toml::Value>)> = match values.get(section.name) {
                Some(toml::Value::Array(items)) => items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| (format!("{}[{i}]", section.name), Some(item)))
                    .collect(),
                None if section.repeated => continue,
                single => vec![(section.name.to_owned(), single)],
            };
            for (path, table) in tables {
                let plain = table.and_then(toml::Value::as_table);
                let keys =
                    plain.map_or_else(|| section.keys.iter().collect(), |plain| section.keys_of(plain));
                for key in keys.into_iter().filter(|key| key.required) {
                    if table.is_none_or(|table| table.get(key.name).is_none()) {
                        let line = self.line(&path);
                        let meaning = key
                            .meaning
                            .trim_start_matches("Required")
                            .trim_start_matches([':', ';', '.', ' ']);
                        let message = format!("is missing; {} needs it: {meaning}", section.head());
                        self.problems.push(Problem { line, key: format!("{path}.{}", key.name), message });
                    }
                }
            }
        }
    }

    fn line(&self, path: &str) -> Option<usize> {
        match self.origins.get(path) {
            Some(Origin::Line(line)) => Some(*line),
            Some(Origin::Environment) | None => None,
        }
    }

    /// Adds the line of each key, or of the entry that holds it.
    fn with_lines(&self, error: &ConfigError) -> ConfigError {
        let located = error.problems().iter().map(|problem| {
            let parent = problem.key.rsplit_once('.').map_or("", |(parent, _)| parent);
            let line = self.line(&problem.key).or_else(|| self.line(parent));
            Problem { line, ..problem.clone() }
        });
        match ConfigError::unless_empty(located.collect()) {
            Err(error) => error,
            Ok(()) => error.clone(),
        }
    }
}

/// The keys that the environment can set.
fn singles() -> impl Iterator<Item = (&'static Section, &'static schema::Key)> {
    SECTIONS
        .iter()
        .filter(|section| !section.repeated)
        .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
}

fn variable_name(section: &Section, key: &schema::Key) -> String {
    format!("TIDEWIRE__{}__{}", section.name, key.name).to_uppercase()
}

fn unknown_section(name: &str) -> String {
    let heads = SECTIONS.iter().map(Section::head).collect::<Vec<_>>().join(", ");
    if let Some(section) = SECTIONS.iter().find(|section| section.key(name).is_some()) {
        return format!("stands outside a section; write it under {}", section.head());
    }
    let hint = schema::did_you_mean(name, SECTIONS.iter().map(|section| section.name));
    format!("unknown section{hint}; allowed: {heads}")
}

fn unknown_key(name: &str, section: &Section, keys: &[&schema::Key]) -> String {
    let hint = schema::did_you_mean(name, keys.iter().map(|key| key.name));
    let allowed = keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    format!("unknown key{hint}; allowed under {}: {allowed}", section.head())
}
