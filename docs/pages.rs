//! The pages of the project. `cargo test --doc` compiles the Rust code in them, as readers see it: no line is hidden.

/// Attaches each page to an item, so that rustdoc takes its blocks of code for tests.
macro_rules! pages {
    ($($name:ident $file:literal)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($file)]
            struct $name;
        )*
        #[cfg(test)]
        const PAGES: &[&str] = &[$($file),*];
    };
}

pages! {
    Readme "../README.md"
    Architecture "architecture.md"
    Cleared "cleared.md"
    Cursors "cursors.md"
    Decisions "decisions.md"
    DeploymentPools "deployment-pools.md"
    Embedding "embedding.md"
    Exhausted "exhausted.md"
    Figures "figures.md"
    Guide "guide.md"
    Hub "hub.md"
    HubOperating "hub/operating.md"
    HubReference "hub/reference.md"
    HubRunbook "hub/runbook.md"
    HubSizing "hub/sizing.md"
    HubUsers "hub/users.md"
    Options "options.md"
    Platforms "platforms.md"
    Pool "pool.md"
    Reverse "reverse.md"
    Rules "rules.md"
    Security "security.md"
    Simulation "simulation.md"
    Spans "spans.md"
    Storms "storms.md"
    Testing "testing.md"
    Traces "traces.md"
    Transactions "transactions.md"
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use cmap_core::connection::Phase;

    use super::PAGES;

    /// The programs whose functions the pages show, in blocks of `rs`.
    const PROGRAMS: &[&str] = &["../runtimes/tokio/examples/shop.rs", "../runtimes/benchmarks/examples/shop.rs"];

    #[test]
    fn no_page_is_left_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["", "hub/"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let name = format!("{folder}{}", entry.unwrap().file_name().into_string().unwrap());
                assert!(!name.ends_with(".md") || PAGES.contains(&&*name), "docs/pages.rs does not name {name}");
            }
        }
    }

    #[test]
    fn the_guide_lists_every_page() {
        let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("guide.md")).unwrap();
        let (_, list) = guide.split_once("\n## Pages\n").unwrap();
        for page in PAGES.iter().filter(|page| !page.contains('/') && **page != "guide.md") {
            assert!(list.contains(&format!("({page})")), "the last table of guide.md does not list {page}");
        }
    }

    #[test]
    fn the_page_on_storms_names_every_phase() {
        let storms = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("storms.md")).unwrap();
        for phase in [Phase::Resolve, Phase::Proxy, Phase::Connect, Phase::Tls, Phase::Hello, Phase::Authenticate] {
            assert!(storms.contains(&format!("\n| {phase} |")), "storms.md does not name {phase}");
        }
    }

    #[test]
    fn no_block_is_ignored() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        for page in PAGES {
            let text = fs::read_to_string(folder.join(page)).unwrap();
            let ignored = text.lines().find(|line| line.trim_start().starts_with("```") && line.contains("ignore"));
            assert_eq!(ignored, None, "a block of {page} is not compiled");
        }
    }

    #[test]
    fn a_function_of_a_program_stands_there_as_it_is_shown() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let programs: Vec<_> = PROGRAMS.iter().map(|file| fs::read_to_string(folder.join(file)).unwrap()).collect();
        for page in PAGES {
            let text = fs::read_to_string(folder.join(page)).unwrap();
            for block in text.split("```rs\n").skip(1).filter_map(|rest| rest.split("```").next()) {
                assert!(
                    programs.iter().any(|program| program.contains(block)),
                    "{page} shows what is not there: {block}"
                );
            }
        }
    }
}
