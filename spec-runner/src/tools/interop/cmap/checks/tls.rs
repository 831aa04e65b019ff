//! Certificates that must not be trusted, on both sides.

use cmap_core::connection::Phase;
use cmap_core::wire::bson::rawdoc;

use crate::tools::interop::cmap::expect::{self, Mismatch, with_sources};
use crate::tools::interop::cmap::servers::Servers;

pub(super) fn wrong_certificate(servers: &Servers) -> Result<(), Mismatch> {
    let path = |file| servers.certificate("tls", file);
    let connect = |ca: &str, certificate: &str| {
        let options = [("tls", "true"), ("tlsCAFile", ca), ("tlsCertificateKeyFile", certificate)];
        servers.connect("tls", "", &options)
    };
    connect(&path("ca.pem")?, &path("client.pem")?)??.run("admin", &rawdoc! { "ping": 1 })?;

    let error = connect(&path("other-ca.pem")?, &path("client.pem")?)?;
    let error = expect::error(error, "the server is not to be trusted")?;
    expect::equal(error.phase(), Some(Phase::Tls), "phase")?;
    expect::holds(with_sources(&error).contains("tlsCAFile"), "the error names the option that helps")?;

    // In TLS 1.3 a client learns of it only when it reads next.
    let error = connect(&path("ca.pem")?, &path("other-client.pem")?)?;
    let error = expect::error(error, "the client is not to be trusted")?;
    expect::holds(
        matches!(error.phase(), Some(Phase::Tls | Phase::Hello)),
        "the connection is refused before the hello",
    )
}

pub(super) fn wrong_host_name(servers: &Servers) -> Result<(), Mismatch> {
    let ca = servers.certificate("wrong-host", "ca.pem")?;
    let options = [("tls", "true"), ("tlsCAFile", &*ca)];
    let error = expect::error(servers.connect("wrong-host", "", &options)?, "the server is another")?;
    expect::equal(error.phase(), Some(Phase::Tls), "phase")?;
    let text = with_sources(&error);
    expect::holds(text.contains("127.0.0.1"), "the error names the host")?;
    expect::holds(text.contains("elsewhere.example"), "the error names the certificate's host")?;

    let options = [("tls", "true"), ("tlsCAFile", &*ca), ("tlsAllowInvalidHostnames", "true")];
    servers.connect("wrong-host", "", &options)??.run("admin", &rawdoc! { "ping": 1 })?;
    Ok(())
}
