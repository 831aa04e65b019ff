//! The pools whose time-outs are tokio's: deadpool's again, and bb8's.

use cmap_benchmarks::Harness;
use cmap_benchmarks::loads::LIMIT;
use cmap_benchmarks::peers::deadpool_within;
use cmap_benchmarks::pools::{Line, USUAL, Wait};

use crate::bb8_pool::Bb8;

pub(crate) fn timed_pools<H: Harness>() -> Vec<Line> {
    let deadpool = |limit| deadpool_within(limit, deadpool::Runtime::Tokio1);
    vec![
        Line::new::<H>("deadpool", Wait::Limited, deadpool(USUAL)).hurried::<H>(deadpool(LIMIT)),
        Line::new::<H>("bb8", Wait::Limited, Bb8::within(USUAL)).hurried::<H>(Bb8::within(LIMIT)),
    ]
}
