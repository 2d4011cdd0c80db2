//! Several operations in one request.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::Version;
use tidewire_core::limits::MAX_BATCH_OPERATIONS;
use tidewire_core::tree::{Operation, PutOptions, Tree};

use super::api::Api;
use super::failure::invalid;
use super::json::{bytes_of, json_answer, version_text};
use super::path::check_key;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchJson {
    #[serde(default = "atomic_unless_said")]
    atomic: bool,
    ops: Vec<OperationJson>,
}

fn atomic_unless_said() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Set,
    Delete,
    DeleteRange,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationJson {
    op: Kind,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl_seconds: Option<u64>,
}

impl Api {
    pub(super) async fn batch(&self, tree: &Tree, body: &mut Body) -> Result<Response, Error> {
        let received = self.receive(body, self.config.max_batch_bytes, "the limit of a batch").await?;
        let bytes = received.bytes.clone();
        let (atomic, operations) = self.tasks.blocking(move || parse(&bytes)).await??;
        let count = operations.len();
        let version =
            if atomic { tree.batch(operations).await? } else { one_by_one(tree, operations).await? };
        Ok(json_answer(&json!({
            "version": version_text(tree, version),
            "token": tree.token(version).to_string(),
            "count": count,
        })))
    }
}

/// Each operation by itself, in order; the version of the last one.
async fn one_by_one(tree: &Tree, operations: Vec<Operation>) -> Result<Version, Error> {
    let count = operations.len();
    let mut last = Err(invalid("a batch needs at least one operation"));
    for (done, operation) in operations.into_iter().enumerate() {
        let written = match operation {
            Operation::Set(key, value) => tree.put(key, value).await,
            Operation::SetWith(key, value, options) => tree.put_with(key, value, options).await,
            Operation::Delete(key) => tree.delete(key).await,
        };
        let version = written.map_err(|error| {
            Error::new(
                error.kind(),
                format!("{done} of {count} operations are done, the next failed: {error}"),
            )
        })?;
        last = Ok(version);
    }
    last
}

fn parse(bytes: &[u8]) -> Result<(bool, Vec<Operation>), Error> {
    // A list would be read as the fields of a batch in their order, which nobody means.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(invalid(
            "a batch is an object: {\"ops\":[{\"op\":\"set\",\"key\":\"k\",\"value\":\"v\"}]}",
        ));
    }
    let batch: BatchJson = serde_json::from_slice(bytes)
        .map_err(|error| invalid(format!("the batch is not understood: {error}")))?;
    if batch.ops.len() > MAX_BATCH_OPERATIONS {
        let said = format!(
            "a batch has at most {MAX_BATCH_OPERATIONS} operations, this one has {}",
            batch.ops.len()
        );
        return Err(Error::new(ErrorKind::TooLarge, said));
    }
    let operations = batch.ops.into_iter().enumerate().map(|(at, operation)| {
        operation.check().map_err(|error| Error::new(error.kind(), format!("ops[{at}]: {error}")))
    });
    Ok((batch.atomic, operations.collect::<Result<_, _>>()?))
}

impl OperationJson {
    fn check(self) -> Result<Operation, Error> {
        if matches!(self.op, Kind::DeleteRange) {
            return Err(invalid("a range is no part of a batch: DELETE /v1/trees/{tree}/keys?from=&to="));
        }
        let key = bytes_of("key", self.key, self.key_base64)?;
        let key: Bytes = key.ok_or_else(|| invalid("a key is missing: key or key_base64"))?.into();
        check_key(&key)?;
        let value = bytes_of("value", self.value, self.value_base64)?;
        match (self.op, value, self.ttl_seconds) {
            (Kind::Set, Some(value), None) => Ok(Operation::Set(key, value.into())),
            (Kind::Set, Some(_), Some(0)) => Err(invalid("ttl_seconds is at least 1")),
            (Kind::Set, Some(value), Some(seconds)) => {
                let options = PutOptions::ttl(Duration::from_secs(seconds));
                Ok(Operation::SetWith(key, value.into(), options))
            }
            (Kind::Set, None, _) => Err(invalid("a value is missing: value or value_base64")),
            (_, None, None) => Ok(Operation::Delete(key)),
            (_, Some(_), _) => Err(invalid("a delete has no value")),
            (_, None, Some(_)) => Err(invalid("a delete has no ttl_seconds")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_atomic_unless_it_says_otherwise() {
        let ops =
            r#""ops":[{"op":"set","key":"a","value_base64":"/w=="},{"op":"delete","key_base64":"/w=="}]"#;
        let (atomic, parsed) = parse(format!("{{{ops}}}").as_bytes()).expect("fine");
        assert!(atomic);
        let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
        assert_eq!(parsed, [Operation::Set(bytes(b"a"), bytes(b"\xff")), Operation::Delete(bytes(b"\xff"))]);
        assert!(!parse(format!("{{\"atomic\":false,{ops}}}").as_bytes()).expect("fine").0);
    }

    #[test]
    fn what_an_operation_does_not_know_is_refused_with_its_place() {
        for (bad, place) in [
            (r#"{"op":"set","key":"a"}"#, "ops[1]"),
            (r#"{"op":"set","key":"a","value":"x","value_base64":"eA=="}"#, "ops[1]"),
            (r#"{"op":"delete","key":"a","value":""}"#, "ops[1]"),
            (r#"{"op":"delete","key":""}"#, "ops[1]"),
            (r#"{"op":"delete","key_base64":"*"}"#, "ops[1]"),
            (r#"{"op":"delete"}"#, "ops[1]"),
            (r#"{"op":"delete","key":"a","ttl":1}"#, "ttl"),
            (r#"{"op":"rename","key":"a"}"#, "rename"),
        ] {
            let text = format!(r#"{{"ops":[{{"op":"delete","key":"z"}},{bad}]}}"#);
            let error = parse(text.as_bytes()).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
            assert!(error.to_string().contains(place), "{error}");
        }
        assert!(parse(br#"{"ops":[],"atomci":true}"#).is_err());
    }
}
