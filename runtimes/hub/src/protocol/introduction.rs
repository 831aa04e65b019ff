//! Who asks: what a client says about itself in its first hello, and what the hub knows. Servers note it in place of what the hub says about
//! itself (`$client`, as routers send it): in their log, `currentOp` and the profiler.

use std::collections::BTreeSet;

use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};

/// How long it may be: a router takes no longer one.
const MOST: usize = 512;

/// How long an application's name may be.
const MOST_NAME: usize = 128;

/// What a client may say about itself; all else is a router's, or nobody's.
const FIELDS: [&str; 5] = ["application", "driver", "os", "platform", "env"];

/// What is left out, one after another, if it is too long.
const OPTIONAL: [&str; 2] = ["env", "platform"];

/// The introduction of a client that has this metadata, as far as a server takes it.
pub fn introduction(metadata: Option<&RawDocument>, user: Option<&str>, remote: &str) -> RawDocumentBuf {
    let mut hub = RawDocumentBuf::new();
    if let Some(user) = user {
        hub.append(cstr!("user"), user);
    }
    hub.append(cstr!("remote"), remote);
    let said = metadata.filter(|metadata| is_valid(metadata)).and_then(|metadata| {
        (0..=OPTIONAL.len()).find_map(|left_out| {
            let left_out = OPTIONAL.get(..left_out).unwrap_or_default();
            let mut introduction = RawDocumentBuf::new();
            for (key, value) in metadata.iter().filter_map(Result::ok) {
                if FIELDS.contains(&key.as_str()) && !left_out.contains(&key.as_str()) {
                    introduction.append(key, value);
                }
            }
            introduction.append(cstr!("hub"), hub.as_ref());
            (introduction.as_bytes().len() <= MOST).then_some(introduction)
        })
    });
    // Who hides behind what a server does not take is not hidden.
    said.unwrap_or_else(|| {
        rawdoc! {
            "driver": { "name": "cmap-hub", "version": env!("CARGO_PKG_VERSION") },
            "os": { "type": std::env::consts::OS },
            "hub": hub,
        }
    })
}

/// Whether it has what servers demand.
fn is_valid(metadata: &RawDocument) -> bool {
    let mut seen = BTreeSet::new();
    // Servers look at each of them.
    let is_once = metadata.iter().all(|field| field.is_ok_and(|(key, _)| seen.insert(key.as_str())));
    let has =
        |document: &str, field: &str| metadata.get_document(document).is_ok_and(|inner| inner.get_str(field).is_ok());
    let has_good_name = match metadata.get("application") {
        Ok(None) => true,
        Ok(Some(application)) => application.as_document().is_some_and(|inner| match inner.get("name") {
            Ok(None) => true,
            Ok(Some(name)) => name.as_str().is_some_and(|name| name.len() <= MOST_NAME),
            Err(_) => false,
        }),
        Err(_) => false,
    };
    is_once && has("driver", "name") && has("driver", "version") && has("os", "type") && has_good_name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> RawDocumentBuf {
        rawdoc! {
            "application": { "name": "shop" }, "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" },
            "platform": "p".repeat(100), "env": { "container": { "runtime": "docker" } }, "hub": { "user": "root" },
            "mongos": { "client": "10.0.0.9:1" },
        }
    }

    #[test]
    fn it_is_the_clients_metadata_and_what_the_hub_knows() {
        let introduction = introduction(Some(&metadata()), Some("anna"), "192.0.2.1");

        let mut expected = metadata();
        expected = expected.iter().map(Result::unwrap).filter(|(key, _)| FIELDS.contains(&key.as_str())).fold(
            RawDocumentBuf::new(),
            |mut document, (key, value)| {
                document.append(key, value);
                document
            },
        );
        expected.append(cstr!("hub"), rawdoc! { "user": "anna", "remote": "192.0.2.1" });
        assert_eq!(introduction, expected);
    }

    /// Whether it is the hub that introduces itself, in place of the client.
    fn is_hubs(introduction: &RawDocument) -> bool {
        introduction.get_document("driver").unwrap().get_str("name").ok() == Some("cmap-hub")
    }

    #[test]
    fn what_is_too_long_is_left_out_and_at_last_all_that_the_client_says() {
        let long = |length: usize| {
            let driver = rawdoc! { "name": "d".repeat(length), "version": "1" };
            let metadata = rawdoc! {
                "driver": driver, "os": { "type": "Linux" }, "platform": "p".repeat(50), "env": { "x": "e".repeat(50) },
            };
            introduction(Some(&metadata), None, "192.0.2.1")
        };

        let has = |length: usize| {
            let introduction = long(length);
            (!is_hubs(&introduction)).then(|| OPTIONAL.map(|key| introduction.get(key).unwrap().is_some()))
        };
        let mut all: Vec<_> = (0..600).map(has).collect();
        all.dedup();
        assert_eq!(all, [Some([true, true]), Some([false, true]), Some([false, false]), None]);
        assert!((0..600).map(long).all(|introduction| introduction.as_bytes().len() <= MOST));
    }

    #[test]
    fn what_a_server_would_refuse_is_not_sent_and_its_client_is_named_all_the_same() {
        let with = |application| rawdoc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "t" }, "application": application };
        let mut twice = with(rawdoc! {});
        twice.append(cstr!("os"), rawdoc! {});
        for metadata in [
            rawdoc! {},
            rawdoc! { "driver": { "name": "d" }, "os": { "type": "t" } },
            rawdoc! { "driver": { "name": "d", "version": 1 }, "os": { "type": "t" } },
            rawdoc! { "driver": { "name": "d", "version": "1" }, "os": {} },
            with(rawdoc! { "name": "n".repeat(129) }),
            with(rawdoc! { "name": 5 }),
            twice,
        ] {
            let introduction = introduction(Some(&metadata), Some("anna"), "unix");

            assert!(is_hubs(&introduction), "{metadata:?}");
            assert_eq!(introduction.get_document("hub").unwrap(), &*rawdoc! { "user": "anna", "remote": "unix" });
        }
    }
}
