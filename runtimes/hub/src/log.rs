//! The program's log on standard error.

use std::io;

use cmap_hub::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Begins the log. The function that is returned sets what it shows, or says why a filter is none.
pub(crate) fn begin(log: &Log) -> impl Fn(&str) -> Result<(), String> + Send + Sync + 'static {
    let filter = EnvFilter::try_new(log.level()).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let set: Box<dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send + Sync> = match log.format {
        LogFormat::Text => {
            let lines = lines.with_filter_reloading();
            let filters = lines.reload_handle();
            lines.init();
            Box::new(move |filter| filters.reload(filter))
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            let lines = lines.with_filter_reloading();
            let filters = lines.reload_handle();
            lines.init();
            Box::new(move |filter| filters.reload(filter))
        }
    };
    move |text| {
        let filter = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        set(filter).map_err(|error| error.to_string())
    }
}
