//! What every transport must do, as checks that an implementation runs in its own tests.
