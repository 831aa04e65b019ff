//! Gives the shared library its name: that of the ABI, which changes only when a program has to be built again.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if ["linux", "freebsd", "netbsd", "openbsd", "dragonfly", "android"].contains(&target.as_str()) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcmap.so.0");
    }
}
