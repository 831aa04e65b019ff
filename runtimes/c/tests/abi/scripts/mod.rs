//! Random scripts: each call goes through the functions of the header, to a topology by `Topology::call`, and to a pool by `Pool::call`.
//! All three say the same. The fuzz target `abi` plays scripts of bytes.
//!
//! `CMAP_C_SCRIPTS=10000` has so many scripts, and `CMAP_C_SEED=7` begins with that one.

mod choices;
mod expected;
mod script;
mod twins;

pub(crate) use self::choices::Choices;
pub(crate) use self::script::Script;

#[cfg(test)]
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_scripts_have_the_same_outputs_through_the_abi_as_by_call() {
    let first = from_environment("CMAP_C_SEED").unwrap_or_default();
    let scripts = from_environment("CMAP_C_SCRIPTS").unwrap_or(1000);
    let mut reached = [0_u64; 16];
    for seed in first..first + scripts {
        let run = std::panic::catch_unwind(|| Script::new(Choices::of_seed(seed)).run());
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

#[test]
fn bytes_decide_a_script_as_a_seed_does() {
    // A head that sets few options, and calls that check out, establish what the pool asks for, and check in.
    let head = [1; 20];
    let calls = [[0, 0, 3], [0, 45, 1], [0, 25, 1]].map(|call| [&call[..], &[1; 9]].concat());
    let bytes = [&head[..], &calls.concat(), &calls.concat()].concat();

    let reached = Script::new(Choices::of_bytes(&bytes)).run();

    let [connects, deliveries] = [cmap::CMAP_CONNECT, cmap::CMAP_DELIVER].map(|kind| reached[kind as usize]);
    assert_eq!((connects, deliveries), (1, 2));
}

#[test]
fn a_script_may_end_anywhere() {
    let bytes: Vec<u8> = (0..=255).cycle().take(400).collect();

    for end in [0, 1, 19, 20, 21, 33, 400] {
        Script::new(Choices::of_bytes(&bytes[..end])).run();
    }
}
