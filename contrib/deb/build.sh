#!/bin/sh
# Builds the Debian package: the release binary, its manual page and completions, then cargo-deb (cargo install cargo-deb).
#   contrib/deb/build.sh          # prints the path of the package
set -eu
cd "$(dirname "$0")/../.."
[ "${INBOXD_NO_BUILD:-}" ] || cargo build --release --locked >&2
binary=target/release/inboxd
out=target/deb
mkdir -p "$out"
"$binary" man > "$out/inboxd.1"
"$binary" completions bash > "$out/inboxd.bash"
"$binary" completions zsh > "$out/_inboxd"
"$binary" completions fish > "$out/inboxd.fish"
cargo deb --no-build --locked
