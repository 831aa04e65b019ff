//! The client's description of itself in its first hello: the document `client` (HS-8 to HS-14).
//!
//! A server refuses more than 512 bytes, so the document is cut down in a fixed order until it fits: first what may be left
//! out, then the texts.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bson::RawDocumentBuf;
use thiserror::Error;

use super::environment::{Cut, Environment, floor_char_boundary};
use crate::error_text::readable_debug;

/// The longest document that a server takes (HS-10).
const MAX_LEN: usize = 512;

/// What separates the parts of drivers that wrap each other (HS-14).
const SEPARATOR: char = '|';

/// The document `client`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientMetadata {
    /// The application's name, at most 128 bytes (HS-9).
    pub app_name: Option<String>,
    /// The driver's name, and those of the libraries around it.
    pub driver_name: String,
    /// The driver's version, and those of the libraries around it.
    pub driver_version: String,
    /// The operating system's type, such as "Linux".
    pub os_type: String,
    /// The processor's architecture.
    pub os_architecture: Option<String>,
    /// The language and runtime, as free text.
    pub platform: Option<String>,
    /// Where the client runs.
    pub environment: Environment,
    /// The libraries around the driver that were appended: name, version and platform of each.
    wrappers: Vec<[String; 3]>,
}

/// The description of a wrapping library cannot be sent.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// A part contains the separator.
    #[error("{0:?} contains {SEPARATOR:?}, which separates the descriptions of wrapping libraries; leave it out")]
    Separator(String),
    /// Servers would refuse every hello with it (HS-10).
    #[error(
        "with {0:?} the client's metadata exceed the 512 bytes that a server takes; give a shorter name or version"
    )]
    TooLong(String),
}

readable_debug!(MetadataError);

impl ClientMetadata {
    /// This driver on an operating system of type `os_type`.
    pub fn new(os_type: impl Into<String>) -> Self {
        Self {
            app_name: None,
            driver_name: "cmap".into(),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            os_type: os_type.into(),
            os_architecture: None,
            platform: None,
            environment: Environment::default(),
            wrappers: Vec::new(),
        }
    }

    /// Adds the description of a library that wraps this one (HS-14). Names and versions correspond by their place, so an empty
    /// one is added, too (HS-18); an empty platform is not. A description whose three parts equal those of an earlier one is
    /// not added again.
    ///
    /// # Errors
    /// A part contains the character that separates them, or the whole would be longer than servers take. Then nothing
    /// is added.
    pub fn append(&mut self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        if let Some(part) = [name, version, platform].into_iter().find(|part| part.contains(SEPARATOR)) {
            return Err(MetadataError::Separator(part.to_string()));
        }
        let wrapper = [name, version, platform].map(ToString::to_string);
        if self.wrappers.contains(&wrapper) {
            return Ok(());
        }
        let mut wrapped = self.clone();
        wrapped.join(name, version, platform);
        wrapped.wrappers.push(wrapper);
        let without_platform = Self { platform: None, ..wrapped.clone() };
        if without_platform.document(Cut::Environment).as_bytes().len() > MAX_LEN {
            return Err(MetadataError::TooLong(name.to_string()));
        }
        *self = wrapped;
        Ok(())
    }

    fn join(&mut self, name: &str, version: &str, platform: &str) {
        self.driver_name.push(SEPARATOR);
        self.driver_name.push_str(name);
        self.driver_version.push(SEPARATOR);
        self.driver_version.push_str(version);
        if !platform.is_empty() {
            let joined = match self.platform.take() {
                Some(own) => alloc::format!("{own}{SEPARATOR}{platform}"),
                None => platform.to_string(),
            };
            self.platform = Some(joined);
        }
    }

    /// The document, cut down to what a server takes (HS-10).
    pub fn to_document(&self) -> RawDocumentBuf {
        let cuts = [
            Cut::Nothing,
            Cut::EnvironmentButNameAndAgent,
            Cut::EnvironmentButName,
            Cut::SystemButType,
            Cut::Environment,
        ];
        for cut in cuts {
            let document = self.document(cut);
            if document.as_bytes().len() <= MAX_LEN {
                return document;
            }
        }
        self.shortened().document(Cut::Environment)
    }

    /// Shortens the texts: the platform first, then the last libraries around the driver, then what its owner could have
    /// made too long.
    fn shortened(&self) -> Self {
        let mut metadata = self.clone();
        metadata.shorten(|metadata| metadata.platform.as_mut());
        metadata.platform = metadata.platform.filter(|platform| !platform.is_empty());
        while metadata.excess() > 0
            && let Some((name, _)) = metadata.driver_name.rsplit_once(SEPARATOR)
            && let Some((version, _)) = metadata.driver_version.rsplit_once(SEPARATOR)
        {
            (metadata.driver_name, metadata.driver_version) = (name.into(), version.into());
        }
        metadata.shorten(|metadata| Some(&mut metadata.os_type));
        metadata.shorten(|metadata| metadata.app_name.as_mut());
        metadata.shorten(|metadata| Some(&mut metadata.driver_version));
        metadata.shorten(|metadata| Some(&mut metadata.driver_name));
        metadata
    }

    /// Takes as much of `text` as the document is too long.
    fn shorten(&mut self, text: impl Fn(&mut Self) -> Option<&mut String>) {
        let excess = self.excess();
        if excess > 0
            && let Some(text) = text(self)
        {
            text.truncate(floor_char_boundary(text, text.len().saturating_sub(excess)));
        }
    }

    /// How much too long the shortest document with these texts is.
    fn excess(&self) -> usize {
        self.document(Cut::Environment).as_bytes().len().saturating_sub(MAX_LEN)
    }

    fn document(&self, cut: Cut) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        if let Some(name) = &self.app_name {
            let mut application = RawDocumentBuf::new();
            application.append(bson::cstr!("name"), name.as_str());
            document.append(bson::cstr!("application"), application);
        }
        let mut driver = RawDocumentBuf::new();
        driver.append(bson::cstr!("name"), self.driver_name.as_str());
        driver.append(bson::cstr!("version"), self.driver_version.as_str());
        document.append(bson::cstr!("driver"), driver);
        let mut os = RawDocumentBuf::new();
        os.append(bson::cstr!("type"), if self.os_type.is_empty() { "unknown" } else { &self.os_type });
        if let Some(architecture) = self.os_architecture.as_deref().filter(|_| cut < Cut::SystemButType) {
            os.append(bson::cstr!("architecture"), architecture);
        }
        document.append(bson::cstr!("os"), os);
        if let Some(platform) = &self.platform {
            document.append(bson::cstr!("platform"), platform.as_str());
        }
        let environment = self.environment.to_document(cut);
        if !environment.is_empty() {
            document.append(bson::cstr!("env"), environment);
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Environment {
        let variable = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
        Environment::detect(variable, false)
    }

    #[test]
    fn an_environment_keeps_its_agent_longer_than_its_region_hs_17() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.environment = detect(&[("VERCEL", "1"), ("VERCEL_REGION", &"r".repeat(400)), ("CURSOR_AGENT", "1")]);

        let with_agent = rawdoc! { "name": "vercel", "agent": "cursor" };
        assert_eq!(metadata.to_document().get_document("env").unwrap(), &*with_agent);
        metadata.platform = Some("p".repeat(390));
        assert_eq!(metadata.to_document().get_document("env").unwrap(), &*rawdoc! { "name": "vercel" });
    }

    #[test]
    fn the_document_never_exceeds_512_bytes_hs_10() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.os_architecture = Some("x".repeat(200));
        metadata.platform = Some("p\u{e9}".repeat(300));
        metadata.environment = detect(&[("VERCEL", "1"), ("VERCEL_REGION", &"r".repeat(200))]);

        let document = metadata.to_document();

        assert!((510..=512).contains(&document.as_bytes().len()), "{}", document.as_bytes().len());
        assert!(document.get("env").unwrap().is_none());
        assert_eq!(document.get_document("os").unwrap(), &*rawdoc! { "type": "Linux" });
    }

    #[test]
    fn no_text_makes_the_document_exceed_512_bytes_hs_10() {
        let long = "\u{e9}".repeat(1000);
        let changes: [fn(&mut ClientMetadata, String); 6] = [
            |metadata, text| metadata.app_name = Some(text),
            |metadata, text| metadata.driver_name = text,
            |metadata, text| metadata.driver_version = text,
            |metadata, text| metadata.os_type = text,
            |metadata, text| metadata.platform = Some(text),
            |metadata, text| metadata.os_architecture = Some(text),
        ];
        let mut all = ClientMetadata::new("Linux");
        for change in changes {
            let mut metadata = ClientMetadata::new("Linux");
            change(&mut metadata, long.clone());
            change(&mut all, long.clone());

            assert!(metadata.to_document().as_bytes().len() <= 512, "{metadata:?}");
        }
        assert!((510..=512).contains(&all.to_document().as_bytes().len()));
    }

    #[test]
    fn an_environment_is_cut_to_its_name_first_hs_10() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.os_architecture = Some("x86_64".into());
        metadata.environment = detect(&[("VERCEL", "1"), ("VERCEL_REGION", &"r".repeat(512))]);

        let document = metadata.to_document();

        assert_eq!(document.get_document("env").unwrap(), &*rawdoc! { "name": "vercel" });
        assert_eq!(document.get_document("os").unwrap().get_str("architecture").unwrap(), "x86_64");
    }

    #[test]
    fn wrapping_libraries_are_appended_once_hs_14() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.append("wrapper", "2.0", "Platform").unwrap();
        metadata.append("wrapper", "2.0", "Platform").unwrap();
        metadata.append("outer", "", "").unwrap();

        assert_eq!(metadata.driver_name, "cmap|wrapper|outer");
        assert_eq!(metadata.driver_version, alloc::format!("{}|2.0|", env!("CARGO_PKG_VERSION")));
        assert_eq!(metadata.platform.as_deref(), Some("Platform"));
        assert!(metadata.append("a|b", "", "").is_err());
    }

    #[test]
    fn names_and_versions_correspond_by_their_place_hs_18() {
        let mut metadata = ClientMetadata::new("Linux");
        for (name, version) in [("F1", ""), ("", "2.0"), ("F3", "3.0"), ("F1", "")] {
            metadata.append(name, version, "").unwrap();
        }

        assert_eq!(metadata.driver_name, "cmap|F1||F3");
        assert_eq!(metadata.driver_version, alloc::format!("{}||2.0|3.0", env!("CARGO_PKG_VERSION")));
        assert_eq!(metadata.platform, None);
    }

    #[test]
    fn a_library_that_does_not_fit_leaves_with_its_name_and_its_version_hs_18() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.append("inner", "1.0", "").unwrap();
        metadata.append(&"n".repeat(200), &"v".repeat(150), "").unwrap();
        metadata.app_name = Some("a".repeat(128));

        let document = metadata.to_document();

        let driver = document.get_document("driver").unwrap();
        assert_eq!(driver.get_str("name").unwrap(), "cmap|inner");
        assert_eq!(driver.get_str("version").unwrap(), alloc::format!("{}|1.0", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_library_with_another_platform_is_another_one_hs_14() {
        let mut metadata = ClientMetadata::new("Linux");
        metadata.append("library", "", "P").unwrap();
        metadata.append("library", "", "P").unwrap();
        metadata.append("library", "1.2", "Library Platform").unwrap();
        metadata.append("library", "1.2", "Framework Platform").unwrap();

        assert_eq!(metadata.driver_name, "cmap|library|library|library");
        assert_eq!(metadata.platform.as_deref(), Some("P|Library Platform|Framework Platform"));
    }

    #[test]
    fn a_library_whose_name_fits_no_hello_is_refused_hs_10() {
        let mut metadata = ClientMetadata::new("Linux");

        assert!(matches!(metadata.append(&"x".repeat(500), "", ""), Err(MetadataError::TooLong(_))));

        assert_eq!(metadata.driver_name, "cmap");
    }
}
