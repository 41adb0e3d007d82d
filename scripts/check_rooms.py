#!/usr/bin/env python3
"""Checks every #include under src/ against the table of rooms in docs/ARCHITECTURE.md.

Also: cmake/rooms.cmake links no room that the table forbids, #pragma once in headers, a file's own
header first, project headers by their full path from src/, and no file or folder with a name that
says nothing. Prints one line a finding; the exit status is 1 if there is any. `--self-test` proves
on small made-up trees that each rule can fail.
"""

import pathlib
import re
import sys
import tempfile

BANNED = {"util", "utils", "common", "helper", "helpers", "misc", "manager"}
FREE_LIBRARIES = {"fmt", "gtest", "gmock"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CMAKE_ROOM = re.compile(r"^\s*mt_room\(([^)]*)\)", re.MULTILINE)


def read_table(text):
    """Returns ({room: set of rooms}, {library: room}) from the markdown table under "## Rooms"."""
    section = text.split("\n## Rooms\n", 1)[1].split("\n## ", 1)[0]
    arrows, owners = {}, {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4 or cells[0] == "room" or set(cells[0]) <= {"-"}:
            continue
        room, _, may, libraries = cells
        arrows[room] = {name.strip() for name in may.split(",")} - {"-"}
        for library in {name.strip() for name in libraries.split(",")} - {"-"}:
            owners[library] = room
    return arrows, owners


def check_table(arrows):
    """The rows are in an order in which arrows only point up, so that there is no cycle."""
    seen = set()
    for room, may in arrows.items():
        for target in sorted(may - seen):
            yield f"docs/ARCHITECTURE.md: room {room} may include {target}, which is not a row above it"
        seen.add(room)


def check_cmake(text, arrows):
    listed = set()
    for match in CMAKE_ROOM.finditer(text):
        room, *links = match.group(1).split()
        if room.startswith("$"):
            continue
        listed.add(room)
        if room not in arrows:
            yield f"cmake/rooms.cmake: room {room} is not in docs/ARCHITECTURE.md"
            continue
        for link in links:
            # Linking a room that is reached through another one adds nothing and allows nothing.
            if link not in reachable(room, arrows):
                yield f"cmake/rooms.cmake: room {room} may not link {link}"
    for room in arrows:
        if room not in listed:
            yield f"cmake/rooms.cmake: room {room} of docs/ARCHITECTURE.md is missing"


def reachable(room, arrows):
    found, todo = set(), [room]
    while todo:
        for target in arrows.get(todo.pop(), set()) - found:
            found.add(target)
            todo.append(target)
    return found


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_include(room, src, quoted, name, arrows, owners):
    """Returns what is wrong with one include, or None."""
    first = name.split("/", 1)[0]
    if quoted:
        if not (src / name).is_file():
            return f'"{name}" is not a file under src/ (third party goes in <>, our own by full path)'
        if first != room and first not in arrows[room]:
            return f"room {room} may not include {first} (docs/ARCHITECTURE.md)"
        return None
    if (src / name).is_file():
        return f"<{name}> is ours: write it in quotes"
    if first in owners and owners[first] != room:
        return f"only room {owners[first]} may include <{first}>"
    if "/" in name and first not in owners and first not in FREE_LIBRARIES and first not in SYSTEM_FOLDERS:
        return f"<{name}>: library {first} is not in the table of docs/ARCHITECTURE.md"
    return None


SYSTEM_FOLDERS = {"sys", "linux", "netinet", "arpa", "bits", "experimental"}


def check_source(path, src, arrows, owners):
    relative = path.relative_to(src)
    room = relative.parts[0]
    found = list(includes(path))
    for number, quoted, name in found:
        problem = check_include(room, src, quoted, name, arrows, owners)
        if problem:
            yield f"src/{relative}:{number}: {problem}"
    if path.suffix == ".h" and "#pragma once" not in path.read_text(encoding="utf-8").splitlines():
        yield f"src/{relative}:1: header without #pragma once"
    own = relative.with_suffix(".h")
    if path.suffix == ".cc" and (src / own).is_file() and (not found or found[0][2] != str(own)):
        yield f'src/{relative}:1: the first include must be its own header, "{own}"'


def check_names(root):
    for folder in ("src", "apps", "tests", "bench", "examples"):
        for path in sorted((root / folder).rglob("*")):
            words = set(re.split(r"[_\-.]", path.name.lower()))
            if path.suffix not in {".pyc"} and words & BANNED:
                yield f"{path.relative_to(root)}: name it after the thing it holds, not {sorted(words & BANNED)[0]}"


def check(root):
    arrows, owners = read_table((root / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
    src = root / "src"
    findings = list(check_table(arrows))
    findings += check_cmake((root / "cmake/rooms.cmake").read_text(encoding="utf-8"), arrows)
    findings += check_names(root)
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        room = path.relative_to(src).parts[0]
        if room not in arrows:
            findings.append(f"{path.relative_to(root)}: room {room} is not in docs/ARCHITECTURE.md")
            continue
        findings += check_source(path, src, arrows, owners)
    return findings


GOOD = {
    "docs/ARCHITECTURE.md": "# A\n\n## Rooms\n\n| room | holds | may include | third party |\n|---|---|---|---|\n"
                            "| base | x | - | nlohmann |\n| ir | x | base | - |\n\n## B\n",
    "cmake/rooms.cmake": "mt_room(base)\nmt_room(ir base)\n",
    "src/base/a.h": "#pragma once\n#include <sys/mman.h>\n#include <vector>\n",
    "src/base/a.cc": '#include "base/a.h"\n\n#include <nlohmann/json.hpp>\n',
    "src/ir/b.h": '#pragma once\n#include <fmt/core.h>\n#include "base/a.h"\n',
}
BAD = {  # each is one change to GOOD, and a part of the finding it must cause
    "an arrow against the table": ({"src/base/c.h": '#pragma once\n#include "ir/b.h"\n'}, "may not include ir"),
    "a room that is not listed": ({"src/junk/c.h": "#pragma once\n"}, "room junk is not in"),
    "a library of another room": ({"src/ir/c.h": "#pragma once\n#include <nlohmann/json.hpp>\n"}, "only room base"),
    "an unknown library": ({"src/ir/c.h": "#pragma once\n#include <boost/any.hpp>\n"}, "library boost"),
    "a path not from src": ({"src/ir/c.h": '#pragma once\n#include "b.h"\n'}, "not a file under src/"),
    "our header in <>": ({"src/ir/c.h": "#pragma once\n#include <base/a.h>\n"}, "write it in quotes"),
    "no #pragma once": ({"src/ir/c.h": "\n"}, "without #pragma once"),
    "own header not first": ({"src/base/a.cc": '#include <vector>\n\n#include "base/a.h"\n'}, "first include"),
    "a banned name": ({"src/ir/string_utils.h": "#pragma once\n"}, "not utils"),
    "a cycle": ({"docs/ARCHITECTURE.md": GOOD["docs/ARCHITECTURE.md"].replace("| x | - |", "| x | ir |")},
                "not a row above"),
    "a link against the table": ({"cmake/rooms.cmake": "mt_room(base ir)\nmt_room(ir base)\n"}, "may not link ir"),
    "a room missing in CMake": ({"cmake/rooms.cmake": "mt_room(base)\n"}, "room ir of"),
}


def findings_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return check(root)


def self_test():
    failures = [f"a good tree: unexpected {finding}" for finding in findings_of(GOOD)]
    for title, (change, expected) in BAD.items():
        findings = findings_of({**GOOD, **change})
        if len(findings) != 1 or expected not in findings[0]:
            failures.append(f"{title}: expected one finding with '{expected}', got {findings}")
    return failures


def main():
    testing = sys.argv[1:] == ["--self-test"]
    findings = self_test() if testing else check(pathlib.Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(f"check_rooms: {finding}", file=sys.stderr)
    if findings:
        return 1
    print(f"check_rooms: {len(BAD)} rules can fail" if testing else "check_rooms: includes, arrows and names are in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
