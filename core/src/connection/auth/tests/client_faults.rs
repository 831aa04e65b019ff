//! Every way in which a client's message can be wrong, as the server's side answers it.

use super::super::{ClientFault, MAX_MESSAGE, ScramLogin, StoredKeys};
use super::*;

#[test]
fn a_wrong_client_first_is_refused() {
    for (payload, fault) in [
        (&b""[..], ClientFault::Malformed),
        (b"n,", ClientFault::Malformed),
        (b"x,,n=user,r=abc", ClientFault::Malformed),
        (b"n,x,n=user,r=abc", ClientFault::Malformed),
        (b"n,,n=\xff,r=abc", ClientFault::Malformed),
        (b"n,,r=abc", ClientFault::Malformed),
        (b"n,,n=,r=abc", ClientFault::Malformed),
        (b"n,,n=us=er,r=abc", ClientFault::Malformed),
        (b"n,,n=us=2cer,r=abc", ClientFault::Malformed),
        (b"n,,n=user", ClientFault::Malformed),
        (b"n,,n=user,r=a\x07", ClientFault::Malformed),
        (b"n,,n=user,r=abc,", ClientFault::Malformed),
        (b"n,,n=user,r=abc,m=x", ClientFault::Malformed),
        (b"n,,m=x,n=user,r=abc", ClientFault::Malformed),
        (&[b'n'; MAX_MESSAGE + 1], ClientFault::Malformed),
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
    let keys = StoredKeys::with_prepared(ScramHash::Sha1, &SecretBytes::copy_of(b"pencil"), b"salt", 1);
    for (payload, fault) in [
        (&b""[..], ClientFault::Malformed),
        (b"c=biws,r=abcdef", ClientFault::Malformed),
        (b"r=abcdef,p=AAAA", ClientFault::Malformed),
        (b"c=biws,p=AAAA", ClientFault::Malformed),
        (b"c=biws,r=abcdef,x,p=AAAA", ClientFault::Malformed),
        (b"c=biws,r=abcdef,p=AAAA,x=y", ClientFault::Malformed),
        (b"c=biws,r=abcdef,p=AAAA", ClientFault::Malformed),
        (b"c=biws,r=\xff,p=AAAA", ClientFault::Malformed),
        (&[b'c'; MAX_MESSAGE + 1], ClientFault::Malformed),
        (b"c=eSws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::ChannelBinding),
        (b"c=biws,r=abcdeg,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::Nonce),
        (b"c=biws,r=abcdef,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ClientFault::Proof),
    ] {
        let login = ScramLogin::parse(b"n,,n=user,r=abc").unwrap();
        let (verifier, _) = login.challenge(&Nonce::from_text("def"), &keys);
        let error = verifier.verify(payload).unwrap_err();
        assert_eq!(error, fault, "{}", String::from_utf8_lossy(payload));
    }
}
