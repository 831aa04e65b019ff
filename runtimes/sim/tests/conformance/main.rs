//! The suite that every adapter has to pass, in virtual time: the adapters' code, cancellation at every await, TLS and
//! all, under many seeds.

mod ground;
mod harness;

cmap_conformance::conformance!(virtual crate::harness::Virtual);
