//! Known conversations, to the byte: the examples of RFC 5802 and RFC 7677, and some whose passwords MongoDB's mechanisms
//! change first, computed by Python's hashlib. Each side is held to them alone.

use super::*;
use crate::connection::auth::{ClientFault, ScramLogin, StoredKeys};
use crate::options::Secret;

struct Vector {
    client_nonce: &'static str,
    server_nonce: &'static str,
    salt: &'static [u8],
    iterations: u32,
    client_first: &'static str,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

/// RFC 5802, section 5.
const RFC_5802: Vector = Vector {
    client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
    server_nonce: "3rfcNHYJY1ZVvWVs7j",
    salt: b"\x41\x25\xc2\x47\xe4\x3a\xb1\xe9\x3c\x6d\xff\x76",
    iterations: 4096,
    client_first: "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    server_final: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
};

/// RFC 7677, section 3.
const RFC_7677: Vector = Vector {
    client_nonce: "rOprNGfwEbeRWgbNEkqO",
    server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    salt: b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81",
    iterations: 4096,
    client_first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

/// MongoDB's SCRAM-SHA-1: `user` with the password `pencil`, digested (AUTH-11).
const MONGODB_SHA_1: Vector = Vector {
    client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
    server_nonce: "3rfcNHYJY1ZVvWVs7j",
    salt: b"mongo salt 16 by",
    iterations: 10_000,
    client_first: "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=bW9uZ28gc2FsdCAxNiBieQ==,i=10000",
    client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=c+EP1rEbKiCrJUQAm6VLYXIp/As=",
    server_final: "v=zhFjtyzEU3a2dA8ICO/BvEgJJ08=",
};

/// The user `a=b,c` with the password U+2168: SHA-1 digests both as they are (AUTH-11).
const UNPREPARED_SHA_1: Vector = Vector {
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqOserver,p=eqpzgXfbK6YIXprq8USta1iVKps=",
    server_final: "v=cm0msM+jb29DGthi+jdseHPOrzc=",
    ..PREPARED_SHA_256
};

/// The user `a=b,c` with the password U+2168, by SHA-256: SASLprep makes `IX` of the password, and the name stays (AUTH-12).
const PREPARED_SHA_256: Vector = Vector {
    client_nonce: "rOprNGfwEbeRWgbNEkqO",
    server_nonce: "server",
    salt: b"mongo salt",
    iterations: 4096,
    client_first: "n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqOserver,s=bW9uZ28gc2FsdA==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqOserver,p=1deWIlsWaK6bGB/X+YFRMqvDRDSDi9KdFyRYGGKrNdg=",
    server_final: "v=mbAu6kPxChfNTcXaV7SoNthw4kDVUvO5mfVPAxAvugo=",
};

impl Vector {
    fn check_client(&self, mut client: ScramClient) {
        assert_eq!(text(client.first()), self.client_first);
        let step = reply(&mut client, self.server_first).unwrap();
        assert_eq!(text(&derive(&mut client, step)), self.client_final);

        let step = client.handle_reply(Reply::new(self.server_final.as_bytes(), true));
        assert!(matches!(step, Ok(Step::Done)), "{step:?}");
    }

    fn check_server(&self, keys: &StoredKeys, username: &str) {
        let login = ScramLogin::parse(self.client_first.as_bytes()).unwrap();
        assert_eq!(login.username(), username);

        let (verifier, server_first) = login.challenge(&Nonce::from_text(self.server_nonce), keys);
        assert_eq!(server_first, self.server_first);

        assert_eq!(verifier.verify(self.client_final.as_bytes()).as_deref(), Ok(self.server_final));
    }

    /// SCRAM as it is.
    fn check_raw(&self, hash: ScramHash) {
        let password = SecretBytes::copy_of(b"pencil");
        self.check_client(client(hash, self.client_nonce));
        self.check_server(&StoredKeys::with_prepared(hash, &password, self.salt, self.iterations), "user");
    }

    /// SCRAM as MongoDB speaks it.
    fn check_prepared(&self, hash: ScramHash, username: &str, password: &str) {
        let (password, nonce) = (Secret::from(password), Nonce::from_text(self.client_nonce));
        self.check_client(ScramClient::new(hash, username, &password, nonce, MAX_ITERATIONS).unwrap());
        let keys = StoredKeys::new(hash, username, &password, self.salt, self.iterations).unwrap();
        self.check_server(&keys, username);
    }
}

#[test]
fn scram_sha_1_speaks_as_rfc_5802_says() {
    RFC_5802.check_raw(ScramHash::Sha1);
}

#[test]
fn scram_sha_256_speaks_as_rfc_7677_says() {
    RFC_7677.check_raw(ScramHash::Sha256);
    RFC_7677.check_prepared(ScramHash::Sha256, "user", "pencil");
}

#[test]
fn mongodb_digests_the_password_of_sha_1() {
    MONGODB_SHA_1.check_prepared(ScramHash::Sha1, "user", "pencil");
    UNPREPARED_SHA_1.check_prepared(ScramHash::Sha1, "a=b,c", "\u{2168}");
}

#[test]
fn saslprep_changes_the_password_of_sha_256_and_not_the_name() {
    for password in ["\u{2168}", "IX", "I\u{AD}X"] {
        PREPARED_SHA_256.check_prepared(ScramHash::Sha256, "a=b,c", password);
    }
}

#[test]
fn one_wrong_bit_of_the_proof_is_enough() {
    let Vector { server_nonce, salt, iterations, client_first, client_final, .. } = RFC_7677;
    let keys = StoredKeys::new(ScramHash::Sha256, "user", &"pencil".into(), salt, iterations).unwrap();
    let login = ScramLogin::parse(client_first.as_bytes()).unwrap();
    let (verifier, _) = login.challenge(&Nonce::from_text(server_nonce), &keys);
    let wrong = client_final.replace("p=dHzb", "p=dHzc");

    assert_eq!(verifier.verify(wrong.as_bytes()).unwrap_err(), ClientFault::Proof);
}
