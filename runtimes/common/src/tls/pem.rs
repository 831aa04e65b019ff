//! Reading PEM files: the sections between `-----BEGIN` and `-----END` lines.
//!
//! A certificate and its private key are in one file (TLS-4), so the text may be secret: every buffer is wiped. Text
//! around the sections is skipped, as OpenSSL does, and so are sections of other kinds. A key that is encrypted in the
//! old way, by a `Proc-Type` line inside its section, has its own variant so that its owner can be told what to do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::config_error::PemProblem;

/// The content of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Certificate,
    /// An RSA key on its own.
    Pkcs1Key,
    /// An elliptic curve's key on its own.
    Sec1Key,
    Pkcs8Key,
    EncryptedPkcs8Key,
    /// A key whose section has encryption headers before the content; the content is left out.
    LegacyEncryptedKey,
}

/// One section.
pub(super) struct Section {
    pub(super) kind: Kind,
    pub(super) der: Zeroizing<Vec<u8>>,
}

/// The sections of `text`, in their order, without those of unused kinds.
pub(super) fn sections(text: &[u8]) -> Result<Vec<Section>, PemProblem> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut lines = (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii));
    let mut sections = Vec::new();
    while let Some((line, text_of_line)) = lines.next() {
        if let Some(label) = label(text_of_line, b"-----BEGIN ") {
            sections.extend(section(label, line, &mut lines)?);
        }
    }
    Ok(sections)
}

/// The section that began with `label` in line `begin`; `None` if it is of another kind.
fn section<'a>(
    label: &[u8],
    begin: usize,
    lines: &mut (impl Iterator<Item = (usize, &'a [u8])> + Clone),
) -> Result<Option<Section>, PemProblem> {
    // Never reallocated, so no copy is left behind; and no longer than the section, because all of it is wiped.
    let content = lines.clone().take_while(|(_, line)| self::label(line, b"-----END ").is_none());
    let mut base64 = Zeroizing::new(Vec::with_capacity(content.map(|(_, line)| line.len()).sum()));
    let mut encrypted = false;
    for (_, line) in lines {
        if let Some(end) = self::label(line, b"-----END ") {
            if end != label {
                break;
            }
            return match kind(label) {
                None => Ok(None),
                Some(_) if encrypted => {
                    Ok(Some(Section { kind: Kind::LegacyEncryptedKey, der: Zeroizing::new(Vec::new()) }))
                }
                Some(kind) => Ok(Some(Section { kind, der: decode(&base64, begin)? })),
            };
        }
        if line.contains(&b':') {
            encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
        } else {
            base64.extend_from_slice(line);
        }
    }
    Err(PemProblem::NotEnded { line: begin })
}

/// The label of a line that starts a section or ends one.
fn label<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(prefix)?.strip_suffix(b"-----")
}

fn kind(label: &[u8]) -> Option<Kind> {
    match label {
        b"CERTIFICATE" => Some(Kind::Certificate),
        b"RSA PRIVATE KEY" => Some(Kind::Pkcs1Key),
        b"EC PRIVATE KEY" => Some(Kind::Sec1Key),
        b"PRIVATE KEY" => Some(Kind::Pkcs8Key),
        b"ENCRYPTED PRIVATE KEY" => Some(Kind::EncryptedPkcs8Key),
        _ => None,
    }
}

fn decode(base64: &[u8], line: usize) -> Result<Zeroizing<Vec<u8>>, PemProblem> {
    let mut der = Zeroizing::new(vec![0; base64.len() / 4 * 3 + 3]);
    let length = STANDARD.decode_slice(base64, &mut der).map_err(|_| PemProblem::NotBase64 { line })?;
    der.truncate(length);
    Ok(der)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        sections(text.as_bytes()).unwrap().iter().map(|section| section.kind).collect()
    }

    #[test]
    fn text_around_the_sections_and_other_sections_are_skipped() {
        let text = "\u{feff}Bag Attributes: x\r\n  -----BEGIN CERTIFICATE-----\r\n  AQ\r\n==\r\n-----END CERTIFICATE-----\r\n\
                    -----BEGIN EC PARAMETERS-----\n!\n-----END EC PARAMETERS-----\n\
                    -----BEGIN EC PRIVATE KEY-----\nAgM=\n-----END EC PRIVATE KEY-----";

        let found = sections(text.as_bytes()).unwrap();

        assert_eq!(kinds(text), [Kind::Certificate, Kind::Sec1Key]);
        assert_eq!(*found[0].der, [1]);
        assert_eq!(*found[1].der, [2, 3]);
    }

    #[test]
    fn a_key_encrypted_in_the_old_way_is_told_apart() {
        let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAQ==\n\
                    -----END RSA PRIVATE KEY-----\n";

        assert_eq!(kinds(text), [Kind::LegacyEncryptedKey]);
    }

    #[test]
    fn a_file_of_twenty_thousand_sections_is_read_in_linear_time() {
        // Each section wiped a buffer of the file's length once: 24 GB.
        let text = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n".repeat(20_000);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(sections(text.as_bytes()).unwrap().len()));

        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(20_000));
    }

    #[test]
    fn a_damaged_section_is_named_by_its_line() {
        let not_ended = sections(b"\n-----BEGIN PRIVATE KEY-----\nAQ==\n").err().unwrap();
        let not_base64 = sections(b"-----BEGIN PRIVATE KEY-----\n?\n-----END PRIVATE KEY-----").err().unwrap();
        let cut_short = sections(b"-----BEGIN PRIVATE KEY-----\n-----END CERTIFICATE-----").err().unwrap();

        assert!(matches!(not_ended, PemProblem::NotEnded { line: 2 }), "{not_ended}");
        assert!(matches!(not_base64, PemProblem::NotBase64 { line: 1 }), "{not_base64}");
        assert!(matches!(cut_short, PemProblem::NotEnded { line: 1 }), "{cut_short}");
    }
}
