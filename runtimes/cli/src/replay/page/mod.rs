//! A picture as a page: one file that needs nothing else and asks for nothing from the network.
//!
//! Every text of the trace is in one block of data, in which `<` is written as an escape, so that nothing in it can end the block; the
//! scripts put texts on the page as texts alone. The page allows its own two scripts and its style by their digests, and nothing else.

mod data;

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cmap_core::trace::Trace;
use sha2::{Digest, Sha256};

use self::data::Data;
use super::picture::Picture;

/// How many of the longest waits a page shows; of those that failed, half as many.
pub(super) const WAITS: usize = 500;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const TIMELINE: &str = include_str!("timeline.js");
const WAITS_SCRIPT: &str = include_str!("waits.js");

/// Writes the page.
pub(super) fn write(trace: &Trace, picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    let data = serde_json::to_string(&Data::of(trace, picture))?.replace('<', "\\u003c");
    let policy = format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src {}; script-src {} {}",
        source(STYLE),
        source(TIMELINE),
        source(WAITS_SCRIPT)
    );
    let mut rest = PAGE;
    for (place, part) in [
        ("{policy}", policy.as_str()),
        ("{style}", STYLE),
        ("{data}", &data),
        ("{timeline}", TIMELINE),
        ("{waits}", WAITS_SCRIPT),
    ] {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(part.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// How a policy names a script or a style that is part of the page.
fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}
