#!/usr/bin/env bash
# Says in words whether the tests with the label gpu run here. With --required, fails if they can't.
set -euo pipefail
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  echo "GPU tests: this machine has an NVIDIA GPU; make test-gpu runs them."
  exit 0
fi
echo "GPU tests: not run here (no NVIDIA GPU). On a machine with one: make test-gpu"
[ "${1:-}" != --required ]
