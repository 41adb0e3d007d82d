"""What a result must name to be worth anything later: machine, plugin, commit; and the peak."""

import datetime
import json
import os
import pathlib
import re
import subprocess

from runs import ROOT


def output_of(*command):
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def cpu_model():
    match = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return match[1] if match else os.uname().machine


def vector_flags():
    match = re.search(r"^flags\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    have = set(match[1].split()) if match else set()
    wanted = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"]
    return " ".join(flag if flag in have else f"(no {flag})" for flag in wanted)


def memory_gib():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def commit():
    name = output_of("git", "describe", "--always", "--dirty", "--abbrev=12")
    return name or "unknown (not a git checkout)"


def plugin():
    pins = (ROOT / "scripts/requirements-wheels.txt").read_text()
    match = re.search(r"^(lammps-jax-pjrt-cpu)==(\S+)", pins, re.M)
    return f"{match[1]} {match[2]}" if match else "unknown"


def pinned_llama_cpp():
    pins = (ROOT / "bench/requirements-llama-cpp.txt").read_text()
    match = re.search(r"^(llama-cpp-python)==(\S+)", pins, re.M)
    return f"{match[1]} {match[2]}"


def description():
    now = datetime.datetime.now(datetime.timezone.utc)
    return [
        f"date      {now:%Y-%m-%d %H:%M} UTC",
        f"machine   {cpu_model()}, {os.cpu_count()} CPUs, {memory_gib():.1f} GiB; {vector_flags()}",
        f"ours      commit {commit()}, plugin {plugin()}",
    ]


def result_path(what=""):
    cpu = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(.*?\)", "", cpu_model().lower())).strip("-")
    return ROOT / "bench/results" / f"{datetime.date.today():%Y-%m-%d}-{cpu}{what}.txt"


def save_result(lines, what=""):
    path = result_path(what)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path.relative_to(ROOT)


def build(target):
    """The program of bench/TARGET.cc, built in build/ if that is configured; None otherwise."""
    program = ROOT / "build" / target
    if (ROOT / "build/CMakeCache.txt").exists():
        subprocess.run(["cmake", "--build", ROOT / "build", "--target", target],
                       stdout=subprocess.DEVNULL, check=False)
    return program if program.exists() else None


def peak_gflops(program):
    """The machine's peak by a plain float32 matrix product through the plugin: best of its runs."""
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return json.loads(result.stdout)["best_gflops"]
