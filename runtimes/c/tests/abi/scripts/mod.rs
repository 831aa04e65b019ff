//! Random scripts: each call goes through the functions of the header, to a topology by `Topology::call`, and to a pool by `Pool::call`.
//! All three say the same.
//!
//! `CMAP_C_SCRIPTS=10000` has so many scripts, and `CMAP_C_SEED=7` begins with that one.

mod expected;
mod script;
mod twins;

use self::script::Script;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_scripts_have_the_same_outputs_through_the_abi_as_by_call() {
    let first = from_environment("CMAP_C_SEED").unwrap_or_default();
    let scripts = from_environment("CMAP_C_SCRIPTS").unwrap_or(1000);
    let mut reached = [0_u64; 16];
    for seed in first..first + scripts {
        let run = std::panic::catch_unwind(|| Script::new(seed).run());
        let kinds = run.unwrap_or_else(|panic| {
            println!("it was seed {seed}: CMAP_C_SEED={seed} CMAP_C_SCRIPTS=1");
            std::panic::resume_unwind(panic)
        });
        reached.iter_mut().zip(kinds).for_each(|(all, some)| *all += some);
    }

    // Each action, and a refusal; so few scripts as somebody may ask for need not reach all.
    if scripts >= 1000 {
        assert!(reached[1..=9].iter().all(|&times| times >= 20), "{reached:?}");
    }
}
