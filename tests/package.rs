//! The Debian package and the image: what they name exists, their scripts are well-formed, their configuration is one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifest() -> toml::Table {
    fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap()
}

#[test]
fn what_the_package_names_is_there() {
    let manifest = manifest();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap();
    for asset in assets.iter().map(|asset| asset[0].as_str().unwrap()) {
        // what the build makes is not there before it
        let is_made = asset.starts_with("target/");
        let folder = asset.strip_suffix("/*.md");
        assert!(is_made || root().join(folder.unwrap_or(asset)).exists(), "{asset}");
    }
    let changelog = fs::read_to_string(root().join(deb["changelog"].as_str().unwrap())).unwrap();
    let version = manifest["package"]["version"].as_str().unwrap();
    assert!(changelog.starts_with(&format!("inboxd ({version}-")), "{changelog}");
    let installed: Vec<_> = assets.iter().map(|asset| asset[1].as_str().unwrap()).collect();
    for wanted in deb["conf-files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()) {
        assert!(installed.contains(&wanted.trim_start_matches('/')), "{wanted}");
    }
}

#[test]
fn the_scripts_are_well_formed_and_start_nothing() {
    let folder = root().join("contrib/deb/scripts");
    for script in ["postinst", "prerm", "postrm"]
        .map(|name| folder.join(name))
        .into_iter()
        .chain([root().join("contrib/deb/build.sh")])
    {
        let judged = Command::new("sh").arg("-n").arg(&script).status().unwrap();
        assert!(judged.success(), "{}", script.display());
        let text = fs::read_to_string(&script).unwrap();
        assert!(
            !text.contains("systemctl start") && !text.contains("systemctl enable"),
            "{}",
            script.display()
        );
    }
}

#[test]
fn the_configuration_of_the_package_is_one_and_receives_nothing_yet() {
    let text = fs::read_to_string(root().join("contrib/deb/inboxd.toml")).unwrap();
    let dir = support::folder(&text, &[]);
    let ran = support::inboxd(dir.path(), &["check"]);
    assert!(ran.code == 0 && ran.stdout.contains("there is no endpoint"), "{ran:?}");
}

#[test]
fn the_image_runs_as_a_user_and_asks_for_its_health() {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    for line in ["USER 10001", "VOLUME /data", "CMD [\"serve\"]"] {
        assert!(text.lines().any(|known| known == line), "{line}");
    }
    assert!(
        text.contains("\"health\"]")
            && text.contains("ENTRYPOINT [\"inboxd\", \"--config\", \"/etc/inboxd/inboxd.toml\"]")
    );
}
