//! The JSON lines sink against its file.
