//! `cmap completions` from outside.

use crate::program::{cmap, stderr, stdout};

#[test]
fn each_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = cmap(&["completions", shell], &[]);

        let script = stdout(&output);
        for word in ["demo", "serve", "replay", "plan", "soak", "completions", "what-if"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("soak-adapter"), "{shell} names what is not for people");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn a_shell_that_is_not_known_is_refused() {
    let output = cmap(&["completions", "command.com"], &[]);

    assert!(stderr(&output).contains("'command.com'") && stderr(&output).contains("fish"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}
