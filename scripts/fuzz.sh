#!/usr/bin/env bash
# Builds the fuzz targets (src/<room>/*_fuzz.cc) with clang and runs each one for FUZZ_SECONDS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${FUZZ_SECONDS:-60}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(nproc)"
shopt -s nullglob
ran=0
for program in build-fuzz/fuzz_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  name=$(basename "$program")
  corpora=("build-fuzz/corpus/$name")
  mkdir -p "${corpora[0]}"
  # Inputs to start from, where a target has some.
  if [ -d "tests/golden/fuzz/$name" ]; then corpora+=("tests/golden/fuzz/$name"); fi
  echo "fuzz: $name for $seconds s"
  "$program" -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/$name-" "${corpora[@]}" >"build-fuzz/$name.log" 2>&1 || {
    tail -n 40 "build-fuzz/$name.log" >&2
    echo "fuzz: error: $name found a failure; its input is build-fuzz/$name-*" >&2
    exit 1
  }
  grep number_of_executed_units "build-fuzz/$name.log"
  ran=$((ran + 1))
done
echo "fuzz: $ran targets, no failure"
