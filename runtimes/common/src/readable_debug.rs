//! How errors show where `main` returns one.

/// Gives errors a `Debug` form that people can read: `main` prints that one when it returns an error.
macro_rules! readable_debug {
    ($($error:ty),+ $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&cmap_core::ErrorChain(self), f)
            }
        }
    )+};
}

pub(crate) use readable_debug;
