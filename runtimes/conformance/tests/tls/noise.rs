//! No bytes of a server, and no PEM file, cause a panic or keep the client busy for ever.

use cmap_core::options::{Secret, TlsOptions};
use cmap_runtime::tls::{PemTexts, Progress, TlsConfig, TlsSession};
use proptest::prelude::*;

use super::handshake::HOST;

fn hear(data: &[u8], size: usize) {
    let mut options = TlsOptions::default();
    options.insecure = Some(true);
    let mut session = TlsSession::new(&TlsConfig::new(&options).unwrap(), HOST).unwrap();
    let (mut sent, mut plaintext) = (Vec::new(), [0; 64]);
    for mut piece in data.chunks(size) {
        while !piece.is_empty() {
            let before = piece.len();
            while session.wants_write() {
                assert_eq!(session.send_to(&mut sent).ok(), Some(Progress::Moved), "a vector takes everything");
            }
            match session.receive_from(&mut piece) {
                Ok(_) => while matches!(session.read(&mut plaintext), Ok(Some(1..))) {},
                Err(error) => {
                    assert!(!error.establish_error().message.is_empty());
                    assert!(session.write(b"more").is_err() || session.is_handshaking());
                    return;
                }
            }
            assert!(piece.len() < before, "nothing was received");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_server_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..128) {
        hear(&bytes, size);
    }

    #[test]
    fn no_records_of_a_server_cause_a_panic(
        size in 1_usize..128,
        records in prop::collection::vec((20_u8..25, prop::collection::vec(any::<u8>(), 0..80)), 0..6),
    ) {
        let mut bytes = Vec::new();
        for (kind, content) in records {
            bytes.extend_from_slice(&[kind, 3, 3, 0, u8::try_from(content.len()).unwrap()]);
            bytes.extend_from_slice(&content);
        }
        hear(&bytes, size);
    }

    #[test]
    fn no_bytes_of_a_file_cause_a_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut options = TlsOptions::default();
        options.certificate_key_file_password = Some(Secret::from("secret"));
        let (mut authorities, mut certificate_key) = (PemTexts::default(), PemTexts::default());
        authorities.authorities = Some(&text);
        certificate_key.certificate_key = Some(&text);

        let _ = TlsConfig::with_pem(&options, authorities).map_err(|error| error.to_string());
        options.insecure = Some(true);
        let _ = TlsConfig::with_pem(&options, certificate_key).map_err(|error| error.to_string());
    }
}
