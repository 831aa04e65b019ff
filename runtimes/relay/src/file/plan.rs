//! What a file makes a relay do, for people (`cmap-relay --check`).

use std::fmt;
use std::path::{Path, PathBuf};

use super::shape::{ApplicationShape, FileShape};
use crate::settings::{Limits, Settings};

/// What a relay would do. It displays as lines of text, without secrets.
#[derive(Clone, Debug)]
pub struct Plan {
    path: PathBuf,
    members: Vec<String>,
    applications: Vec<String>,
    limits: Limits,
}

impl Plan {
    pub(super) fn new(path: &Path, shape: &FileShape, settings: &Settings) -> Self {
        let members = settings.members.iter().map(|member| format!("{}, reached at {}", member.name, member.connect));
        let applications = shape.applications.iter().zip(&settings.applications).map(|(shape, application)| {
            let members: Vec<_> = application.members.iter().map(ToString::to_string).collect();
            format!(
                "{} for {}; {}; trusts {}; at most {} sockets in all",
                application.address,
                members.join(", "),
                proof(shape),
                shape.ca_file.as_ref().map_or("the system's authorities".to_owned(), |file| file.display().to_string()),
                members.len().saturating_mul(usize::try_from(settings.limits.max_sockets).unwrap_or(usize::MAX)),
            )
        });
        Self {
            path: path.to_owned(),
            members: members.collect(),
            applications: applications.collect(),
            limits: settings.limits.clone(),
        }
    }
}

/// By what the relay proves for whom it speaks.
fn proof(shape: &ApplicationShape) -> String {
    let token = shape.token.as_ref().map(|token| format!("token {:?} ({})", token.name, token.secret.place()));
    let certificate = shape.certificate_key_file.as_ref().map(|file| format!("certificate {}", file.display()));
    let proofs: Vec<_> = token.into_iter().chain(certificate).collect();
    format!("proves itself by {}", proofs.join(" and "))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} is in order.", self.path.display())?;
        writeln!(f, "The relay speaks for")?;
        self.members.iter().try_for_each(|member| writeln!(f, "  {member}"))?;
        writeln!(f, "and dials")?;
        self.applications.iter().try_for_each(|application| writeln!(f, "  {application}"))?;
        let limits = &self.limits;
        writeln!(f, "Limits: {} sockets for a member at an application,", limits.max_sockets)?;
        writeln!(
            f,
            "  {:?} to connect, at most {:?} between two attempts,",
            limits.connect_timeout, limits.max_reconnect_delay
        )?;
        match limits.max_parked_time {
            Some(time) => writeln!(f, "  parked for at most {time:?},")?,
            None => writeln!(f, "  parked for as long as a socket holds,")?,
        }
        write!(f, "  {:?} for connections in use when the relay ends", limits.drain_timeout)
    }
}
