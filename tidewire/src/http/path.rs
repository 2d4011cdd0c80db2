//! [`Resource`]: what a raw path names.
//!
//! The path is matched as it was sent. A key is everything behind `keys/`, slashes and dots included, decoded once.

use bytes::Bytes;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::limits::MAX_KEY_BYTES;

use super::admin::AdminResource;
use super::failure::invalid;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// The page that names the others.
    Root,
    Health,
    Ready,
    Metrics,
    Status,
    /// One key of a tree.
    Key(String, Bytes),
    /// The keys of a tree.
    Keys(String),
    Batch(String),
    Changes(String),
    Digest(String),
    /// Writing a snapshot of a tree.
    Snapshot(String),
    /// A pass of the collector over a tree's log.
    Gc(String),
    /// What operators order.
    Admin(AdminResource),
}

impl Resource {
    /// The resource of a path that is not decoded.
    ///
    /// # Errors
    /// `NotFound` for a path that names nothing, `Invalid` and `TooLarge` for a key that cannot be.
    pub(super) fn parse(path: &str) -> Result<Self, Error> {
        match path {
            "/" => return Ok(Self::Root),
            "/healthz" => return Ok(Self::Health),
            "/readyz" => return Ok(Self::Ready),
            "/metrics" => return Ok(Self::Metrics),
            "/v1/status" => return Ok(Self::Status),
            _ => {}
        }
        let nothing = || Error::new(ErrorKind::NotFound, "nothing has this path; GET / names what there is");
        // What is no text is no name of a tree.
        let named = |tree: &str| String::from_utf8(percent_decode(tree)?).map_err(|_| nothing());
        match path.strip_prefix("/v1/admin/trees/").and_then(|rest| rest.split_once('/')) {
            Some((tree, "snapshot")) => return Ok(Self::Snapshot(named(tree)?)),
            Some((tree, "gc")) => return Ok(Self::Gc(named(tree)?)),
            _ => {}
        }
        if let Some(rest) = path.strip_prefix("/v1/admin/") {
            let segments: Result<Vec<String>, Error> = rest.split('/').map(named).collect();
            return AdminResource::parse(&segments?).map(Self::Admin).ok_or_else(nothing);
        }
        let (tree, rest) =
            path.strip_prefix("/v1/trees/").and_then(|rest| rest.split_once('/')).ok_or_else(nothing)?;
        let tree = named(tree)?;
        match rest {
            "keys" => Ok(Self::Keys(tree)),
            "batch" => Ok(Self::Batch(tree)),
            "changes" => Ok(Self::Changes(tree)),
            "digest" => Ok(Self::Digest(tree)),
            _ => {
                let key = percent_decode(rest.strip_prefix("keys/").ok_or_else(nothing)?)?;
                check_key(&key)?;
                Ok(Self::Key(tree, key.into()))
            }
        }
    }

    /// The methods that it takes.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            Self::Key(..) => "GET, HEAD, PUT, DELETE",
            Self::Keys(_) => "GET, HEAD, DELETE",
            Self::Batch(_) | Self::Snapshot(_) | Self::Gc(_) => "POST",
            Self::Admin(resource) => resource.methods(),
            _ => "GET, HEAD",
        }
    }
}

/// Checks a key before anything is read or waited for.
pub(super) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        return Err(invalid("a key has at least one byte"));
    }
    if key.len() > MAX_KEY_BYTES {
        let said = format!("a key of {} bytes is over the limit of {MAX_KEY_BYTES} bytes", key.len());
        return Err(Error::new(ErrorKind::TooLarge, said));
    }
    Ok(())
}

/// Decodes percent-encoded bytes; everything else stands for itself.
///
/// # Errors
/// `Invalid` for a percent sign without two hexadecimal digits.
pub(super) fn percent_decode(text: &str) -> Result<Vec<u8>, Error> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(invalid(
                "a '%' that two hexadecimal digits do not follow; a plain one is sent as %25",
            ));
        };
        decoded.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are one byte"));
        rest = &after[2..];
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Vec<u8> {
        match Resource::parse(&format!("/v1/trees/t/keys/{path}")) {
            Ok(Resource::Key(tree, key)) if tree == "t" => key.to_vec(),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_key_is_everything_behind_keys_decoded_once() {
        assert_eq!(key("a/b"), b"a/b");
        assert_eq!(key("a%2Fb//c/"), b"a/b//c/");
        assert_eq!(key("%2E%2E/%2e"), b"../.");
        assert_eq!(key("../digest"), b"../digest");
        assert_eq!(key("%2525"), b"%25");
        assert_eq!(key("a+b"), b"a+b");
        assert_eq!(key("%00%ff%F0"), b"\x00\xff\xf0");
        assert_eq!(key("ö"), "ö".as_bytes());
    }

    #[test]
    fn a_percent_sign_without_two_digits_is_invalid() {
        for bad in ["%", "%4", "a%zz", "%%41", "%+1", "%4g"] {
            let error = Resource::parse(&format!("/v1/trees/t/keys/{bad}")).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        }
        assert!(Resource::parse("/v1/trees/%zz/keys").is_err());
    }

    #[test]
    fn keys_outside_their_limits_are_refused_after_decoding() {
        let kind = |key: String| Resource::parse(&format!("/v1/trees/t/keys/{key}")).map_err(|e| e.kind());
        assert!(kind("%61".repeat(MAX_KEY_BYTES)).is_ok());
        assert_eq!(kind("%61".repeat(MAX_KEY_BYTES + 1)), Err(ErrorKind::TooLarge));
        assert_eq!(kind(String::new()), Err(ErrorKind::Invalid));
    }

    #[test]
    fn other_paths_are_matched_as_they_are() {
        assert_eq!(Resource::parse("/v1/trees/a%2Eb/digest").expect("known"), Resource::Digest("a.b".into()));
        for bad in
            ["", "*", "/v1", "/v1/", "/v1/trees", "/v1/trees/t", "/v1/trees/t/", "/v1/trees/t/key/k", "//"]
        {
            assert_eq!(Resource::parse(bad).expect_err(bad).kind(), ErrorKind::NotFound, "{bad}");
        }
    }
}
