//! [`Forward`]: whether a shipper sends on what other clusters wrote.

/// Whether what came from elsewhere is shipped too. Never what came from the peer itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// Only what this cluster wrote.
    #[default]
    Never,
    /// Everything.
    Always,
    /// What the peer asks for, because it has waited for it too long.
    OnDemand,
}
