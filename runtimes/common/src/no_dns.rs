//! Without the feature `srv` nothing is looked up.

use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

use crate::runtime::Runtime;

pub(crate) fn srv<R: Runtime>(_: &R, _: String) -> impl Future<Output = io::Result<Vec<SrvRecord>>> + Send + use<R> {
    ready(Err(unsupported()))
}

pub(crate) fn txt<R: Runtime>(_: &R, _: String) -> impl Future<Output = io::Result<Vec<TxtRecord>>> + Send + use<R> {
    ready(Err(unsupported()))
}

/// Where a client looks up names: the runtime does.
#[derive(Clone, Debug, Default)]
pub(crate) enum Names {
    #[default]
    Runtime,
}

impl Names {
    pub(crate) fn addresses<R: Runtime>(
        &self,
        runtime: &R,
        host: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        runtime.resolve(host, port)
    }

    pub(crate) fn srv<R: Runtime>(
        &self,
        runtime: &R,
        name: &str,
    ) -> impl Future<Output = io::Result<Vec<SrvRecord>>> + Send {
        runtime.resolve_srv(name)
    }

    pub(crate) fn txt<R: Runtime>(
        &self,
        runtime: &R,
        name: &str,
    ) -> impl Future<Output = io::Result<Vec<TxtRecord>>> + Send {
        runtime.resolve_txt(name)
    }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this program was built without the feature `srv`, which looks them up")
}
