//! Wrapping that was copied along with a secret: quotation marks, a name, a byte order mark.
//!
//! Docker's `--env-file` keeps quotation marks, an editor on Windows adds a byte order mark, a line is copied with
//! the name in front of it. No provider's secret looks like that, and no delivery verifies with one. The value
//! is used as it is; no message here quotes it.

use std::borrow::Cow;

use crate::signature::Secret;

/// Prefixes of API keys and tokens, and whose they are. None of them signs webhooks.
const API_KEYS: [(&str, &str); 25] = [
    ("sk_live_", "an API key of Stripe"),
    ("sk_test_", "an API key of Stripe"),
    ("rk_live_", "a restricted API key of Stripe"),
    ("rk_test_", "a restricted API key of Stripe"),
    ("pk_live_", "a publishable key of Stripe"),
    ("pk_test_", "a publishable key of Stripe"),
    ("pdl_live_apikey_", "an API key of Paddle"),
    ("pdl_sdbx_apikey_", "an API key of Paddle"),
    ("ghp_", "an access token of GitHub"),
    ("gho_", "an access token of GitHub"),
    ("ghs_", "an access token of GitHub"),
    ("github_pat_", "an access token of GitHub"),
    ("glpat-", "an access token of GitLab"),
    ("shpat_", "an access token of Shopify"),
    ("shpca_", "an access token of Shopify"),
    ("xoxb-", "a token of Slack"),
    ("xoxp-", "a token of Slack"),
    ("xapp-", "a token of Slack"),
    ("lin_api_", "an API key of Linear"),
    ("polar_oat_", "an access token of Polar"),
    ("polar_pat_", "an access token of Polar"),
    ("SG.", "an API key of SendGrid"),
    ("sk-", "an API key of OpenAI"),
    ("AKIA", "an access key of AWS"),
    ("eyJ", "a JSON Web Token"),
];

/// Whose API key a secret is, judged by its prefix and ignoring its wrapping.
pub(super) fn api_key(secret: &Secret) -> Option<&'static str> {
    let bare = bare(secret.expose());
    API_KEYS.iter().find(|(prefix, _)| bare.starts_with(prefix.as_bytes())).map(|(_, whose)| *whose)
}

/// Whether it is one of Stripe's own API keys.
pub(super) fn is_stripe_api_key(secret: &Secret) -> bool {
    api_key(secret).is_some_and(|whose| whose.ends_with("of Stripe"))
}

/// Warnings about a secret that may be used nevertheless; each continues a sentence that begins with its name.
pub(super) fn oddities(secret: &Secret) -> Vec<Cow<'static, str>> {
    let bytes = secret.expose();
    let mut odd: Vec<Cow<'static, str>> = Vec::new();
    if bytes.len() < 16 {
        odd.push("the secret is shorter than 16 bytes; a longer one is harder to guess".into());
    }
    odd.extend(wrapping(bytes));
    odd
}

/// The outermost thing that does not belong to a secret.
pub(super) fn wrapping(bytes: &[u8]) -> Option<Cow<'static, str>> {
    let trimmed = bytes.trim_ascii();
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Some(
            "the secret is UTF-16 text, which its bytes are part of; save the file as plain UTF-8".into(),
        );
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        return Some("the secret begins with a byte order mark, which is part of it; save the file as UTF-8 without one".into());
    }
    if let Some(marks) = quotation(trimmed) {
        return Some(format!(
            "the secret {marks}, which is part of it; write the value without it (docker's --env-file keeps quotation marks)"
        ).into());
    }
    if trimmed.starts_with(b"export ") {
        return Some("the secret begins with \"export \"; keep only what stands behind the = sign".into());
    }
    if has_name_in_front(trimmed) {
        return Some("the secret begins with a name and a sign such as NAME=, which is part of it; keep only what stands behind it".into());
    }
    if trimmed.len() != bytes.len() {
        let what = if bytes.ends_with(b"\r") { " (a Windows line end)" } else { "" };
        return Some(
            format!(
                "the secret begins or ends in white space{what}, which is part of it; was it pasted with it?"
            )
            .into(),
        );
    }
    inner(bytes).map(Cow::from)
}

/// What is wrong with the middle of it.
fn inner(bytes: &[u8]) -> Option<&'static str> {
    let is_between =
        |open: &str, close: &str| bytes.starts_with(open.as_bytes()) && bytes.ends_with(close.as_bytes());
    if is_between("{", "}") && bytes.contains(&b':') {
        return Some("the secret is a JSON object; give the one value in it that is the secret");
    }
    if is_between("${", "}") || is_between("{{", "}}") || is_between("<", ">") || is_between("%", "%") {
        return Some("the secret is a placeholder that nothing has filled in; give the value itself");
    }
    if bytes.ends_with(b"...")
        || bytes.ends_with("\u{2026}".as_bytes())
        || bytes.contains(&b'*') && bytes.ends_with(b"**")
    {
        return Some("the secret is shortened as a dashboard shows it; copy the whole value");
    }
    // base64 of "whsec_"
    if bytes.starts_with(b"d2hzZWNf") {
        return Some(
            "the secret is the base64 of one that begins with whsec_ (as in a Kubernetes manifest); decode it first",
        );
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if text.chars().any(|c| c.is_control() || crate::terminal::is_unprintable(c) || c == '\u{a0}') {
        return Some(
            "the secret has an invisible character in it; was it copied out of a document? Type or copy it again",
        );
    }
    None
}

/// How quotation marks stand around it.
fn quotation(text: &[u8]) -> Option<&'static str> {
    const MARKS: [&str; 7] = ["\"", "'", "`", "\u{201c}", "\u{201d}", "\u{2018}", "\u{2019}"];
    let begins = MARKS.iter().any(|mark| text.starts_with(mark.as_bytes()));
    let ends = MARKS.iter().any(|mark| text.ends_with(mark.as_bytes()));
    match (begins, ends) {
        (true, true) => Some("begins and ends in a quotation mark"),
        (true, false) => Some("begins with a quotation mark"),
        (false, true) => Some("ends in a quotation mark"),
        (false, false) => None,
    }
}

/// `STRIPE_WEBHOOK_SECRET=…`, `secret: …`: a name before the sign that is a constant's, or says what it names.
/// Base64 has such a sign at its end only.
fn has_name_in_front(text: &[u8]) -> bool {
    let Some(at) = text.iter().position(|byte| b"=:".contains(byte)) else { return false };
    let (name, rest) = (text[..at].trim_ascii(), &text[at + 1..]);
    let is_word = name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte));
    let is_constant =
        name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
            && (name.contains(&b'_') || text[at] == b'=');
    let says_so = ["secret", "token", "password", "key"]
        .iter()
        .any(|word| name.to_ascii_lowercase().ends_with(word.as_bytes()));
    name.len() >= 3 && is_word && (is_constant || says_so) && rest.trim_ascii().len() >= 6 && rest[0] != b'='
}

/// The value without its wrapping, for judging its prefix.
fn bare(bytes: &[u8]) -> &[u8] {
    let text = bytes.trim_ascii();
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let text = text.strip_prefix(b"export ").unwrap_or(text);
    let text = match text.iter().position(|byte| b"=:".contains(byte)) {
        Some(at) if has_name_in_front(text) => text[at + 1..].trim_ascii_start(),
        _ => text,
    };
    text.strip_prefix(b"\"").or_else(|| text.strip_prefix(b"'")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_value_was_carried_in_is_seen_and_what_is_a_secret_is_not() {
        for (value, said) in [
            ("\"whsec_0123456789abcdef\"", "begins and ends in a quotation mark"),
            ("'0123456789abcdef'", "begins and ends in a quotation mark"),
            ("\u{201c}0123456789abcdef\u{201d}", "begins and ends in a quotation mark"),
            ("0123456789abcdef\"", "ends in a quotation mark"),
            ("\"0123456789abcdef\" ", "begins and ends in a quotation mark"),
            ("export SECRET=0123456789abcdef", "export"),
            ("STRIPE_WEBHOOK_SECRET=0123456789abcdef", "NAME="),
            ("webhook-secret: 0123456789abcdef", "NAME="),
            ("TOKEN=0123456789abcdef", "NAME="),
            ("\u{feff}0123456789abcdef", "byte order mark"),
            ("0123456789abcdef\r", "a Windows line end"),
            ("0123456789abcdef\n", "white space"),
            ("${STRIPE_WEBHOOK_SECRET}", "placeholder"),
            ("{{ secrets.stripe_webhook }}", "placeholder"),
            ("{\"secret\": \"0123456789abcdef\"}", "JSON object"),
            ("whsec_01234567...", "shortened"),
            ("whsec_0123************", "shortened"),
            ("d2hzZWNfMDEyMzQ1Njc4OWFiY2RlZg==", "base64"),
            ("01234567\u{200b}89abcdef", "invisible"),
            ("0123456789abcdef\u{a0}", "invisible"),
        ] {
            let found = wrapping(value.as_bytes()).unwrap_or_else(|| panic!("{value:?}"));
            assert!(found.contains(said), "{value:?}: {found}");
            assert!(!found.contains("0123"), "{found}");
        }
        for good in [
            "whsec_MDEyMzQ1Njc4OWFiY2RlZg==",
            "0123456789abcdef0123456789abcdef",
            "abcdef==",
            "ABCDEFGHIJKLMNOP=",
            "ABCDEFGHIJKLMNO==",
            "correct horse battery staple",
            "pass=word:with;signs",
            "https://example.com/what",
            "p\u{e4}ssw\u{f6}rter sind lang",
            "Basic dXNlcjpwYXNzd29yZA==",
            "Bearer 0123456789",
        ] {
            assert_eq!(wrapping(good.as_bytes()), None, "{good}");
        }
    }

    #[test]
    fn an_api_key_is_known_in_any_wrapping() {
        for key in
            ["sk_live_0123456789", "\"sk_test_0123456789\"", "STRIPE_KEY=rk_live_0123456789", "pk_test_0123"]
        {
            assert!(is_stripe_api_key(&Secret::new("env:S", key)), "{key}");
        }
        for key in ["ghp_0123456789", "SG.0123456789", "xoxb-0123456789"] {
            let secret = Secret::new("env:S", key);
            assert!(api_key(&secret).is_some() && !is_stripe_api_key(&secret), "{key}");
        }
        for secret in ["whsec_0123456789", "shpss_0123456789", "0123456789abcdef", "pdl_ntfset_0123456789"] {
            assert_eq!(api_key(&Secret::new("env:S", secret)), None, "{secret}");
        }
    }
}
