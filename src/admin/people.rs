//! Who somebody on this machine is: the names that the audit trail uses.

use std::fs;

/// The name of a user of this machine; the number, where the machine's own list does not have it.
pub fn name_of(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&users, uid).unwrap_or_else(|| uid.to_string())
}

/// As the audit trail names whoever runs this process from a shell.
pub fn at_the_shell() -> String {
    format!("cli:{}", name_of(rustix::process::getuid().as_raw()))
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    };
    users.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(users, 10), None);
    }
}
