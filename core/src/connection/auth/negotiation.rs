//! From a credential to a conversation: the hello asks for the mechanisms and carries the first command along, and its
//! reply decides what comes next.
//!
//! A speculation that succeeds saves a round trip; one that is ignored costs nothing, because the same first command is
//! sent again on its own.

use alloc::string::String;
use alloc::sync::Arc;

use super::conversation::{Conversation, First, Reply, Step};
use super::error::{AuthError, LoginError};
use super::scram::Nonce;
use crate::options::{Credential, Mechanism};

/// The authentication of one connection, up to the reply to its hello.
#[derive(Debug)]
pub struct Authentication {
    credential: Arc<Credential>,
    nonce: Nonce,
    max_iterations: u32,
    speculation: Option<Conversation>,
}

/// The state of the authentication after the hello.
#[derive(Debug)]
#[must_use]
pub enum Opening {
    /// Send the conversation's [`first`](Conversation::first) command.
    Start(Conversation),
    /// The speculation was accepted: go on with the step.
    Continue(Conversation, Step),
}

impl Authentication {
    /// Prepares the hello of a new connection, whose server may ask for at most `max_iterations` of SCRAM's hash. A
    /// credential that its mechanism cannot use fails here, before anything is sent.
    pub fn new(credential: Arc<Credential>, nonce: Nonce, max_iterations: u32) -> Result<Self, LoginError> {
        let begin = |mechanism| Conversation::new(mechanism, &credential, nonce.clone(), max_iterations);
        let conversation = match credential.mechanism {
            Some(mechanism) => begin(mechanism).map(Some),
            // AUTH-9. A password that SASLprep prohibits may still be right for SCRAM-SHA-1: the server's list decides.
            None => match begin(Mechanism::ScramSha256) {
                Err(LoginError::PasswordProhibited) => Ok(None),
                other => other.map(Some),
            },
        };
        let speculation = conversation?.filter(|conversation| can_speculate(conversation.mechanism()));
        Ok(Self { credential, nonce, max_iterations, speculation })
    }

    /// The hello's `saslSupportedMechs`, if the mechanism is open (AUTH-6).
    pub fn sasl_supported_mechs(&self) -> Option<String> {
        let username = self.credential.username.as_deref().unwrap_or_default();
        self.credential.mechanism.is_none().then(|| alloc::format!("{}.{username}", self.credential.source))
    }

    /// The hello's `speculativeAuthenticate`, if any (AUTH-9, AUTH-10). SCRAM's has the field `db` in addition: the
    /// credential's source.
    pub fn speculative(&self) -> Option<First<'_>> {
        self.speculation.as_ref().map(Conversation::first)
    }

    /// The reply to the hello came, with its `saslSupportedMechs` and `speculativeAuthenticate` if it has them.
    ///
    /// An accepted speculation goes on at its next step (AUTH-10). Otherwise the conversation is the one that the
    /// credential or the server's list calls for (AUTH-7), with the payload of the speculation if that was the one.
    pub fn handle_hello<'a>(
        self,
        supported: Option<impl IntoIterator<Item = &'a str>>,
        speculative: Option<Reply<'_>>,
    ) -> Result<Opening, AuthError> {
        let Self { credential, nonce, max_iterations, speculation } = self;
        let speculation = match (speculation, speculative) {
            (Some(mut conversation), Some(reply)) => {
                let step = conversation.handle_reply(reply)?;
                return Ok(Opening::Continue(conversation, step));
            }
            // An answer to a speculation that was not sent means nothing.
            (speculation, _) => speculation,
        };
        let mechanism = credential.mechanism.unwrap_or_else(|| negotiated(supported));
        match speculation {
            Some(conversation) if conversation.mechanism() == mechanism => Ok(Opening::Start(conversation)),
            // The nonce has been sent, but nothing has ever answered it: it is as good as new.
            Some(_) | None => Ok(Opening::Start(Conversation::new(mechanism, &credential, nonce, max_iterations)?)),
        }
    }
}

/// The mechanism for a user who named none (AUTH-7): SCRAM-SHA-256 if the server's `saslSupportedMechs` lists it,
/// otherwise SCRAM-SHA-1, also if the list is absent; never another. Unknown entries mean nothing (AUTH-8).
fn negotiated<'a>(supported: Option<impl IntoIterator<Item = &'a str>>) -> Mechanism {
    let [sha_1, sha_256] = [Mechanism::ScramSha1, Mechanism::ScramSha256];
    let listed = supported.is_some_and(|list| list.into_iter().any(|name| name == sha_256.name()));
    if listed { sha_256 } else { sha_1 }
}

/// Whether the first command may travel inside the hello (AUTH-10). PLAIN's may not: servers do not know it there.
fn can_speculate(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::ScramSha1 | Mechanism::ScramSha256 | Mechanism::MongoDbX509)
}

#[cfg(test)]
#[cfg(feature = "auth")]
mod tests {
    use alloc::string::ToString;

    use super::super::MAX_ITERATIONS;
    use super::*;
    use crate::options::CredentialError;

    fn authentication(credential: Credential) -> Authentication {
        Authentication::new(Arc::new(credential), Nonce::from_random([7; Nonce::RANDOM_BYTES]), MAX_ITERATIONS).unwrap()
    }

    fn credential(password: &str) -> Credential {
        Credential::new("us.er", password.into(), "db")
    }

    fn payload(first: First<'_>) -> alloc::vec::Vec<u8> {
        match first {
            First::SaslStart { payload, .. } => payload.as_bytes().to_vec(),
            First::Authenticate { .. } => panic!("{first:?}"),
        }
    }

    fn started(opening: Opening) -> Conversation {
        match opening {
            Opening::Start(conversation) => conversation,
            Opening::Continue(..) => panic!("{opening:?}"),
        }
    }

    #[test]
    fn an_open_mechanism_is_asked_for_and_sha_256_speculated_on() {
        let authentication = authentication(credential("pencil"));

        assert_eq!(authentication.sasl_supported_mechs().as_deref(), Some("db.us.er"));
        let First::SaslStart { mechanism, skip_empty_exchange, .. } = authentication.speculative().unwrap() else {
            panic!("SCRAM starts with saslStart");
        };
        assert_eq!((mechanism, skip_empty_exchange), (Mechanism::ScramSha256, true));
    }

    #[test]
    fn an_ignored_speculation_is_sent_again_if_the_mechanism_is_right() {
        let sha_256 = authentication(credential("pencil"));
        let speculated = payload(sha_256.speculative().unwrap());
        let conversation = started(sha_256.handle_hello(Some(["SCRAM-SHA-256"]), None).unwrap());
        assert_eq!(payload(conversation.first()), speculated);

        let sha_1 = authentication(credential("pencil"));
        let conversation = started(sha_1.handle_hello(None::<[&str; 0]>, None).unwrap());
        assert_eq!(conversation.mechanism(), Mechanism::ScramSha1);
    }

    #[test]
    fn an_accepted_speculation_goes_on() {
        let authentication = authentication(credential("pencil"));
        let first = payload(authentication.speculative().unwrap());
        let nonce = core::str::from_utf8(&first).unwrap().rsplit_once("r=").unwrap().1;
        let server_first = alloc::format!("r={nonce}x,s=c2FsdA==,i=4096");

        let opening =
            authentication.handle_hello(Some([""]), Some(Reply::new(server_first.as_bytes(), false))).unwrap();
        assert!(matches!(opening, Opening::Continue(_, Step::Derive(_))), "{opening:?}");
    }

    #[test]
    fn a_password_that_only_sha_1_allows_is_not_speculated_with() {
        let open = || authentication(credential("be\u{7}ll"));
        assert!(open().speculative().is_none());

        let conversation = started(open().handle_hello(Some(["SCRAM-SHA-1"]), None).unwrap());
        assert_eq!(conversation.mechanism(), Mechanism::ScramSha1);
        let error = open().handle_hello(Some(["SCRAM-SHA-256"]), None).unwrap_err();
        assert_eq!(error, LoginError::PasswordProhibited.into());
    }

    #[test]
    fn a_named_mechanism_is_honoured_and_plain_never_speculated_on() {
        for (mechanism, speculates) in
            [(Mechanism::ScramSha1, true), (Mechanism::ScramSha256, true), (Mechanism::Plain, false)]
        {
            let authentication = authentication(credential("pencil").with_mechanism(mechanism));
            assert_eq!(authentication.sasl_supported_mechs(), None);
            assert_eq!(authentication.speculative().is_some(), speculates, "{mechanism:?}");

            let conversation = started(authentication.handle_hello(Some(["SCRAM-SHA-256"]), None).unwrap());
            assert_eq!(conversation.mechanism(), mechanism);
        }
    }

    #[test]
    fn a_certificate_may_name_its_user_and_is_accepted_in_the_hello() {
        for user in [None, Some("CN=client")] {
            let authentication = authentication(Credential::x509(user.map(String::from)));
            assert_eq!(authentication.speculative(), Some(First::Authenticate { user }));

            let opening = authentication.handle_hello(None::<[&str; 0]>, Some(Reply::AUTHENTICATED)).unwrap();
            assert!(matches!(opening, Opening::Continue(_, Step::Done)), "{opening:?}");
        }
    }

    #[test]
    fn an_unusable_credential_fails_before_anything_is_sent() {
        let no_password = Credential { password: None, ..credential("") };
        let with_password = credential("pencil").with_mechanism(Mechanism::MongoDbX509);
        let prohibited = credential("be\u{7}ll").with_mechanism(Mechanism::ScramSha256);
        let nobody = CredentialError::NoUsername { mechanism: None, rule: "AUTH-18" };
        let password_given = CredentialError::PasswordGiven { mechanism: Mechanism::MongoDbX509 };
        for (credential, error) in [
            (Credential { username: None, ..credential("pencil") }, nobody.into()),
            (Credential::new("", "pencil".into(), "db"), nobody.into()),
            (Credential::x509(Some(String::new())), CredentialError::EmptyUsername.into()),
            (Credential::new("a\0b", "pencil".into(), "db"), CredentialError::NulInUsername.into()),
            (Credential::x509(Some("a\0b".into())), CredentialError::NulInUsername.into()),
            (no_password, CredentialError::NoPassword { mechanism: None }.into()),
            (with_password, password_given.into()),
            (prohibited, LoginError::PasswordProhibited),
        ] {
            let nonce = Nonce::from_random([7; Nonce::RANDOM_BYTES]);
            assert_eq!(Authentication::new(Arc::new(credential), nonce, MAX_ITERATIONS).unwrap_err(), error);
        }
    }

    #[test]
    fn a_mechanism_that_nobody_can_carry_out_is_refused_with_those_that_can_be_used() {
        for (mechanism, name) in [
            (Mechanism::Gssapi, "GSSAPI"),
            (Mechanism::MongoDbAws, "MONGODB-AWS"),
            (Mechanism::MongoDbOidc, "MONGODB-OIDC"),
        ] {
            let nonce = Nonce::from_random([7; Nonce::RANDOM_BYTES]);
            let credential = Arc::new(credential("pencil").with_mechanism(mechanism));
            let error = Authentication::new(credential, nonce, MAX_ITERATIONS).unwrap_err();

            assert_eq!(error, LoginError::NotCarriedOut { mechanism });
            let message = error.to_string();
            for part in [name, "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "MONGODB-X509"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn sha_256_is_chosen_if_listed_and_sha_1_otherwise() {
        for (supported, chosen) in [
            (Some(&["SCRAM-SHA-1", "SCRAM-SHA-256"][..]), Mechanism::ScramSha256),
            (Some(&["SCRAM-SHA-256"]), Mechanism::ScramSha256),
            (Some(&["SCRAM-SHA-1"]), Mechanism::ScramSha1),
            (Some(&["PLAIN", "", "SCRAM-SHA-512"]), Mechanism::ScramSha1),
            (Some(&[]), Mechanism::ScramSha1),
            (None, Mechanism::ScramSha1),
        ] {
            assert_eq!(negotiated(supported.map(|list| list.iter().copied())), chosen, "{supported:?}");
        }
    }
}
