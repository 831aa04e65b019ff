// The README's loop in a driver whose socket is a word. SNIPPET is replaced.
SNIPPET

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::CheckOutRequest;
use cmap_core::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Instant::ORIGIN;
    let mut pool = Pool::<&str>::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), now)?;
    pool.ready(now);
    let (_, delivery) = pool.check_out(now, CheckOutRequest::default());
    let timeout = drain(&mut pool);
    println!("{} pending, delivered {delivery:?}, next timeout {timeout:?}", pool.counts().pending);
    Ok(())
}
