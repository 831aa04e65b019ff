# The example, which is written for smol, as a user of async-std would have it.
s/cmap_smol/cmap_async_std/
s/smol::block_on/async_std::task::block_on/
s/smol::io::BufReader::new(smol::Unblock::new(std::io::stdin()))/async_std::io::BufReader::new(async_std::io::stdin())/
s/use smol::io::{AsyncBufRead, AsyncBufReadExt};/use async_std::io::{BufRead as AsyncBufRead, prelude::BufReadExt};/
s/use smol::stream::StreamExt;/use async_std::stream::StreamExt;/
