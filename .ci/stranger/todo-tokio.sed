# The example, which is written for smol, as a user of tokio would have it.
s/cmap_smol/cmap_tokio/
s/smol::block_on/tokio::runtime::Runtime::new().expect("a runtime").block_on/
s/smol::io::BufReader::new(smol::Unblock::new(std::io::stdin()))/tokio::io::BufReader::new(tokio::io::stdin())/
s/use smol::io::/use tokio::io::/
/use smol::stream::StreamExt;/d
s/lines\.next()\.await\.transpose()?/lines.next_line().await?/
