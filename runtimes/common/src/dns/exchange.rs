//! One question and its answer on a stream: each message after its length, in two bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use futures_io::{AsyncRead, AsyncWrite};

/// The answer to `question`.
pub(super) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    question: &[u8],
) -> io::Result<Vec<u8>> {
    let length = u16::try_from(question.len()).map_err(|_| io::Error::other("the question is too long"))?;
    write_all(stream, &[&length.to_be_bytes(), question].concat()).await?;
    let mut length = [0; 2];
    read_exact(stream, &mut length).await?;
    let mut reply = vec![0; u16::from_be_bytes(length).into()];
    read_exact(stream, &mut reply).await?;
    Ok(reply)
}

async fn write_all<S: AsyncWrite + Unpin>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
}

async fn read_exact<S: AsyncRead + Unpin>(stream: &mut S, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buffer)).await? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            read => buffer = buffer.get_mut(read..).unwrap_or_default(),
        }
    }
    Ok(())
}
