//! Who of this machine may connect to a Unix socket.

use std::io;
use std::path::Path;

/// The mode and the group of a Unix socket; what is `None` stays as the system makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The bits of its mode, as in `chmod`.
    pub mode: Option<u32>,
    /// The number of its group.
    pub group: Option<u32>,
}

impl SocketAccess {
    /// Gives it to the socket at `path`: the group first, so that nobody else has what the mode gives to the group.
    #[cfg(unix)]
    pub(crate) fn apply(self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;

        if let Some(group) = self.group {
            std::os::unix::fs::chown(path, None, Some(group))?;
        }
        self.mode.map_or(Ok(()), |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)))
    }

    #[cfg(not(unix))]
    pub(crate) fn apply(self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// The mode that these octal digits are.
pub(super) fn mode_of(text: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
}

/// The number of a group by its name, as `groups` has it (`/etc/group`), or by the number itself.
pub(super) fn group_of(text: &str, groups: &str) -> Option<u32> {
    let by_name = || {
        let line = groups.lines().find(|line| line.split(':').next() == Some(text))?;
        line.split(':').nth(2)?.parse().ok()
    };
    text.parse().ok().or_else(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal_digits() {
        assert_eq!(["0660", "660", "600", "0000"].map(mode_of), [Some(0o660), Some(0o660), Some(0o600), Some(0)]);
        for text in ["", "66", "0o660", "0680", "7777", "rw-rw----", "-660"] {
            assert_eq!(mode_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_group_is_a_name_of_the_machine_or_a_number() {
        let groups = "root:x:0:\nwww-data:x:33:app,other\nbroken\n";

        assert_eq!(["www-data", "33", "1000"].map(|text| group_of(text, groups)), [Some(33), Some(33), Some(1000)]);
        assert_eq!(["www", "broken", ""].map(|text| group_of(text, groups)), [None, None, None]);
    }
}
