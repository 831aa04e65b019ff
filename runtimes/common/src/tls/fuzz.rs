//! The entry for fuzzers: [`run`] takes any bytes as a server's messages, and as a PEM file.
//!
//! A panic here is a defect, and so is a loop that does not end.

use cmap_core::options::{Secret, TlsOptions};

use super::config::{PemTexts, TlsConfig};
use super::session::{Progress, TlsSession};

/// Treats `data` as PEM text, and as the bytes of a server that come in pieces.
pub fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    if choice % 2 == 0 { pem(data) } else { server(data, usize::from(choice / 2) + 1) }
}

fn pem(text: &[u8]) {
    let mut options = TlsOptions::default();
    options.certificate_key_file_password = Some(Secret::from("secret"));
    let texts = PemTexts { authorities: Some(text), certificate_key: None };
    let _authorities = TlsConfig::with_pem(&options, texts).map_err(|error| error.to_string());
    options.insecure = Some(true);
    let texts = PemTexts { authorities: None, certificate_key: Some(text) };
    let _certificate_key = TlsConfig::with_pem(&options, texts).map_err(|error| error.to_string());
}

fn server(data: &[u8], size: usize) {
    let mut options = TlsOptions::default();
    options.insecure = Some(true);
    let Ok(config) = TlsConfig::new(&options) else { return };
    let Ok(mut session) = TlsSession::new(&config, "db.example") else { return };
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
