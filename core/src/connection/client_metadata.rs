//! The client's description of itself in its first hello: the document `client` (HS-8 to HS-14).
//!
//! A server refuses more than 512 bytes, so the document is cut down in a fixed order until it fits: first what may be left
//! out, then the texts. The caller finds out where the client runs, because it has an environment to read; [`Environment::detect`] only knows the meaning of
//! the variables.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bson::RawDocumentBuf;
use thiserror::Error;

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

/// Functions as a service, and containers (HS-11 to HS-13).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// The service that runs the function, such as "aws.lambda".
    pub name: Option<&'static str>,
    /// Seconds that a call of the function may take.
    pub timeout_sec: Option<i32>,
    /// The function's memory, in megabytes.
    pub memory_mb: Option<i32>,
    /// The region of the world it runs in.
    pub region: Option<String>,
    /// Whether the client runs in a Docker container.
    pub docker: bool,
    /// Whether Kubernetes runs the container.
    pub kubernetes: bool,
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

/// How much of a document is left out to make it fit (HS-10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    Nothing,
    EnvironmentButName,
    SystemButType,
    Environment,
}

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

    /// Adds the description of a library that wraps this one (HS-14). Empty parts count as unset. A description whose
    /// three parts equal those of an earlier one is not added again.
    ///
    /// # Errors
    /// A part contains the character that separates them, or the whole would be longer than servers take. Then nothing
    /// is added.
    pub fn append(&mut self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        if let Some(part) = [name, version, platform].into_iter().find(|part| part.contains(SEPARATOR)) {
            return Err(MetadataError::Separator(part.to_string()));
        }
        let wrapper = [name, version, platform].map(ToString::to_string);
        if name.is_empty() || self.wrappers.contains(&wrapper) {
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
        if !version.is_empty() {
            self.driver_version.push(SEPARATOR);
            self.driver_version.push_str(version);
        }
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
        for cut in [Cut::Nothing, Cut::EnvironmentButName, Cut::SystemButType, Cut::Environment] {
            let document = self.document(cut);
            if document.as_bytes().len() <= MAX_LEN {
                return document;
            }
        }
        self.shortened().document(Cut::Environment)
    }

    /// The same with shorter texts: the platform first, then what its owner could have made too long.
    fn shortened(&self) -> Self {
        type Text = fn(&mut ClientMetadata) -> Option<&mut String>;
        let texts: [Text; 5] = [
            |metadata| metadata.platform.as_mut(),
            |metadata| Some(&mut metadata.os_type),
            |metadata| metadata.app_name.as_mut(),
            |metadata| Some(&mut metadata.driver_version),
            |metadata| Some(&mut metadata.driver_name),
        ];
        let mut metadata = self.clone();
        for text in texts {
            let excess = metadata.document(Cut::Environment).as_bytes().len().saturating_sub(MAX_LEN);
            if excess > 0
                && let Some(text) = text(&mut metadata)
            {
                let most = text.len().saturating_sub(excess);
                text.truncate((0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default());
            }
            metadata.platform = metadata.platform.filter(|platform| !platform.is_empty());
        }
        metadata
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

impl Environment {
    /// Reads the variables of the process, given by `variable`, and whether `/.dockerenv` exists.
    ///
    /// Two services that both seem to run the function make it unknown; Vercel, which runs on AWS, wins over that (HS-11).
    /// Values that are missing or not numbers are left out (HS-12).
    pub fn detect(variable: impl Fn(&str) -> Option<String>, dockerenv_exists: bool) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str| set(name)?.parse().ok();
        let lambda = set("AWS_EXECUTION_ENV").is_some_and(|value| value.starts_with("AWS_Lambda_"))
            || set("AWS_LAMBDA_RUNTIME_API").is_some();
        let azure = set("FUNCTIONS_WORKER_RUNTIME").is_some();
        let gcp = set("K_SERVICE").is_some() || set("FUNCTION_NAME").is_some();
        let vercel = set("VERCEL").is_some();
        let container =
            Self { docker: dockerenv_exists, kubernetes: set("KUBERNETES_SERVICE_HOST").is_some(), ..Self::default() };
        match (vercel, lambda, azure, gcp) {
            (true, _, false, false) => Self { name: Some("vercel"), region: set("VERCEL_REGION"), ..container },
            (false, true, false, false) => Self {
                name: Some("aws.lambda"),
                region: set("AWS_REGION"),
                memory_mb: number("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"),
                ..container
            },
            (false, false, true, false) => Self { name: Some("azure.func"), ..container },
            (false, false, false, true) => Self {
                name: Some("gcp.func"),
                memory_mb: number("FUNCTION_MEMORY_MB"),
                timeout_sec: number("FUNCTION_TIMEOUT_SEC"),
                region: set("FUNCTION_REGION"),
                ..container
            },
            _ => container,
        }
    }

    fn to_document(&self, cut: Cut) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        if cut >= Cut::Environment {
            return document;
        }
        if let Some(name) = self.name {
            document.append(bson::cstr!("name"), name);
        }
        if cut >= Cut::EnvironmentButName {
            return document;
        }
        if let Some(seconds) = self.timeout_sec {
            document.append(bson::cstr!("timeout_sec"), seconds);
        }
        if let Some(megabytes) = self.memory_mb {
            document.append(bson::cstr!("memory_mb"), megabytes);
        }
        if let Some(region) = &self.region {
            document.append(bson::cstr!("region"), region.as_str());
        }
        let mut container = RawDocumentBuf::new();
        if self.docker {
            container.append(bson::cstr!("runtime"), "docker");
        }
        if self.kubernetes {
            container.append(bson::cstr!("orchestrator"), "kubernetes");
        }
        if !container.is_empty() {
            document.append(bson::cstr!("container"), container);
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
    fn the_service_that_runs_the_function_is_known_by_its_variables_hs_11() {
        let lambda = detect(&[
            ("AWS_EXECUTION_ENV", "AWS_Lambda_java8"),
            ("AWS_REGION", "us-east-2"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
        ]);
        assert_eq!(
            (lambda.name, lambda.memory_mb, lambda.region.as_deref()),
            (Some("aws.lambda"), Some(1024), Some("us-east-2"))
        );
        assert_eq!(detect(&[("FUNCTIONS_WORKER_RUNTIME", "node")]).name, Some("azure.func"));
        let gcp =
            detect(&[("K_SERVICE", "servicename"), ("FUNCTION_TIMEOUT_SEC", "60"), ("FUNCTION_MEMORY_MB", "1024")]);
        assert_eq!((gcp.name, gcp.timeout_sec, gcp.memory_mb), (Some("gcp.func"), Some(60), Some(1024)));
        assert_eq!(detect(&[("VERCEL", "1"), ("VERCEL_REGION", "cdg1")]).region.as_deref(), Some("cdg1"));
    }

    #[test]
    fn a_tie_makes_the_service_unknown_unless_vercel_is_on_aws_hs_11() {
        assert_eq!(
            detect(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("FUNCTIONS_WORKER_RUNTIME", "node")]).name,
            None
        );
        assert_eq!(detect(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("VERCEL", "1")]).name, Some("vercel"));
        assert_eq!(detect(&[("AWS_EXECUTION_ENV", "EC2")]).name, None);
    }

    #[test]
    fn what_is_no_number_is_left_out_hs_12() {
        let lambda = detect(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")]);

        assert_eq!((lambda.name, lambda.memory_mb), (Some("aws.lambda"), None));
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
        assert_eq!(metadata.driver_version, alloc::format!("{}|2.0", env!("CARGO_PKG_VERSION")));
        assert_eq!(metadata.platform.as_deref(), Some("Platform"));
        assert!(metadata.append("a|b", "", "").is_err());
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
