#!/bin/sh
# Runs a command that prints "step: N, loss: X" lines; fails unless the last loss is below a fifth of
# the first.
set -eu
"$@" | awk '
  { print }
  /^step: [0-9]+, loss: [0-9.]+$/ { if (!n++) first = $4; last = $4 }
  END {
    if (n < 2 || !(last < first / 5)) { print "the loss did not fall: " first " -> " last; exit 1 }
  }'
