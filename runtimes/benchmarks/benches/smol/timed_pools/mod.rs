//! The pool whose time-outs are smol's: deadpool's again.

use cmap_benchmarks::Harness;
use cmap_benchmarks::loads::LIMIT;
use cmap_benchmarks::peers::deadpool_within;
use cmap_benchmarks::pools::{Line, USUAL, Wait};

pub(crate) fn timed_pools<H: Harness>() -> Vec<Line> {
    let deadpool = |limit| deadpool_within(limit, deadpool::Runtime::Smol2);
    vec![Line::new::<H>("deadpool", Wait::Limited, deadpool(USUAL)).hurried::<H>(deadpool(LIMIT))]
}
