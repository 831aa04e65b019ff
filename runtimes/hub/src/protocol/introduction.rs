//! Who asks: what a client says about itself in its first hello, and what the hub knows. Servers note it in place of what the hub says about
//! itself (`$client`, as routers send it): in their log, `currentOp` and the profiler.

use bson::{RawDocument, RawDocumentBuf, cstr};

/// How long it may be: a router takes no longer one.
const MOST: usize = 512;

/// How long an application's name may be.
const MOST_NAME: usize = 128;

/// What is left out, one after another, if it is too long.
const OPTIONAL: [&str; 2] = ["env", "platform"];

/// The introduction of a client that has this metadata; `None` if a server would refuse it.
pub fn introduction(metadata: &RawDocument, user: Option<&str>, remote: &str) -> Option<RawDocumentBuf> {
    if !is_valid(metadata) {
        return None;
    }
    let mut hub = RawDocumentBuf::new();
    if let Some(user) = user {
        hub.append(cstr!("user"), user);
    }
    hub.append(cstr!("remote"), remote);
    (0..=OPTIONAL.len()).find_map(|left_out| {
        let left_out = OPTIONAL.get(..left_out).unwrap_or_default();
        let mut introduction = RawDocumentBuf::new();
        for (key, value) in metadata.iter().filter_map(Result::ok) {
            if key != cstr!("hub") && !left_out.contains(&key.as_str()) {
                introduction.append(key, value);
            }
        }
        introduction.append(cstr!("hub"), hub.as_ref());
        (introduction.as_bytes().len() <= MOST).then_some(introduction)
    })
}

/// Whether it has what servers demand.
fn is_valid(metadata: &RawDocument) -> bool {
    let has =
        |document: &str, field: &str| metadata.get_document(document).is_ok_and(|inner| inner.get_str(field).is_ok());
    let has_good_name = match metadata.get("application") {
        Ok(None) => true,
        Ok(Some(application)) => application
            .as_document()
            .is_some_and(|inner| inner.get_str("name").map_or(true, |name| name.len() <= MOST_NAME)),
        Err(_) => false,
    };
    has("driver", "name") && has("driver", "version") && has("os", "type") && has_good_name
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn metadata() -> RawDocumentBuf {
        rawdoc! {
            "application": { "name": "shop" }, "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" },
            "platform": "p".repeat(100), "env": { "container": { "runtime": "docker" } }, "hub": { "user": "root" },
        }
    }

    #[test]
    fn it_is_the_clients_metadata_and_what_the_hub_knows() {
        let introduction = introduction(&metadata(), Some("anna"), "192.0.2.1").unwrap();

        let mut expected = metadata();
        expected = expected.iter().map(Result::unwrap).filter(|(key, _)| *key != cstr!("hub")).fold(
            RawDocumentBuf::new(),
            |mut document, (key, value)| {
                document.append(key, value);
                document
            },
        );
        expected.append(cstr!("hub"), rawdoc! { "user": "anna", "remote": "192.0.2.1" });
        assert_eq!(introduction, expected);
    }

    #[test]
    fn what_is_too_long_is_left_out_and_at_last_all_of_it() {
        let long = |length: usize| {
            let mut metadata = metadata();
            metadata.append(cstr!("more"), "m".repeat(length));
            introduction(&metadata, None, "192.0.2.1")
        };

        let has = |length: usize| {
            let introduction = long(length)?;
            Some(OPTIONAL.map(|key| introduction.get(key).unwrap().is_some()))
        };
        let mut all: Vec<_> = (0..600).map(has).collect();
        all.dedup();
        assert_eq!(all, [Some([true, true]), Some([false, true]), Some([false, false]), None]);
        assert!((0..600).filter_map(long).all(|introduction| introduction.as_bytes().len() <= MOST));
    }

    #[test]
    fn what_a_server_would_refuse_is_not_sent() {
        for metadata in [
            rawdoc! {},
            rawdoc! { "driver": { "name": "d" }, "os": { "type": "t" } },
            rawdoc! { "driver": { "name": "d", "version": 1 }, "os": { "type": "t" } },
            rawdoc! { "driver": { "name": "d", "version": "1" }, "os": {} },
            rawdoc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "t" }, "application": "shop" },
            rawdoc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "t" }, "application": { "name": "n".repeat(129) } },
        ] {
            assert_eq!(introduction(&metadata, Some("anna"), "unix"), None, "{metadata:?}");
        }
    }
}
