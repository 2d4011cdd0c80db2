//! [`Reading`]: held by whoever reads the entries of a state one after another.

use std::sync::Arc;

/// While one is held, nothing is reaped that was not reaped when it was taken.
#[derive(Debug)]
pub(in crate::tree) struct Reading {
    _counted: Arc<()>,
}

impl Reading {
    pub(in crate::tree) fn new(readings: &Arc<()>) -> Self {
        Self { _counted: readings.clone() }
    }
}
