//! [`Fields`]: reads numbers and byte strings from the front of a slice, never beyond its end.

use crate::record::FormatError;

/// What is left to read of a structure. Every reading fails once the bytes are used up.
#[derive(Clone, Debug)]
pub(in crate::tree) struct Fields<'a> {
    rest: &'a [u8],
    /// The structure, for the message.
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(in crate::tree) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], FormatError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(FormatError::Short(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    pub(in crate::tree) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array().map(|[byte]| *byte)
    }

    pub(in crate::tree) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(in crate::tree) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(in crate::tree) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// So many bytes, as a slice of what is read.
    pub(in crate::tree) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(FormatError::Short(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    /// A length in 32 bits, then that many bytes.
    pub(in crate::tree) fn string(&mut self) -> Result<&'a [u8], FormatError> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    /// A count in 32 bits of things that take at least `least` bytes each: never more than can follow.
    pub(in crate::tree) fn count(&mut self, least: usize) -> Result<usize, FormatError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least { Err(FormatError::Short(self.what)) } else { Ok(count) }
    }

    /// What is left.
    pub(in crate::tree) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(in crate::tree) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may be left.
    pub(in crate::tree) fn finish(self) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FormatError::Field("a structure of a snapshot is longer than its fields"))
        }
    }
}
