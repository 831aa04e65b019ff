//! Logins: by which mechanisms, and which are refused.

use cmap_core::connection::Phase;
use cmap_core::wire::bson::{Document, doc, rawdoc};

use crate::tools::interop::cmap::client::Client;
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::{Options, Servers, encoded};

const USER: &str = "user:secret@";
const SUBJECT: &str = "CN=client,OU=cmap,O=cmap";

pub(super) fn scram_sha_1(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.connect("auth", USER, &[("authMechanism", "SCRAM-SHA-1")])??;
    logged_in(&mut client, "user", "admin")
}

pub(super) fn scram_sha_256(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.connect("auth", USER, &[("authMechanism", "SCRAM-SHA-256")])??;
    logged_in(&mut client, "user", "admin")
}

pub(super) fn scram_sha_256_saslprep(servers: &Servers) -> Result<(), Mismatch> {
    // The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
    for password in ["IX", "\u{2168}"] {
        let login = format!("sasl:{}@", encoded(password));
        let mut client = servers.connect("auth", &login, &[("authMechanism", "SCRAM-SHA-256")])??;
        logged_in(&mut client, "sasl", "admin")?;
    }
    Ok(())
}

pub(super) fn scram_default(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.connect("auth", USER, &[])??;
    logged_in(&mut client, "user", "admin")
}

pub(super) fn plain(servers: &Servers) -> Result<(), Mismatch> {
    let ca = servers.certificate("tls", "ca.pem")?;
    let options = [("tls", "true"), ("tlsCAFile", &*ca), ("authMechanism", "PLAIN"), ("authSource", "$external")];
    let mut client = servers.connect("tls", USER, &options)??;
    logged_in(&mut client, "user", "$external")
}

pub(super) fn x509(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = with_certificate(servers, "client.pem", &[])??;
    logged_in(&mut client, SUBJECT, "$external")
}

pub(super) fn encrypted_client_key(servers: &Servers) -> Result<(), Mismatch> {
    let file = "client-encrypted.pem";
    let mut client = with_certificate(servers, file, &[("tlsCertificateKeyFilePassword", "secret")])??;
    logged_in(&mut client, SUBJECT, "$external")?;
    let wrong = with_certificate(servers, file, &[("tlsCertificateKeyFilePassword", "wrong")])?;
    let error = expect::error(wrong, "the key's password is wrong")?;
    expect::equal(error.phase(), Some(Phase::Tls), "phase")
}

pub(super) fn wrong_password(servers: &Servers) -> Result<(), Mismatch> {
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let connected = servers.connect("auth", "user:wrong@", &[("authMechanism", mechanism)])?;
        expect::code(connected, 18, "the password is wrong")?;
    }
    expect::code(servers.connect("auth", "nobody:secret@", &[])?, 18, "there is no such user")?;
    let mut nobody = servers.connect("auth", "", &[])??;
    expect::code(nobody.insert("logins", &[rawdoc! {}]), 13, "nobody logged in")
}

pub(super) fn unknown_x509_user(servers: &Servers) -> Result<(), Mismatch> {
    let error = expect::error(with_certificate(servers, "stranger.pem", &[])?, "there is no such user")?;
    expect::equal(error.phase(), Some(Phase::Authenticate), "phase")
}

pub(super) fn create_user(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.connect("auth", USER, &[])??;
    client.run("users", &rawdoc! { "dropAllUsersFromDatabase": 1 })?;
    let role = rawdoc! { "role": "readWrite", "db": "users" };
    let user = rawdoc! { "createUser": "new", "pwd": "p\u{e4}ss", "roles": [role], "mechanisms": ["SCRAM-SHA-256"] };
    client.run("users", &user)?;
    let login = format!("new:{}@", encoded("p\u{e4}ss"));
    let mut client = servers.connect("auth", &login, &[("authSource", "users")])??;
    logged_in(&mut client, "new", "users")
}

fn with_certificate(
    servers: &Servers,
    file: &str,
    more: Options<'_>,
) -> Result<Result<Client, crate::tools::interop::cmap::client::ClientError>, Mismatch> {
    let (ca, certificate) = (servers.certificate("tls", "ca.pem")?, servers.certificate("tls", file)?);
    let mut options = vec![("tls", "true"), ("authMechanism", "MONGODB-X509")];
    options.extend([("tlsCAFile", &*ca), ("tlsCertificateKeyFile", &*certificate)]);
    options.extend(more);
    servers.connect("tls", "", &options)
}

/// The client's certificate is its login, and the server accepts only names that it knows.
fn logged_in(client: &mut Client, user: &str, database: &str) -> Result<(), Mismatch> {
    let status = client.run("admin", &rawdoc! { "connectionStatus": 1 })?;
    let users = status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUsers")).ok();
    let users: Vec<_> = users.into_iter().flatten().filter_map(|user| user.as_document().map(sorted)).collect();
    expect::equal(users, vec![sorted(&doc! { "user": user, "db": database })], "authenticated users")?;
    if database != "users" {
        client.insert("logins", &[rawdoc! { "user": user }])?;
    }
    Ok(())
}

fn sorted(document: &Document) -> Vec<(String, String)> {
    let mut fields: Vec<_> = document.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    fields.sort();
    fields
}
