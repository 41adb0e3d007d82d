#!/usr/bin/env bash
# Writes the text goldens under tests/golden anew from what the tests produce now (those that go
# through tests/support/golden.h). Look at `git diff tests/golden` before committing.
# Use: scripts/update_goldens.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
mapfile -t programs < <(grep -l 'support/golden.h' tests/*_test.cc | xargs -n1 basename -s .cc)
cmake --build "$build" --target "${programs[@]}"
for program in "${programs[@]}"; do
  MT_UPDATE_GOLDENS=1 "$build/$program" --gtest_filter='*Golden*'
done
git status --short tests/golden
