//! The header: made from the sources, and no other symbol is exported than it has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::built;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The header that belongs to the sources.
fn generated() -> String {
    let folder = Path::new(FOLDER);
    let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    config.header = Some(include_str!("../../header.txt").trim_end().to_owned());
    let [major, minor, patch] = version();
    let number = (major * 1000 + minor) * 1000 + patch;
    config.after_includes = Some(format!(
        "\n// The version of this header.\n#define CMAP_VERSION_MAJOR {major}\n#define CMAP_VERSION_MINOR {minor}\n\
         #define CMAP_VERSION_PATCH {patch}\n#define CMAP_VERSION_NUMBER {number}\n\n\
         // The version of the ABI: a program needs the library of the same one.\n#define CMAP_ABI 0\n\n\
         // No time: of a deadline, and of what time does not bring about.\n#define CMAP_NEVER UINT64_MAX"
    ));
    let mut header = Vec::new();
    let made = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/lib.rs")).generate().unwrap();
    made.write(&mut header);
    String::from_utf8(header).unwrap()
}

fn version() -> [u32; 3] {
    [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")]
        .map(|part| part.parse().unwrap())
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = Path::new(FOLDER).join("include/cmap.h");
    let generated = generated();
    if env::var_os("CMAP_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }

    let committed = fs::read_to_string(path).unwrap_or_default();

    assert!(committed == generated, "run CMAP_WRITE_HEADER=1 cargo test -p cmap-c --test c, and commit the header");
}

#[test]
fn the_shared_library_exports_what_the_header_has_and_nothing_else() {
    let Some(nm) = built::tool("nm") else { return };
    let output = Command::new(nm).args(["-D", "--defined-only"]).arg(built::shared()).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();

    let header = generated();
    let functions = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '*']));
    let declared: BTreeSet<&str> = functions
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("cmap_"))
        .collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_shared_library_has_the_name_of_its_abi() {
    let Some(readelf) = built::tool("readelf") else { return };
    let output = Command::new(readelf).arg("-d").arg(built::shared()).output().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[libcmap.so.0]"), "{text}");
}

#[test]
fn the_header_compiles_as_c99_and_as_cpp_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.c");
    fs::write(&source, "#include \"cmap.h\"\nint main(void) { return sizeof(struct cmap_output) % 8; }\n").unwrap();
    for (compiler, language) in [("gcc", ["-x", "c", "-std=c99"]), ("g++", ["-x", "c++", "-std=c++11"])] {
        let Some(compiler) = built::tool(compiler) else { continue };
        let mut command = Command::new(compiler);
        command
            .args(language)
            .args(built::WARNINGS)
            .arg("-I")
            .arg(built::include())
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(folder.path().join("header.o"));
        built::succeed(&mut command);
    }
}

/// As whole numbers: parts that are swapped would pass part by part.
#[test]
fn the_version_of_the_library_is_that_of_the_header_and_of_the_manifest() {
    let [major, minor, patch] = version();
    assert_eq!(cmap::cmap_version_number(), major * 1_000_000 + minor * 1000 + patch);
    let Some(gcc) = built::tool("gcc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("version.c"), folder.path().join("version"));
    let text = "#include \"cmap.h\"\nint main(void) { return cmap_version_number() != CMAP_VERSION_NUMBER; }\n";
    fs::write(&source, text).unwrap();

    built::succeed(built::compile(&gcc, &[]).arg(&source).arg("-o").arg(&program).args(built::link_shared()));
    built::succeed(&mut Command::new(&program));
}
