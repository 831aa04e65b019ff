//! Known conversations, to the byte: the examples of RFC 5802 and RFC 7677, and some whose passwords MongoDB's mechanisms
//! change first, computed by Python's hashlib. The server of tests is held to the same.

use super::*;
use crate::options::Secret;

struct Vector {
    client_nonce: &'static str,
    client_first: &'static str,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

/// RFC 5802, section 5.
const RFC_5802: Vector = Vector {
    client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
    client_first: "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    server_final: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
};

/// RFC 7677, section 3.
const RFC_7677: Vector = Vector {
    client_nonce: "rOprNGfwEbeRWgbNEkqO",
    client_first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

/// MongoDB's SCRAM-SHA-1: `user` with the password `pencil`, digested (AUTH-11).
const MONGODB_SHA_1: Vector = Vector {
    client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
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

/// The same with SHA-256: SASLprep makes `IX` of the password, and the name stays (AUTH-12).
const PREPARED_SHA_256: Vector = Vector {
    client_nonce: "rOprNGfwEbeRWgbNEkqO",
    client_first: "n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqOserver,s=bW9uZ28gc2FsdA==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqOserver,p=1deWIlsWaK6bGB/X+YFRMqvDRDSDi9KdFyRYGGKrNdg=",
    server_final: "v=mbAu6kPxChfNTcXaV7SoNthw4kDVUvO5mfVPAxAvugo=",
};

impl Vector {
    fn check(&self, mut client: ScramClient) {
        assert_eq!(text(client.first()), self.client_first);
        let step = reply(&mut client, self.server_first).unwrap();
        assert_eq!(text(&derive(&mut client, step)), self.client_final);

        let step = client.handle_reply(Reply::new(self.server_final.as_bytes(), true));
        assert!(matches!(step, Ok(Step::Done)), "{step:?}");
    }

    /// SCRAM as it is.
    fn check_raw(&self, hash: ScramHash) {
        self.check(client(hash, self.client_nonce));
    }

    /// SCRAM as MongoDB speaks it.
    fn check_prepared(&self, hash: ScramHash, username: &str, password: &str) {
        let (password, nonce) = (Secret::from(password), Nonce::from_text(self.client_nonce));
        self.check(ScramClient::new(hash, username, &password, nonce, MAX_ITERATIONS).unwrap());
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
