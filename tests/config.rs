//! The configuration as a user meets it: files, `check`, `init`, messages and exit codes of the built binary.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Appears in every secret of these tests and must appear in no output.
const CANARY: &str = "canary";
const SECRET: &str = "whsec_canary_0123456789";

/// A folder with a configuration file.
struct Folder(TempDir);

impl Folder {
    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(config: &str) -> Self {
        let folder = Self::empty();
        folder.write("inboxd.toml", config, 0o644);
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: &str, mode: u32) {
        let path = self.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs inboxd here, with `GOOD` and `SHORT` and `EMPTY` as the only secrets around.
    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_inboxd"))
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .envs([("GOOD", SECRET), ("SHORT", "cana"), ("WEAK", "canary_78"), ("EMPTY", "")])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ran::of(output)
    }
}

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let ran = Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.stdout.contains(CANARY), "a secret on stdout: {}", ran.stdout);
        assert!(!ran.stderr.contains(CANARY), "a secret on stderr: {}", ran.stderr);
        ran
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// `[endpoint.a]` without secrets, and `lines` in it.
fn bare_endpoint(lines: &str) -> String {
    format!("[endpoint.a]\nprovider = \"stripe\"\n{lines}\n")
}

/// A good `[endpoint.a]`, and `lines` in it.
fn endpoint(lines: &str) -> String {
    bare_endpoint(&format!("secrets = [\"env:GOOD\"]\n{lines}"))
}

/// `[destination.app]` without a URL, and `lines` in it.
fn bare_destination(lines: &str) -> String {
    endpoint(&format!("[destination.app]\n{lines}"))
}

/// A good `[destination.app]`, and `lines` in it.
fn destination(lines: &str) -> String {
    bare_destination(&format!("url = \"http://127.0.0.1:3000/\"\n{lines}"))
}

/// `lines` at the top of a good file.
fn around(lines: &str) -> String {
    format!("{lines}\n{}", endpoint(""))
}

fn whole_file(lines: &str) -> String {
    lines.to_owned()
}

/// Checks that each case is refused in one line that has all the words. A case is
/// `LINE ; LINE => WORDS & WORDS`.
fn assert_refused(file: impl Fn(&str) -> String, cases: &str) {
    for case in cases.lines().map(str::trim).filter(|case| !case.is_empty()) {
        let (lines, words) = case.split_once("=> ").unwrap();
        let ran = Folder::with(&file(&lines.trim().replace(" ; ", "\n"))).run(&["check"]);
        assert_eq!(ran.code, Some(3), "{case}\n{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.stdout, "");
        assert_eq!(ran.stderr.lines().count(), 1, "one mistake, one line: {}", ran.stderr);
        assert!(ran.stderr.starts_with("inboxd: inboxd.toml"), "{}", ran.stderr);
        for words in words.split(" & ") {
            assert!(ran.stderr.contains(words), "{case}\n{}lacks {words}", ran.stderr);
        }
    }
}

#[test]
fn a_mistake_in_an_endpoint_is_refused_with_key_value_rule_and_advice() {
    assert_refused(
        endpoint,
        r#"
        tolerance = "0s" => inboxd.toml:4: & endpoint.a.tolerance & "0s" & longer than zero & "5m"
        tolerance = "-5m" => endpoint.a.tolerance & longer than zero
        tolerance = "soon" => endpoint.a.tolerance & "soon" & not a duration & "5m"
        tolerance = 300 => endpoint.a.tolerance & 300 & duration in quotes
        tolerence = "5m" => inboxd.toml:4: & endpoint.a.tolerence & unknown key & did you mean "tolerance"?
        colour = "red" => endpoint.a.colour & unknown key & "provider"
        path = "hooks" => endpoint.a.path & "hooks" & begin with a slash
        path = "/livez" => endpoint.a.path & "/livez" & itself
        path = "/readyz/" => endpoint.a.path & "/readyz/" & itself
        path = "/" => endpoint.a.path & more than the root
        path = "/a?b" => endpoint.a.path & may contain only
        handlers = ["biling"] => endpoint.a.handlers & "biling" & did you mean "billing"?
        handlers = ["billing", "billing"] => endpoint.a.handlers & listed twice
        handlers = ["sql:"] => endpoint.a.handlers & "sql:" & names no folder
        handlers = ["sql:absent"] => endpoint.a.handlers & "sql:absent" & cannot be read & name a folder
        [database_options] ; allow_wal = true => database_options & database = 
        notify = "app" => endpoint.a.notify & "app" & no destination has this name & add [destination.app]
        body_bytes_max = 0 => endpoint.a.body_bytes_max & 0 & from 1 to
        body_bytes_max = "1 meg" => endpoint.a.body_bytes_max & "1 meg" & 64MiB
        on_redelivery = "reque" => endpoint.a.on_redelivery & did you mean "requeue"?
        replay = "forbid" => endpoint.a.replay & "flag", "refuse", "allow"
        on_scope_mismatch = "panic" => endpoint.a.on_scope_mismatch & "refuse", "ignore"
        livemode = "yes" => endpoint.a.livemode & true or false
        account = "" => endpoint.a.account & no account
        mode = "asink" => endpoint.a.mode & did you mean "async"?
        [endpoint.a.scheme] ; signature_header = "X" => endpoint.a.scheme & has its own scheme & custom
        [endpoint.b] ; secrets = ["env:GOOD"] => endpoint.b.provider & missing
        [endpoint.b] ; provider = "stripe" ; path = "/webhooks/a/" ; secrets = ["env:GOOD"] => endpoint.b.path & endpoint "a" as well
        [endpoint."Ü b"] ; provider = "stripe" ; path = "/b" ; secrets = ["env:GOOD"] => endpoint.Ü b & 1 to 64 characters
    "#,
    );
    assert_refused(
        whole_file,
        r#"
        [endpoint.a] ; provider = "strip" ; secrets = ["env:GOOD"] => endpoint.a.provider & "strip" & did you mean "stripe"?
        [endpoint.a] ; provider = "telegraph" ; secrets = ["env:GOOD"] => endpoint.a.provider & "telegraph" & "github" & "custom"
        [endpoint.a] ; provider = "mailgun" ; secrets = ["env:GOOD"] ; handlers = ["billing"] => endpoint.a.handlers & "billing" & mailgun does not sign the body
        [endpoint.a] ; provider = "payjp" ; secrets = ["env:GOOD"] ; handlers = ["billing"] => endpoint.a.handlers & payjp_token does not sign the body
        [endpoint.a] ; provider = "square" ; secrets = ["env:GOOD"] => endpoint.a.provider & signs the URL & public_url
        [endpoint.a] ; provider = "discord" ; secrets = ["env:GOOD"] => endpoint.a.secrets & is not hex
        [endpoint.a] ; provider = "sendgrid" ; secrets = ["env:GOOD"] => endpoint.a.secrets & base64
        [endpoint.a] ; provider = "custom" ; secrets = ["env:GOOD"] => endpoint.a.scheme & is missing & signature_header
        [endpoint.a] ; provider = "custom" ; secrets = ["env:GOOD"] ; [endpoint.a.scheme] ; signed = "{body}" => endpoint.a.scheme & lacks & "signature_header"
        [endpoint.a] ; provider = "custom" ; secrets = ["env:GOOD"] ; scheme.signature_header = "X" ; scheme.sined = "{body}" => endpoint.a.scheme.sined & "signed"
    "#,
    );
}

#[test]
fn a_secret_that_protects_nothing_is_refused_and_never_shown() {
    assert_refused(
        bare_endpoint,
        r#"
        secrets = ["whsec_canary_0123"] => endpoint.a.secrets & stands in the file itself & env:VAR & file:PATH & credential:NAME
        secrets = ["env:whsec_canary_0123"] => endpoint.a.secrets & stands in the file itself
        secrets = ["canary:0123456789abcdef"] => endpoint.a.secrets & stands in the file itself
        secrets = "whsec_canary_0123" => endpoint.a.secrets & must be a list
        secrets = ["whsec_canary_0123] => inboxd.toml:3: & is not TOML
        secret = "whsec_canary_0123" => endpoint.a.secret: & did you mean "secrets"?
        secrets = [] => endpoint.a.secrets & is missing
         => endpoint.a.secrets & is missing
        secrets = ["env:UNSET"] => endpoint.a.secrets & "env:UNSET" & not set & export UNSET=
        secrets = ["env:EMPTY"] => endpoint.a.secrets & "env:EMPTY" & is empty
        secrets = ["env:SHORT"] => endpoint.a.secrets & "env:SHORT" & shorter than 6 bytes
        secrets = ["env:"] => endpoint.a.secrets & names nothing
        secrets = ["file:absent"] => endpoint.a.secrets & "file:absent" & cannot be read
        secrets = ["file:/dev/zero"] => endpoint.a.secrets & larger than 64 KiB
        secrets = ["credential:../x"] => endpoint.a.secrets & plain file name
    "#,
    );
}

#[test]
fn a_secret_file_that_others_can_read_is_refused_with_the_chmod_to_run() {
    let folder = Folder::with("[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"file:a.secret\"]\n");
    for mode in [0o640, 0o604, 0o660] {
        folder.write("a.secret", SECRET, mode);
        let ran = folder.run(&["check"]);
        assert_eq!(ran.code, Some(3), "{mode:o}");
        assert!(
            ran.stderr.contains(&format!("{mode:04o}")) && ran.stderr.contains("chmod 600 a.secret"),
            "{}",
            ran.stderr
        );
    }
    folder.write("a.secret", SECRET, 0o600);
    assert_eq!(folder.run(&["check"]).code, Some(0));
}

#[test]
fn a_file_and_a_credential_lose_one_final_newline_and_a_variable_none() {
    let folder = Folder::with(
        "[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"file:a.secret\", \"credential:stripe\", \"env:GOOD\", \"env:LINE\"]\n",
    );
    folder.write("a.secret", &format!("{SECRET}\n"), 0o400);
    folder.write("stripe", &format!("{SECRET}\n"), 0o440);
    let directory = folder.path().to_str().unwrap();
    let line = format!("{SECRET}\n");
    let ran = folder.run_with(&["check", "--json"], &[("CREDENTIALS_DIRECTORY", directory), ("LINE", &line)]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let secrets = &ran.json()["config"]["endpoint"]["a"]["secrets"];
    assert_eq!(secrets[0]["fingerprint"], secrets[2]["fingerprint"]);
    assert_eq!(secrets[1]["fingerprint"], secrets[2]["fingerprint"]);
    assert_ne!(secrets[3]["fingerprint"], secrets[2]["fingerprint"]);
    assert!(ran.json()["warnings"][0].as_str().unwrap().contains("white space"));
}

#[test]
fn a_short_secret_is_a_warning() {
    let ran = Folder::with("[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"env:WEAK\"]\n").run(&["check"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.stdout.contains("warning: endpoint.a.secrets: \"env:WEAK\": the secret is shorter than 16 bytes"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_mistake_outside_the_endpoints_is_refused() {
    assert_refused(
        around,
        r#"
        datadir = "x" => inboxd.toml:1: & datadir & did you mean "data_dir"?
        data_dir = "" => data_dir & names no directory
        data_dir = "inboxd.toml" => data_dir & is not a directory
        public_url = "hooks.example.com" => public_url & "hooks.example.com" & http://
        public_url = "https://me:canary@example.com" => public_url & user or password & ***@example.com
        [listen] ; webhooks = "8787" => listen.webhooks & "8787" & 127.0.0.1:8787
        [listen] ; webhooks = ":8787" => listen.webhooks & has no host & 0.0.0.0:8787
        [listen] ; webhooks = "127.0.0.1:99999" => listen.webhooks & is not an address
        [listen] ; admin = "systemd" => listen.admin & "systemd" & for listen.webhooks only
        [listen] ; webhooks = "unix:" => listen.webhooks & names no path
        [listen] ; admin = "127.0.0.1:8787" => listen.admin & public listener
        [listen] ; webhooks = "0.0.0.0:8788" => listen.admin & public listener
        [listen] ; trusted_proxies = ["caddy"] => listen.trusted_proxies & "caddy" & IP address
        [listen] ; webhook = "127.0.0.1:1" => listen.webhook: & did you mean "webhooks"?
        [limits] ; connections_max = 0 => limits.connections_max & 0 & from 1
        [limits] ; connections_max = -1 => limits.connections_max & -1 & not negative
        [limits] ; body_bytes_max = 0 => limits.body_bytes_max & from 1
        [limits] ; body_bytes_max = "1GiB" => limits.body_bytes_max & 64MiB
        [limits] ; handler_timeout = "0ms" => limits.handler_timeout & longer than zero
        [limits] ; disk_free_min = "lots" => limits.disk_free_min & "lots" & not a size
        [retention] ; key = "30d" => retention.key & "30d" & at least "31d"
        [retention] ; payload = "500d" => retention.key & "400d" & retention.payload
        [retention] ; keys = "400d" => retention.keys & did you mean "key"?
        [endpoints.b] ; provider = "stripe" => endpoints & did you mean "endpoint"?
        data_dir = "a" ; data_dir = "b" => inboxd.toml:2: & is not TOML & duplicate key
    "#,
    );
}

#[test]
fn a_mistake_in_a_destination_is_refused() {
    assert_refused(
        bare_destination,
        r#"
         => destination.app.url & is missing
        url = "ftp://example.com" => destination.app.url & "ftp://example.com" & http://
        url = "localhost:3000" => destination.app.url & http://
        url = "http://" => destination.app.url & not a URL
        url = "http://127.0.0.1:99999/" => destination.app.url & ports are from 1 to 65535
        url = "http://127.0.0.1:0/" => destination.app.url & ports are from 1 to 65535
        url = "http://canary:canary@example.com/" => destination.app.url & user or password & ***@example.com
    "#,
    );
    assert_refused(
        destination,
        r#"
        sign = "standart" => destination.app.sign & did you mean "standard"?
        sign = "standard" => destination.app.secrets & sign = "standard" needs
        sign = "standard" ; secrets = ["env:GOOD"] => destination.app.secrets & not base64
        secrets = ["env:UNSET"] => destination.app.secrets & not set
        order = "fifo" => destination.app.order & "object", "none"
        lease = "15s" => destination.app.lease & "15s" & longer than timeout (15s)
        timeout = "2m" => destination.app.lease & "2m" & longer than timeout (2m)
        timeout = "0s" => destination.app.timeout & longer than zero
        threads = 0 => destination.app.threads & from 1 to 64
        headers = { Authorization = "Bearer canary" } => destination.app.headers.Authorization & stands in the file itself
        headers = { Content-Length = "env:GOOD" } => destination.app.headers.Content-Length & writes itself
        headers = { Inboxd-Event-Id = "env:GOOD" } => destination.app.headers.Inboxd-Event-Id & writes itself
        key_lifetime = "15s" => destination.app.key_lifetime & longer than timeout (15s)
        headers = { "a b" = "env:GOOD" } => destination.app.headers.a b & not a header's name
        body_format = "xml" => destination.app.body_format & "json", "form"
        result = "id" => destination.app.result & JSON pointer & "/id"
        key_lifetime = "1y" => destination.app.key_lifetime & count in days
        allow_networks = ["10.0.0.0/33"] => destination.app.allow_networks & 10.0.0.0/8
        ca_file = "absent.pem" => destination.app.ca_file & "absent.pem" & cannot be read
        retries = 3 => destination.app.retries & unknown key
    "#,
    );
}

#[test]
fn a_mistake_in_worker_or_alert_is_refused_with_key_value_rule_and_advice() {
    assert_refused(
        endpoint,
        r#"
        [worker] ; threads = 0 => worker.threads & 0: & from 1 to 64
        [worker] ; max_attempts = 0 => worker.max_attempts & from 1 to 1000
        [worker] ; lease = "2s" => worker.lease & "2s" & longer than limits.handler_timeout & 2s
        [worker] ; backoff_cap = "0s" => worker.backoff_cap & longer than zero
        [worker] ; thread = 2 => worker.thread & did you mean "threads"?
        [alert] ; remind = "4h" => alert & names no receiver
        [alert] ; url = "https://ntfy.sh/x" ; command = "/bin/true" => alert & both url and command
        [alert] ; url = "ntfy.sh/x" => alert.url & https://ntfy.sh/topic
        [alert] ; command = "/does/not/exist" => alert.command & is not a program
        [alert] ; url = "https://ntfy.sh/x" ; on = ["revew"] => alert.on & did you mean "review"?
        [alert] ; url = "https://ntfy.sh/x" ; on = ["oldest>soon"] => alert.on & oldest>soon
    "#,
    );
}

#[test]
fn a_destination_cannot_be_signed_with_a_key_that_only_the_provider_has() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let folder = Folder::with(
        "[endpoint.a]\nprovider = \"discord\"\nsecrets = [\"file:key\"]\nnotify = \"app\"\n[destination.app]\nurl = \"http://127.0.0.1:1/\"\n",
    );
    folder.write("key", key, 0o600);
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("destination.app.sign") && ran.stderr.contains("private key"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_mistake_in_where_events_go_is_refused() {
    assert_refused(
        destination,
        r#"
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; forward = ["ap"] => endpoint.b.forward & "ap" & did you mean "app"?
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; forward = ["app", "app"] => endpoint.b.forward & listed twice
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; mode = "proxy" => endpoint.b.mode & forward must name its one destination
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; mode = "proxy" ; forward = ["app"] ; handlers = ["billing"] => endpoint.b.mode & handlers must be empty
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; mode = "proxy" ; forward = ["app"] ; proxy_timeout = "26s" => endpoint.b.proxy_timeout & at most 25s
        [endpoint.b] ; provider = "stripe" ; secrets = ["env:GOOD"] ; proxy_timeout = "8s" => endpoint.b.proxy_timeout & mode = "proxy" only
    "#,
    );
}

#[test]
fn an_alias_means_the_preset() {
    let folder =
        Folder::with("[endpoint.a]\nprovider = \"forgejo\"\nsecrets = [\"env:GOOD\"]\nreplay = \"refuse\"\n");
    let ran = folder.run(&["check", "--print"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("provider = \"gitea\"\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("replay = \"refuse\"\n"), "{}", ran.stdout);
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let config = "datadir = \"x\"\n[limits]\nconnections_max = 0\n[endpoint.z]\nprovider = \"strip\"\npath = \"z\"\ntolerence = \"1m\"\n\
                  [endpoint.y]\nprovider = \"stripe\"\nsecret = \"env:GOOD\"\n[endpoint.x]\nprovider = \"stripe\"\n\
                  [endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"env:UNSET\", \"whsec_canary\"]\nmode = \"proxy\"\n";
    let ran = Folder::with(config).run(&["check"]);
    assert_eq!(ran.code, Some(3));
    let keys: Vec<_> = ran.stderr.lines().map(|line| line.split(": ").nth(2).unwrap()).collect();
    assert_eq!(
        keys,
        [
            "datadir",
            "limits.connections_max",
            "endpoint.z.secrets",
            "endpoint.z.provider",
            "endpoint.z.path",
            "endpoint.z.tolerence",
            "endpoint.y.secret",
            "endpoint.x.secrets",
            "endpoint.a.secrets",
            "endpoint.a.secrets",
            "endpoint.a.mode"
        ]
    );
}

#[test]
fn problems_are_json_as_well() {
    let ran = Folder::with(&endpoint("tolerance = \"0s\"")).run(&["check", "--json"]);
    assert_eq!(ran.code, Some(3));
    let answer = ran.json();
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["file"], "inboxd.toml");
    assert_eq!(answer["problems"][0]["key"], "endpoint.a.tolerance");
    assert_eq!(answer["problems"][0]["line"], 4);
    assert!(ran.stderr.contains("endpoint.a.tolerance"));
}

#[test]
fn a_named_file_that_does_not_exist_is_exit_3_and_not_a_development_instance() {
    let ran = Folder::empty().run(&["--config", "absent.toml", "check"]);
    assert_eq!(ran.code, Some(3));
    assert_eq!(ran.stderr, "inboxd: absent.toml: does not exist; `inboxd init absent.toml` writes one\n");
}

#[test]
fn without_a_file_check_describes_the_development_instance_and_makes_nothing() {
    let folder = Folder::empty();
    let ran = folder.run_with(&["check"], &[("STRIPE_WEBHOOK_SECRET", SECRET)]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("http://127.0.0.1:8787/webhooks/stripe"), "{}", ran.stdout);
    assert!(ran.stdout.contains("env:STRIPE_WEBHOOK_SECRET sha256:"), "{}", ran.stdout);
    assert!(ran.stdout.contains("endpoint \"github\" has no secret yet"), "{}", ran.stdout);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_development_secret_that_is_set_but_empty_is_refused() {
    let ran = Folder::empty().run_with(&["check"], &[("STRIPE_WEBHOOK_SECRET", "")]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("development instance: endpoint.billing.secrets"), "{}", ran.stderr);
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let folder = Folder::empty();
    fs::create_dir(folder.path().join("etc")).unwrap();
    let config = "data_dir = \"data\"\n[listen]\nwebhooks = \"unix:in.sock\"\n[endpoint.a]\nprovider = \"stripe\"\nsecrets = [\"file:a.secret\"]\n";
    folder.write("etc/inboxd.toml", config, 0o644);
    folder.write("etc/a.secret", SECRET, 0o600);
    let ran = folder.run(&["check", "--json", "--config", "etc/inboxd.toml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.json()["config"]["data_dir"], "etc/data");
    assert_eq!(ran.json()["config"]["listen"]["webhooks"], "unix:etc/in.sock");
}

const EVERYTHING: &str = r#"
data_dir = "./data"
public_url = "https://hooks.example.com/"
[listen]
webhooks = "127.0.0.1:0"
admin = "off"
trusted_proxies = ["127.0.0.1", "::1"]
[limits]
body_bytes_max = "2MiB"
handler_timeout = "1500ms"
[endpoint.zulu]
provider = "stripe"
path = "/webhooks/stripe/"
secrets = ["env:GOOD", "env:OTHER"]
mode = "sync"
handlers = ["billing"]
notify = "app"
tolerance = "1h30m"
livemode = true
account = "acct_123"
on_scope_mismatch = "ignore"
on_redelivery = "count"
[endpoint.alpha]
provider = "custom"
secrets = ["env:GOOD"]
body_bytes_max = 4096
[endpoint.alpha.scheme]
signature_header = "X-Signature"
encoding = "hex"
algorithm = "sha256"
key = "text"
signed = "{ts}.{body}"
timestamp = "header:X-Timestamp"
event_id = "json:/id"
[destination.app]
url = "http://127.0.0.1:3000/webhooks"
sign = "standard"
secrets = ["env:STANDARD"]
headers = { Authorization = "env:GOOD" }
allow_networks = ["10.0.0.0/8", "fd00::/8"]
[retention]
payload = "10d"
key = "31d"
"#;

#[test]
fn what_print_shows_is_a_configuration_that_means_the_same() {
    let other =
        [("OTHER", "canary_9876543210_canary"), ("STANDARD", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
    let first = Folder::with(EVERYTHING).run_with(&["check", "--print"], &other);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let table: toml::Table = first.stdout.parse().unwrap();
    assert_eq!(table["endpoint"]["zulu"]["path"].as_str(), Some("/webhooks/stripe"));
    assert_eq!(table["endpoint"]["zulu"]["tolerance"].as_str(), Some("90m"));
    assert!(
        first.stdout.find("[endpoint.zulu]") < first.stdout.find("[endpoint.alpha]"),
        "the order of the file"
    );
    assert!(!first.stderr.contains("destination"), "{}", first.stderr);

    let folder = Folder::with(&first.stdout);
    let again = folder.run_with(&["check", "--print"], &other);
    assert_eq!(again.stdout.replace("././data", "./data"), first.stdout, "{}", again.stderr);
}

#[test]
fn print_shows_every_default() {
    let ran = Folder::with(&destination("")).run(&["check", "--print"]);
    let table: toml::Table = ran.stdout.parse().unwrap();
    for (section, key, default) in [
        ("listen", "webhooks", "127.0.0.1:8787"),
        ("listen", "admin", "127.0.0.1:8788"),
        ("limits", "handler_timeout", "2s"),
        ("retention", "payload", "30d"),
        ("retention", "key", "400d"),
    ] {
        assert_eq!(table[section][key].as_str(), Some(default), "{section}.{key}");
    }
    for (key, default) in
        [("body_bytes_max", 1_048_576), ("connections_max", 512), ("disk_free_min", 67_108_864)]
    {
        assert_eq!(table["limits"][key].as_integer(), Some(default), "{key}");
    }
    let endpoint = &table["endpoint"]["a"];
    for (key, default) in [
        ("path", "/webhooks/a"),
        ("mode", "sync"),
        ("tolerance", "5m"),
        ("on_scope_mismatch", "refuse"),
        ("on_redelivery", "requeue"),
    ] {
        assert_eq!(endpoint[key].as_str(), Some(default), "endpoint.a.{key}");
    }
    let destination = &table["destination"]["app"];
    for (key, default) in [
        ("sign", "provider"),
        ("order", "object"),
        ("timeout", "15s"),
        ("give_up_after", "3d"),
        ("backoff_cap", "15m"),
        ("lease", "2m"),
    ] {
        assert_eq!(destination[key].as_str(), Some(default), "destination.app.{key}");
    }
}

#[test]
fn the_largest_github_body_fits_by_default_also_as_a_form() {
    let ran = Folder::with("[endpoint.g]\nprovider = \"github\"\nsecrets = [\"env:GOOD\"]\n")
        .run(&["check", "--json"]);
    assert_eq!(ran.json()["config"]["endpoint"]["g"]["body_bytes_max"], 50 * 1024 * 1024);
}

#[test]
fn init_writes_a_file_that_check_accepts_once_the_secret_is_set() {
    let folder = Folder::empty();
    let ran = folder.run(&["init"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("inboxd check"), "{}", ran.stderr);

    let unset = folder.run(&["check"]);
    assert_eq!(unset.code, Some(3));
    assert!(unset.stderr.contains("export STRIPE_WEBHOOK_SECRET="), "{}", unset.stderr);

    let set = folder.run_with(&["check"], &[("STRIPE_WEBHOOK_SECRET", SECRET)]);
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    assert!(!set.stdout.contains("warning"), "{}", set.stdout);
}

#[test]
fn init_knows_every_provider() {
    for provider in ["stripe", "github", "standardwebhooks", "svix", "clerk", "resend", "custom"] {
        let folder = Folder::empty();
        let ran = folder.run(&["init", "--provider", provider, "a.toml"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let variable = format!("{}_WEBHOOK_SECRET", provider.to_uppercase());
        // 32 bytes after the prefix, so that it is a key for the schemes that decode it
        let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
        let ran = folder.run_with(&["--config", "a.toml", "check"], &[(&variable, secret)]);
        assert_eq!(ran.code, Some(0), "{provider}: {}", ran.stderr);
    }
    let ran = Folder::empty().run(&["init", "--provider", "gihub"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("did you mean github?"), "{}", ran.stderr);
}

#[test]
fn init_writes_the_file_that_config_names() {
    let folder = Folder::empty();
    let ran = folder.run(&["--config", "other.toml", "init"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("inboxd --config other.toml serve"), "{}", ran.stderr);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["other.toml"]);
    let both = folder.run(&["--config", "other.toml", "init", "third.toml"]);
    assert_eq!(both.code, Some(2));
    assert!(both.stderr.contains("other.toml") && both.stderr.contains("third.toml"), "{}", both.stderr);
    let lost = folder.run(&["init", "absent/inboxd.toml"]);
    assert_eq!(lost.code, Some(1));
    assert!(lost.stderr.contains("make its directory first"), "{}", lost.stderr);
}

#[test]
fn init_leaves_the_comments_of_a_scheme_alone_and_gives_each_endpoint_its_own_path() {
    let folder = Folder::empty();
    folder.run(&["init", "--provider", "custom", "--endpoint", "legacy"]);
    let text = fs::read_to_string(folder.path().join("inboxd.toml")).unwrap();
    assert!(
        text.contains("[endpoint.legacy.scheme]") && text.contains("# header:NAME or json:/pointer"),
        "{text}"
    );
    assert!(text.contains("path      = \"/webhooks/legacy\""), "{text}");
    folder.run(&["init", "--force"]);
    let text = fs::read_to_string(folder.path().join("inboxd.toml")).unwrap();
    assert!(text.contains("path      = \"/webhooks/stripe\""), "as in the development instance: {text}");
}

#[test]
fn init_goes_on_with_the_secret_of_the_development_instance() {
    let folder = Folder::empty();
    fs::create_dir_all(folder.path().join("inboxd-data/secrets")).unwrap();
    folder.write("inboxd-data/secrets/billing", SECRET, 0o600);
    let ran = folder.run(&["init"]);
    assert!(ran.stderr.contains("inboxd-data/secrets/billing"), "{}", ran.stderr);
    let check = folder.run(&["check"]);
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    assert!(check.stdout.contains("file:./inboxd-data/secrets/billing"), "{}", check.stdout);
}

#[test]
fn a_key_with_control_characters_cannot_move_the_cursor() {
    let ran = Folder::with(&endpoint("\"a\\u001b[2J\\nb\\u202e\" = 1")).run(&["check"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("endpoint.a.a?[2J?b?: unknown key"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1);
}

#[test]
fn a_tolerance_of_hours_is_a_warning() {
    let ran = Folder::with(&endpoint("tolerance = \"2h\"")).run(&["check"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("endpoint.a.tolerance: \"2h\""), "{}", ran.stdout);
    assert!(!Folder::with(&endpoint("tolerance = \"1h\"")).run(&["check"]).stdout.contains("warning"));
}

#[test]
fn an_application_that_may_take_longer_than_the_provider_waits_is_a_warning() {
    let check = |provider: &str, timeout: &str| {
        let endpoint = format!(
            "[endpoint.a]\nprovider = \"{provider}\"\nsecrets = [\"env:GOOD\"]\nmode = \"proxy\"\nforward = [\"app\"]\n{timeout}"
        );
        let destination = "\n[destination.app]\nurl = \"http://127.0.0.1:3000/\"\n";
        Folder::with(&(endpoint + destination)).run(&["check"]).stdout
    };
    let slow = check("shopify", "");
    assert!(
        slow.contains("warning: endpoint.a.proxy_timeout: \"8s\": shopify waits 5 s for an answer"),
        "{slow}"
    );
    assert!(check("shopify", "proxy_timeout = \"5s\"").contains("warning: endpoint.a.proxy_timeout"));
    assert!(!check("shopify", "proxy_timeout = \"4s\"").contains("warning"));
    assert!(!check("square", "").contains("warning"), "8 s of 10");
}

#[test]
fn a_file_too_large_for_a_configuration_is_refused() {
    let ran = Folder::with(&format!("# {}\n", "x".repeat(1 << 20))).run(&["check"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("larger than 1 MiB"), "{}", ran.stderr);
}

#[test]
fn print_shows_every_default_of_a_scheme_of_ones_own() {
    let config =
        "[endpoint.a]\nprovider = \"custom\"\nsecrets = [\"env:GOOD\"]\nscheme.signature_header = \"X\"\n";
    let ran = Folder::with(config).run(&["check", "--print"]);
    let table: toml::Table = ran.stdout.parse().unwrap();
    let scheme = &table["endpoint"]["a"]["scheme"];
    for (key, default) in
        [("encoding", "hex"), ("algorithm", "sha256"), ("key", "text"), ("signed", "{body}")]
    {
        assert_eq!(scheme[key].as_str(), Some(default), "{key}");
    }
    for key in ["prefix", "timestamp", "timestamp_unit", "event_id"] {
        assert!(ran.stdout.contains(&format!("# {key} is not set")), "{key}: {}", ran.stdout);
    }
    let timed = Folder::with(&format!(
        "{config}scheme.timestamp = \"header:T\"\nscheme.signed = \"{{ts}}.{{body}}\"\n"
    ));
    let ran = timed.run(&["check", "--print"]);
    assert!(ran.stdout.contains("timestamp_unit = \"s\""), "{}", ran.stdout);
    assert_eq!(Folder::with(&ran.stdout).run(&["check"]).code, Some(0));
}

#[test]
fn the_example_in_the_manual_is_accepted_by_check() {
    let manual = include_str!("../docs/configuration.md");
    let example = manual.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(
        example.contains("[endpoint.billing]") && example.contains("[destination.refunds]"),
        "it is whole"
    );
    let folder = Folder::with(&example.replace("file:/etc/inboxd/legacy.secret", "file:legacy.secret"));
    folder.write("legacy.secret", SECRET, 0o600);
    let secrets = [("STRIPE_WEBHOOK_SECRET", SECRET), ("STRIPE_BEARER", "Bearer canary_of_stripe")];
    let ran = folder.run_with(&["check"], &secrets);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}

/// The file with every commented key and table in force.
fn uncommented(text: &str) -> String {
    let is_key = |line: &str| {
        let line = line.trim_start_matches("# ");
        line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.trim_end().contains(' '))
    };
    text.lines()
        .map(|line| if is_key(line) { line.trim_start_matches("# ") } else { line })
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn what_init_proposes_in_comments_is_accepted_too_for_every_kind_of_provider() {
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    for provider in ["stripe", "github", "mailgun", "gitlab_token", "svix", "custom", "shopify", "twilio"] {
        let folder = Folder::empty();
        folder.run(&["init", "--provider", provider]);
        fs::create_dir(folder.path().join("handlers")).unwrap();
        let text = fs::read_to_string(folder.path().join("inboxd.toml")).unwrap();
        assert_eq!(text.contains("billing"), provider == "stripe", "{provider}: {text}");
        let all = uncommented(&text).replace("handlers  = [\"billing\"]", "");
        assert!(all.contains("\n[destination.app]\n") && all.contains("\nforward = "), "{all}");
        folder.write("inboxd.toml", &all, 0o644);
        let variable = format!("{}_WEBHOOK_SECRET", provider.to_uppercase());
        let ran = folder.run_with(&["check"], &[(&variable, secret), ("APP_SECRET", secret)]);
        assert_eq!(ran.code, Some(0), "{provider}: {}\n{all}", ran.stderr);
        assert!(!ran.stdout.contains("understands Stripe's events"), "{}", ran.stdout);
    }
}

#[test]
fn init_writes_a_file_for_its_user_alone_and_says_so() {
    let folder = Folder::empty();
    let ran = folder.run(&["init"]);
    assert!(ran.stderr.contains("(mode 0600)"), "{}", ran.stderr);
    let ran = folder.run(&["init", "--systemd", "b.toml"]);
    assert!(ran.stderr.contains("(mode 0640)"), "{}", ran.stderr);
    for (name, mode) in [("inboxd.toml", 0o600), ("b.toml", 0o640)] {
        assert_eq!(
            fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777,
            mode,
            "{name}"
        );
    }
}

#[test]
fn check_notes_that_test_events_are_booked_where_livemode_is_not_set() {
    let note = "endpoint.a.livemode: is not set, so that test events are booked like real ones";
    for (lines, is_noted) in [
        ("handlers = [\"billing\"]", true),
        ("handlers = [\"orders\"]", true),
        ("handlers = [\"billing\"]\nlivemode = false", false),
        ("", false),
    ] {
        let ran = Folder::with(&endpoint(lines)).run(&["check"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stdout.contains(note), is_noted, "{lines}: {}", ran.stdout);
    }
}

#[test]
fn check_warns_of_sql_that_hides_what_it_leaves_out_with_file_and_line() {
    let folder = Folder::with(&endpoint("handlers = [\"sql:shop\"]"));
    fs::create_dir(folder.path().join("shop")).unwrap();
    folder.write(
        "shop/schema.sql",
        "CREATE TABLE IF NOT EXISTS credits (fact TEXT PRIMARY KEY ON CONFLICT REPLACE, cents INTEGER NOT NULL) STRICT;",
        0o644,
    );
    folder.write(
        "shop/charge.succeeded.sql",
        "-- no INSERT OR IGNORE here\nINSERT INTO credits VALUES ('a', 1) ON CONFLICT (fact) DO NOTHING;\n\
         insert or ignore INTO credits VALUES (:id, NULL);\nREPLACE INTO credits VALUES ('b', 2);\n",
        0o644,
    );
    let ran = folder.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for words in [
        "shop/charge.succeeded.sql:3:1: INSERT OR IGNORE leaves out a row that has a NULL",
        "write ON CONFLICT (KEY) DO NOTHING",
        "shop/charge.succeeded.sql:4:1: REPLACE INTO deletes the row that was there",
        "shop/schema.sql:1:59: ON CONFLICT REPLACE deletes",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    assert_eq!(ran.stdout.matches("shop/charge.succeeded.sql:").count(), 2, "{}", ran.stdout);
}

#[test]
fn init_never_overwrites_without_force() {
    let folder = Folder::with("# mine\n");
    let ran = folder.run(&["init"]);
    assert_eq!(ran.code, Some(5));
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(folder.path().join("inboxd.toml")).unwrap(), "# mine\n");
    assert_eq!(folder.run(&["init", "--force", "--endpoint", "pay"]).code, Some(0));
    assert!(fs::read_to_string(folder.path().join("inboxd.toml")).unwrap().contains("[endpoint.pay]"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left behind");
}

#[test]
fn usage_help_and_version_have_their_streams_and_codes() {
    let folder = Folder::empty();
    let unknown = folder.run(&["chek"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    let bare = folder.run(&[]);
    assert_eq!((bare.code, bare.stdout.as_str()), (Some(2), ""));
    let help = folder.run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    let version = folder.run(&["--version"]);
    assert_eq!(version.code, Some(0));
    assert!(
        version.stdout.starts_with(concat!("inboxd ", env!("CARGO_PKG_VERSION"), " (SQLite 3.")),
        "{}",
        version.stdout
    );
}

/// Every verb that does something, as the help lists them.
fn verbs(of: &[&str]) -> Vec<String> {
    let help = Folder::empty().run(&[of, &["--help"]].concat()).stdout;
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return vec![format!("inboxd {}", of.join(" "))];
    };
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.flat_map(|name| verbs(&[of, &[name]].concat())).collect()
}

#[test]
fn the_manual_names_every_verb_and_exit_code() {
    let page = Folder::empty().run(&["man"]).stdout;
    let verbs = verbs(&[]);
    assert!(verbs.contains(&"inboxd serve".to_owned()) && verbs.contains(&"inboxd outbox resume".to_owned()));
    for verb in verbs {
        assert!(page.contains(&format!(".SS \"{verb} [")), "{verb}");
    }
    for section in ["EXIT STATUS", "FILES", "ENVIRONMENT"] {
        assert!(page.contains(section), "{section}");
    }
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "70", "75"] {
        assert!(page.contains(&format!("\\fB{code}\\fR")), "{code}");
    }
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = Folder::empty().run(&["completions", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains("check"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_inboxd"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}
