//! Every way in which a client's message can be wrong, each with its own error.

use cmap_core::connection::auth::{MAX_MESSAGE, ScramHash};

use crate::auth::{ClientFault, Malformed, Message, ScramLogin, ScramVerifier, StoredCredential};

#[test]
fn a_wrong_client_first_is_refused() {
    let malformed = |problem| ClientFault::Malformed { message: Message::ClientFirst, problem };
    for (payload, fault) in [
        (&b""[..], malformed(Malformed::Header)),
        (b"n,", malformed(Malformed::Header)),
        (b"x,,n=user,r=abc", malformed(Malformed::Header)),
        (b"n,x,n=user,r=abc", malformed(Malformed::Header)),
        (b"n,,n=\xff,r=abc", malformed(Malformed::NotUtf8)),
        (b"n,,r=abc", malformed(Malformed::Attribute('n'))),
        (b"n,,n=,r=abc", malformed(Malformed::Attribute('n'))),
        (b"n,,n=us=er,r=abc", malformed(Malformed::Username)),
        (b"n,,n=user", malformed(Malformed::Attribute('r'))),
        (b"n,,n=user,r=a\x07", malformed(Malformed::Nonce)),
        (b"n,,n=user,r=abc,", malformed(Malformed::Extension)),
        (b"n,,m=x,n=user,r=abc", malformed(Malformed::MandatoryExtension)),
        (&[b'n'; MAX_MESSAGE + 1], malformed(Malformed::TooLong)),
        (b"y,,n=user,r=abc", ClientFault::ChannelBinding),
        (b"p=tls-unique,,n=user,r=abc", ClientFault::ChannelBinding),
        (b"n,a=root,n=user,r=abc", ClientFault::AuthorizationIdentity),
    ] {
        let error = ScramLogin::parse(payload).unwrap_err();
        assert_eq!(error, fault, "{}", String::from_utf8_lossy(payload));
    }
}

#[test]
fn a_wrong_client_final_is_refused() {
    let malformed = |problem| ClientFault::Malformed { message: Message::ClientFinal, problem };
    let verifier = || -> ScramVerifier {
        let credential = StoredCredential::with_salted(ScramHash::Sha1, &[0; 20], b"salt", 4096);
        let login = ScramLogin::parse(b"n,,n=user,r=abc").unwrap();
        login.challenge("def", &credential).0
    };
    for (payload, fault) in [
        (&b""[..], malformed(Malformed::Attribute('p'))),
        (b"c=biws,r=abcdef", malformed(Malformed::Attribute('p'))),
        (b"r=abcdef,p=AAAA", malformed(Malformed::Attribute('c'))),
        (b"c=biws,p=AAAA", malformed(Malformed::Attribute('r'))),
        (b"c=biws,r=abcdef,x,p=AAAA", malformed(Malformed::Extension)),
        (b"c=biws,r=abcdef,p=AAAA,x=y", malformed(Malformed::Proof)),
        (b"c=biws,r=abcdef,p=AAAA", malformed(Malformed::Proof)),
        (b"c=biws,r=\xff,p=AAAA", malformed(Malformed::NotUtf8)),
        (&[b'c'; MAX_MESSAGE + 1], malformed(Malformed::TooLong)),
        (b"c=eSws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::ChannelBinding),
        (b"c=biws,r=abcdeg,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::Nonce),
        (b"c=biws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::Proof),
    ] {
        let error = verifier().verify(payload).unwrap_err();
        assert_eq!(error, fault, "{}", String::from_utf8_lossy(payload));
    }
}
