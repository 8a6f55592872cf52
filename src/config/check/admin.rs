//! `[admin]`: who may see the pages of the private listener, and under which names it is reached.

use super::Checker;
use crate::config::keys::{Default, Kind, Table, Words, key, words};
use crate::config::values::{Shown, Values};

pub(in crate::config) const TABLE: Table = Table {
    header: "admin",
    doc: "The pages of the private listener. `inboxd admin link` opens them without any of this.",
    keys: &[
        key(
            "hosts",
            Kind::Texts,
            Default::Unset,
            "Names under which browsers and monitors reach it, beside `localhost` and addresses; a request for any other name is refused.",
        ),
        key("token", Kind::Tables(&TOKEN), Default::Unset, TOKEN.doc),
    ],
};

const TOKEN: Table = Table {
    header: "admin.token",
    doc: "An access token, for people and programs that come over the network: at least 32 random bytes, as text.",
    keys: &[
        key("name", Kind::Text, Default::Required, "Who is named in the audit trail."),
        key(
            "role",
            Kind::Choice(|| words(ROLES)),
            Default::Is("viewer"),
            "A viewer sees everything and changes nothing; an operator may retry, resolve, pause and resume.",
        ),
        key(
            "sha256",
            Kind::Text,
            Default::Required,
            "The SHA-256 of the token, as 64 hex digits; never the token itself.",
        ),
    ],
};

const ROLES: &Words<Role> = &[("viewer", Role::Viewer), ("operator", Role::Operator)];

/// What somebody may do on the private listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// See everything.
    Viewer,
    /// Act as well.
    Operator,
}

/// `[admin]`
#[derive(Debug, Clone, Default)]
pub struct Admin {
    /// Names that a request may have as its host.
    pub hosts: Vec<String>,
    /// In the order of the file.
    pub tokens: Vec<AdminToken>,
}

/// `[[admin.token]]`
#[derive(Debug, Clone)]
pub struct AdminToken {
    /// Who is named in the audit trail.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// Of its text.
    pub sha256: [u8; 32],
}

impl Checker {
    pub(super) fn admin(&mut self, table: &Values) -> Admin {
        let hosts = self.texts(table, "hosts");
        for host in hosts.iter().filter(|host| host.is_empty() || host.contains(['/', '@', ' '])) {
            let rule = "is not a host name; write it as browsers show it, e.g. \"inbox.lan\"";
            self.problem("admin.hosts", format!("\"{host}\": {rule}"));
        }
        let mut tokens: Vec<AdminToken> = Vec::new();
        for typed in table.tables("token") {
            let Some(token) = self.admin_token(typed) else { continue };
            if tokens.iter().any(|known| known.name == token.name) {
                let rule = "two tokens have this name; the audit trail could not tell them apart";
                self.problem(typed.key("name"), format!("\"{}\": {rule}", token.name));
            }
            tokens.push(token);
        }
        Admin { hosts, tokens }
    }

    fn admin_token(&mut self, table: &Values) -> Option<AdminToken> {
        let name = self.text(table, "name");
        let role = self.choice(table, "role", ROLES);
        let typed = self.text(table, "sha256");
        // what is typed may be the token itself
        table.show("sha256", Shown::optional(typed.as_ref().map(|_| "***")));
        let name = name.filter(|name| !name.trim().is_empty());
        if name.is_none() {
            self.missing(table.key("name"), "must be written: who is named in the audit trail");
        }
        let Some(typed) = typed else {
            let rule = "must be written: the SHA-256 of the token; `openssl rand -hex 32 | tee token | tr -d '\\n' | sha256sum` makes both";
            self.missing(table.key("sha256"), rule);
            return None;
        };
        let sha256 = digest(&typed);
        if sha256.is_none() {
            let rule = "must be the 64 hex digits of the token's SHA-256, never the token itself (what is typed is not shown)";
            self.problem(table.key("sha256"), rule);
        }
        Some(AdminToken { name: name?, role, sha256: sha256? })
    }
}

fn digest(typed: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if typed.len() != 2 * bytes.len() || !typed.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(typed.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}
