//! Where a client runs, as its metadata say it: functions as a service, containers and coding agents (HS-11 to HS-13, HS-17).
//!
//! The caller has an environment to read; this file knows the meaning of the variables.

use alloc::string::String;

use bson::RawDocumentBuf;

/// The longest name of a coding agent, in bytes (HS-17).
const MAX_AGENT_LEN: usize = 64;

/// The variables that coding agents set, in order of precedence, and their names in `env.agent` (HS-17).
const AGENTS: [(&str, &str); 12] = [
    ("CLAUDECODE", "claude_code"),
    ("CLAUDE_CODE_ENTRYPOINT", "claude_code"),
    ("CURSOR_AGENT", "cursor"),
    ("CODEX_SANDBOX", "codex_cli"),
    ("CLINE_ACTIVE", "cline"),
    ("GEMINI_CLI", "gemini_cli"),
    ("AUGMENT_AGENT", "auggie_cli"),
    ("OPENCODE", "opencode_client"),
    ("OPENCODE_CLIENT", "opencode_client"),
    ("TRAE_AI_SHELL_ID", "trae_ai"),
    ("GOOSE_TERMINAL", "goose"),
    ("GOOSE_AGENT", "goose"),
];

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
    /// The coding agent that runs the program, such as "cursor" (HS-17).
    pub agent: Option<String>,
}

/// How much of a document is left out to make it fit (HS-10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    Nothing,
    EnvironmentButNameAndAgent,
    EnvironmentButName,
    SystemButType,
    Environment,
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
        let container = Self {
            docker: dockerenv_exists,
            kubernetes: set("KUBERNETES_SERVICE_HOST").is_some(),
            agent: agent(&variable),
            ..Self::default()
        };
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

    pub(super) fn to_document(&self, cut: Cut) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        if cut >= Cut::Environment {
            return document;
        }
        if let Some(name) = self.name {
            document.append(bson::cstr!("name"), name);
        }
        if let Some(agent) = self.agent.as_deref().filter(|_| cut < Cut::EnvironmentButName) {
            document.append(bson::cstr!("agent"), agent);
        }
        if cut >= Cut::EnvironmentButNameAndAgent {
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

/// The coding agent that set one of its variables (HS-17). A variable that is blank is unset.
fn agent(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &str| variable(name).map(|value| value.trim().to_lowercase()).filter(|value| !value.is_empty());
    if let Some((_, agent)) = AGENTS.iter().find(|(name, _)| set(name).is_some()) {
        return Some((*agent).into());
    }
    let mut agent = set("AI_AGENT")?;
    if agent == "1" || agent == "true" {
        return Some("ai_agent".into());
    }
    agent.truncate(floor_char_boundary(&agent, MAX_AGENT_LEN));
    Some(agent)
}

/// The longest prefix of `text` that has at most `most` bytes and ends between two characters.
pub(super) fn floor_char_boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

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
    fn the_first_variable_of_a_coding_agent_names_it_hs_17() {
        let agent = |variables: &[(&str, &str)]| detect(variables).agent;

        assert_eq!(agent(&[("CLAUDECODE", "1"), ("CURSOR_AGENT", "1")]).as_deref(), Some("claude_code"));
        assert_eq!(agent(&[("AI_AGENT", "mine"), ("GOOSE_AGENT", "x")]).as_deref(), Some("goose"));
        assert_eq!(agent(&[("CURSOR_AGENT", " "), ("AUGMENT_AGENT", "")]), None);
        assert_eq!(detect(&[]).to_document(Cut::Nothing), rawdoc! {});
    }

    #[test]
    fn a_coding_agent_without_a_variable_of_its_own_names_itself_hs_17() {
        let agent = |value: &str| detect(&[("AI_AGENT", value)]).agent;

        assert_eq!(agent(" My-Agent ").as_deref(), Some("my-agent"));
        assert_eq!((agent("1").as_deref(), agent("True").as_deref()), (Some("ai_agent"), Some("ai_agent")));
        assert_eq!(agent(&"\u{e9}x".repeat(30)).map(|agent| agent.len()), Some(63));
    }

    #[test]
    fn what_is_no_number_is_left_out_hs_12() {
        let lambda = detect(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")]);

        assert_eq!((lambda.name, lambda.memory_mb), (Some("aws.lambda"), None));
    }
}
