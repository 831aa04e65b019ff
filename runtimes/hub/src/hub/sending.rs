//! Sends to a client, whose time counts from the last bytes that it took: one that takes a large reply slowly is served, and one that takes
//! nothing is not waited for.

use core::time::Duration;
use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// How long a client may take nothing.
const UNREAD: Duration = Duration::from_secs(60);

/// Sends the first of these bytes: as many as the client takes at once. Returns how many they are.
///
/// # Errors
/// The client has gone, or has taken nothing for [`UNREAD`].
pub(super) async fn send_some<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<usize> {
    match tokio::time::timeout(UNREAD, stream.write(bytes)).await {
        Ok(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
        Ok(sent) => sent,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Sends what the stream itself holds back.
///
/// # Errors
/// The client has gone, or has not taken it within [`UNREAD`].
pub(super) async fn flush<S: AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    tokio::time::timeout(UNREAD, stream.flush()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::time::{Instant, sleep};

    use super::*;

    /// What the client has not taken yet.
    const PIECE: usize = 1_000;

    async fn send_all(stream: &mut DuplexStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = send_some(stream, bytes).await?;
            bytes = &bytes[count..];
        }
        flush(stream).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_on_is_waited_for_however_long_the_whole_takes() {
        let (mut hub, mut client) = tokio::io::duplex(PIECE);
        let reading = tokio::spawn(async move {
            for _ in 0..20 {
                sleep(UNREAD - Duration::from_secs(1)).await;
                client.read_exact(&mut [0; PIECE]).await.unwrap();
            }
        });
        let begun = Instant::now();

        send_all(&mut hub, &[0; 20 * PIECE]).await.unwrap();

        assert!(begun.elapsed() > 10 * UNREAD, "{:?}", begun.elapsed());
        reading.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_for_a_minute_is_given_up() {
        let (mut hub, mut client) = tokio::io::duplex(PIECE);
        let begun = Instant::now();
        let reading = tokio::spawn(async move {
            sleep(UNREAD / 2).await;
            client.read_exact(&mut [0; PIECE]).await.unwrap();
            client
        });

        let sent = send_all(&mut hub, &[0; 20 * PIECE]).await;

        assert_eq!((sent.unwrap_err().kind(), begun.elapsed()), (io::ErrorKind::TimedOut, UNREAD * 3 / 2));
        drop(reading.await);
    }
}
