//! What a client has only with a feature. Without the feature its type has no values, so that only code with a value at hand depends on
//! the feature.

#[cfg(not(feature = "__rustls"))]
pub(crate) use std::convert::Infallible as TlsConfig;

#[cfg(all(feature = "reverse", feature = "__rustls"))]
pub(crate) use crate::reverse::ReverseListener;
#[cfg(feature = "__rustls")]
pub(crate) use crate::tls::TlsConfig;

#[cfg(not(all(feature = "reverse", feature = "__rustls")))]
pub(crate) type ReverseListener<R> = (std::convert::Infallible, std::marker::PhantomData<fn(R)>);
