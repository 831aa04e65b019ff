//! What a reload changes.

use super::*;
use crate::config;
use crate::protocol::MemoryLimits;

#[tokio::test]
async fn users_that_go_on_without_a_users_file_leave_each_other_half_of_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cmap-hub.toml");
    let users = "[[user]]\nname = 'anna'\nx509 = 'CN=anna'\n[[user]]\nname = 'ben'\nx509 = 'CN=ben'\n";
    std::fs::write(folder.path().join("users.toml"), users).unwrap();
    let configuration = |users: &str| {
        let rest = "upstream.uri = 'mongodb://127.0.0.1:1/'\nlisten = [{ address = '127.0.0.1:0' }]\n\
                    limits.memory-bytes = 1000000\n";
        std::fs::write(&path, format!("{users}{rest}")).unwrap();
        config::read(&path).unwrap()
    };
    let halves = MemoryLimits { budget: 1_000_000, per_user: 500_000 };
    let shared = Shared::new(configuration("users = 'users.toml'\n")).await.unwrap();
    assert_eq!(shared.settings().limits.memory, halves);

    shared.take_over(configuration(""), &BTreeSet::new());

    assert_eq!(shared.users().all().count(), 2, "they go on");
    assert_eq!(shared.settings().limits.memory, halves);
}
