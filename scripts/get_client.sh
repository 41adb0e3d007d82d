#!/usr/bin/env bash
# Puts a Python package that a test holds us against into .deps/NAME, from the pinned wheels of
# scripts/requirements-NAME.txt (hashes checked). Done at once when it is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:?which package: tensorboard or openai}
list=scripts/requirements-$name.txt
target=.deps/$name
wanted=$(sha256sum <"$list")
if [ "$(cat "$target/done" 2>/dev/null)" = "$wanted" ] && [ -x "$target/python" ]; then exit 0; fi

die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# Compiled wheels are for one version of Python each, so the one that installs is the one that runs.
python=
for candidate in /usr/bin/python3 python3; do
  if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null &&
    "$candidate" -m pip --version >/dev/null 2>&1; then
    python=$("$candidate" -c 'import sys; print(sys.executable)')
    break
  fi
done
[ -n "$python" ] || die "no Python 3.11 to 3.13 with pip found: run: apt-get install python3-pip"

printf 'setup: downloading %s for the tests\n' "$name"
rm -rf "$target"
mkdir -p "$target"
env -u PIP_CONSTRAINT PIP_REQUIRE_VIRTUALENV=0 "$python" -m pip install --quiet --no-deps \
  --require-hashes --only-binary=:all: --no-cache-dir --disable-pip-version-check \
  --root-user-action=ignore --target "$target/lib" -r "$list" >"$target/log" 2>&1 || {
  tail -n 5 "$target/log" >&2
  die "pip could not install $list: check the network and pip's index (PIP_INDEX_URL, PIP_CERT), then run again"
}
ln -s "$python" "$target/python"
printf '%s\n' "$wanted" >"$target/done"
