//! A program without std that uses the pool: it has a panic handler and an allocator of its own.
#![no_std]
#![forbid(unsafe_code)]

use core::panic::PanicInfo;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{CheckOutRequest, Pool};
use cmap_core::time::Instant;

#[global_allocator]
static ALLOCATOR: emballoc::Allocator<4096> = emballoc::Allocator::new();

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// Uses the machine, so that it is linked.
pub fn outputs() -> usize {
    let now = Instant::ORIGIN;
    let Ok(mut pool) = Pool::<()>::new(ServerAddress::tcp("localhost", 27017), PoolOptions::default(), now) else {
        return 0;
    };
    pool.ready(now);
    let _ = pool.check_out(now, CheckOutRequest::default());
    core::iter::from_fn(|| pool.poll_output()).count()
}
