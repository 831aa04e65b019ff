//! The checks by name. Each connects anew.

mod adapters;
mod authentication;
mod commands;
mod compression;
mod cursors;
mod fail_points;
mod sets;
mod sharing;
mod tls;
mod topologies;

use super::Check;

/// The check of this name.
pub(super) fn by_name(name: &str) -> Option<Check> {
    Some(match name {
        "scram-sha-1" => authentication::scram_sha_1,
        "scram-sha-256" => authentication::scram_sha_256,
        "scram-sha-256-saslprep" => authentication::scram_sha_256_saslprep,
        "scram-default" => authentication::scram_default,
        "plain" => authentication::plain,
        "x509" => authentication::x509,
        "encrypted-client-key" => authentication::encrypted_client_key,
        "wrong-password" => authentication::wrong_password,
        "unknown-x509-user" => authentication::unknown_x509_user,
        "create-user" => authentication::create_user,
        "wrong-certificate" => tls::wrong_certificate,
        "wrong-host-name" => tls::wrong_host_name,
        "compressor-snappy" => compression::snappy,
        "compressor-zlib" => compression::zlib,
        "compressor-zstd" => compression::zstd,
        "ping" => commands::ping,
        "crud" => commands::crud,
        "unknown-command" => commands::unknown_command,
        "unacknowledged-write" => commands::unacknowledged_write,
        "large-document" => commands::large_document,
        "too-large-document" => commands::too_large_document,
        "large-batch" => commands::large_batch,
        "cursor-get-mores" => cursors::get_mores,
        "kill-cursors" => cursors::kill,
        "fail-point-error-code" => fail_points::error_code,
        "fail-point-close-connection" => fail_points::close_connection,
        "fail-point-block-connection" => fail_points::block_connection,
        "fail-point-times" => fail_points::times,
        "fail-point-app-name" => fail_points::app_name,
        "error-labels" => fail_points::error_labels,
        "streaming-hello" => topologies::streaming_hello,
        "replica-set" => topologies::replica_set,
        "load-balanced" => topologies::load_balanced,
        "threads-32" => sharing::threads_32,
        "pool-events" => sharing::pool_events,
        "set-secondary-reads" => sets::secondary_reads,
        "set-step-down" => sets::step_down,
        "set-kill" => sets::kill,
        "set-change-stream" => sets::change_stream,
        "set-srv" => sets::srv,
        "cmap-tokio" => adapters::tokio,
        "cmap-async-std" => adapters::async_std,
        "cmap-smol" => adapters::smol,
        "cmap-tokio-scram-tls" => adapters::tokio_scram_tls,
        "cmap-async-std-scram-tls" => adapters::async_std_scram_tls,
        "cmap-smol-scram-tls" => adapters::smol_scram_tls,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::by_name;
    use crate::tools::interop::checks;

    #[test]
    fn our_client_makes_every_check() {
        let missing: Vec<_> = checks::ALL.iter().filter(|check| by_name(check.name).is_none()).collect();

        assert!(missing.is_empty(), "{missing:?}");
    }
}
