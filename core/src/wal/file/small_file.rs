//! The shape of a log's small files, MANIFEST and TRIM: a magic, fields, and a checksum over both.

use crate::record::checksum;

/// Ends the bytes of a file with their checksum.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = checksum(0, &[&bytes]);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The fields of a file that begins with a magic; `what` names it where it does not, or where its checksum is wrong.
pub(super) fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 4], what: &str) -> Result<&'a [u8], String> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| format!("the {what} is cut short"))?;
    let fields = body.strip_prefix(magic).ok_or_else(|| {
        format!("this is no {what} of a log of version 1; a newer Tidewire may have written it")
    })?;
    if checksum(0, &[body]) != u32::from_le_bytes(*crc) {
        return Err(format!("the checksum of the {what} does not match"));
    }
    Ok(fields)
}

/// Takes a fixed number of bytes from the front.
pub(super) fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(head)
}
