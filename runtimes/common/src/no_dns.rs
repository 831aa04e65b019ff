//! Without the feature `srv` nothing is looked up.

use std::future::{Future, ready};
use std::io;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

use crate::runtime::Runtime;

pub(crate) fn srv<R: Runtime>(_: &R, _: String) -> impl Future<Output = io::Result<Vec<SrvRecord>>> + Send + use<R> {
    ready(Err(unsupported()))
}

pub(crate) fn txt<R: Runtime>(_: &R, _: String) -> impl Future<Output = io::Result<Vec<TxtRecord>>> + Send + use<R> {
    ready(Err(unsupported()))
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program was built without the feature `srv`, which looks them up")
}
