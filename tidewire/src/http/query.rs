//! [`Query`]: the parameters behind the question mark, as bytes.

use tidewire_core::error::Error;

use super::failure::invalid;
use super::json::bytes_of;
use super::path::percent_decode;

/// Parameters that were checked against those that a path knows. A plus sign stands for itself.
#[derive(Debug)]
pub(super) struct Query(Vec<(&'static str, Vec<u8>)>);

impl Query {
    /// Takes a query apart.
    ///
    /// # Errors
    /// `Invalid` for a parameter that is unknown, comes twice or is not encoded well.
    pub(super) fn parse(raw: Option<&str>, known: &[&'static str]) -> Result<Self, Error> {
        let mut parameters: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for part in raw.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let known = known.join(", ");
                return Err(invalid(match known.as_str() {
                    "" => format!(
                        "unknown parameter {name:?}: this path takes no query; a '?' in a key is sent as %3F"
                    ),
                    known => format!("unknown parameter {name:?}; there are {known}"),
                }));
            };
            if parameters.iter().any(|(present, _)| present == name) {
                return Err(invalid(format!("the parameter {name} comes twice")));
            }
            parameters.push((name, percent_decode(value)?));
        }
        Ok(Self(parameters))
    }

    /// Takes out a parameter as it is.
    pub(super) fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(present, _)| *present == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes out a parameter that is text.
    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, Error> {
        let text = self.take(name).map(String::from_utf8).transpose();
        text.map_err(|_| invalid(format!("the parameter {name} is no text")))
    }

    /// Takes out a parameter of bytes, which may have come as `name` or in base64 as `base64_name`.
    pub(super) fn take_bytes(&mut self, name: &str, base64_name: &str) -> Result<Option<Vec<u8>>, Error> {
        match (self.take(name), self.take(base64_name)) {
            (Some(_), Some(_)) => Err(invalid(format!("{name} and {base64_name} exclude each other"))),
            (plain, None) => Ok(plain),
            (None, encoded) => bytes_of(name, None, encoded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["prefix", "prefix_base64", "limit"];

    #[test]
    fn values_are_bytes_and_a_plus_is_a_plus() {
        let mut query = Query::parse(Some("prefix=a%26%FF+=&&limit"), KNOWN).expect("fine");
        assert_eq!(query.take_bytes("prefix", "prefix_base64").expect("bytes"), Some(b"a&\xff+=".to_vec()));
        assert_eq!(query.take_text("limit").expect("text"), Some(String::new()));
        assert_eq!(query.take("limit"), None);
        let mut query = Query::parse(Some("prefix_base64=/w=="), KNOWN).expect("fine");
        assert_eq!(query.take_bytes("prefix", "prefix_base64").expect("bytes"), Some(vec![0xff]));
    }

    #[test]
    fn what_is_unknown_doubled_or_broken_is_refused() {
        for bad in ["limt=1", "limit=1&limit=1", "prefix=%", "=x"] {
            assert!(Query::parse(Some(bad), KNOWN).is_err(), "{bad}");
        }
        assert!(Query::parse(Some("b"), &[]).expect_err("none is known").to_string().contains("%3F"));
        let mut both = Query::parse(Some("prefix=a&prefix_base64=YQ=="), KNOWN).expect("fine");
        assert!(both.take_bytes("prefix", "prefix_base64").is_err());
        let mut broken = Query::parse(Some("prefix_base64=*"), KNOWN).expect("fine");
        assert!(broken.take_bytes("prefix", "prefix_base64").is_err());
    }
}
