#!/usr/bin/env bash
# Style checks that need no build: clang-format, and a few things that no tool looks for.
# --fix runs clang-format in place first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
complain() {
  printf 'check_style: %s\n' "$*" >&2
  failed=1
}

# Tracked and new files, without what git ignores; from an unpacked archive, all of them.
list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@"
  else
    find . \( -path './.deps' -o -path './build*' -o -path './out' \) -prune -o -type f -print | sed 's|^\./||'
  fi | sort -u | while read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
}
mapfile -t files < <(list_files .)
mapfile -t sources < <(printf '%s\n' "${files[@]}" | grep -E '\.(h|cc)$' || true)
mapfile -t texts < <(printf '%s\n' "${files[@]}" |
  grep -E '\.(h|cc|py|sh|md|yml|cmake|json|txt|mlir)$|^(Makefile|NOTICE)$|^\.ci/|^bench/[a-z_]+$' |
  grep -vE '^tests/golden/' || true)

if command -v clang-format >/dev/null; then
  [ "${1:-}" != --fix ] || clang-format -i "${sources[@]}"
  mapfile -t unformatted < <(printf '%s\0' "${sources[@]}" |
    xargs -0 -n 20 clang-format --dry-run --Werror 2>&1 | sed -n 's/^\([^:]*\):.*error:.*/\1/p' | sort -u)
  for file in "${unformatted[@]}"; do complain "$file: not formatted (make format)"; done
elif [ "${1:-}" = --fix ]; then
  complain "clang-format is not installed: run: make setup"
else
  echo "check_style: clang-format is not installed, formatting not checked here"
fi

# report WHAT FILES...: every line of grep's output on stdin is a finding.
report() { while IFS= read -r line; do complain "$line: $1"; done; }
report "space at the end of the line" < <(grep -nE '[[:space:]]+$' "${texts[@]}" | cut -d: -f1,2)
report "using namespace" < <(grep -nE '^[[:space:]]*using namespace' "${sources[@]}" | cut -d: -f1,2)
report "TODO without an issue number" < <(grep -nE 'TODO|FIXME' "${sources[@]}" | grep -vE 'TODO\(#[0-9]+\)' | cut -d: -f1,2)
# Pieced together so that this file does not find itself.
places="/(work|home/[a-z]+)/|/""root/|\.\./""shared|pypi\.""org|deb\.debian\.""org|files\.""pythonhosted"
report "names a place of one machine, or a registry's address" < <(grep -nE "$places" "${texts[@]}" |
  grep -vE '/home/(x|me|user)/' | cut -d: -f1,2)
for file in "${files[@]}"; do
  size=$(stat -c %s "$file")
  [ "$size" -le 2000000 ] || complain "$file: $size bytes is too large for git (at most 2 MB)"
done

[ "$failed" = 0 ] || exit 1
echo "check_style: ${#sources[@]} sources and ${#texts[@]} texts are in order"
