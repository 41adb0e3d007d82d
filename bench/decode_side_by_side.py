"""llama.cpp and ours with the same weights, in turns. Called by bench/decode_vs_llama_cpp."""

import argparse
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import decode_runs
import machine
import maxtext_decode
import runs

GENERATION, PREFILL, START, MEMORY = 1.2, 1.8, 1.0, 1.5  # what is promised
TRIES = 3  # of a run that others disturbed
SHORT_PROMPT = 4
Q4_K_M = ".deps/weights/gemma-3-270m-Q4_K_M.gguf"
WEIGHTS = ["q4_k_m", "bf16"]


def progress(text):
    print(text, file=sys.stderr, flush=True)


@dataclasses.dataclass
class Sides:
    """All runs with one file of weights; `long` has the whole prompt, `short` a few words."""

    bench: list  # llama-bench
    peer_long: list
    peer_short: list
    long: list
    short: list
    cold_first_token: float
    bandwidth: float  # GB/s

    def all_runs(self):
        return self.bench + self.peer_long + self.peer_short + self.long + self.short

    def quiet(self):
        return all(run.others <= runs.BUSY for run in self.all_runs())

    def bench_rates(self, key):
        return [run.figures.rates[key] for run in self.bench]

    def weight_gb(self):
        return self.bench[0].figures.weight_bytes / 1e9


@dataclasses.dataclass(frozen=True)
class Row:
    label: str
    peer: list
    ours: list
    form: str
    promise: tuple = ()  # (">=" or "<=", ratio)
    timed: bool = True  # others on the machine spoil it
    judged_by: object = statistics.median

    def ratio(self):
        return self.judged_by(self.ours) / self.judged_by(self.peer)

    def kept(self):
        sign, limit = self.promise
        return self.ratio() >= limit if sign == ">=" else self.ratio() <= limit

    def verdict(self, quiet):
        if not self.promise:
            return ""
        if self.timed and not quiet:
            return "NOT COUNTED"
        return "KEPT" if self.kept() else "MISSED"

    def cell(self, values):
        if not values:
            return "-"
        text = self.form.format(self.judged_by(values))
        if len(values) == 1 or self.judged_by is max:
            return text
        return f"{text} ({self.form.format(min(values))}-{self.form.format(max(values))})"

    def line(self, quiet):
        ratio = f"{self.ratio():.2f}x" if self.peer and self.ours else ""
        promise = f"{self.promise[0]} {self.promise[1]:.2f}x" if self.promise else ""
        cells = f"{self.cell(self.peer):>22}{self.cell(self.ours):>22}{ratio:>8}"
        return f"  {self.label:<42}{cells}  {promise:<10}{self.verdict(quiet)}".rstrip()


def rows_of(sides, work):
    read, made = work.prompt_tokens, work.new_tokens
    short = [run.rates.generation() for run in sides.short]
    tg = sides.bench_rates((0, made, 0))
    share = 100 * sides.weight_gb() / sides.bandwidth
    peers = sides.peer_long + sides.peer_short
    return [
        Row("generation (tokens/s)", tg, short, "{:.1f}", (">=", GENERATION)),
        Row(f"... after {read} tokens", sides.bench_rates((0, made, read)),
            [run.rates.generation() for run in sides.long], "{:.1f}", (">=", GENERATION)),
        Row(f"prefill of {read} tokens (tokens/s)", sides.bench_rates((read, 0, 0)),
            [run.rates.prefill() for run in sides.long], "{:.1f}", (">=", PREFILL)),
        Row(f"command to first token, {read} tokens (s)", [r.first_token for r in sides.peer_long],
            [r.first_token for r in sides.long], "{:.2f}", ("<=", START)),
        Row(f"command to first token, {SHORT_PROMPT} tokens (s)",
            [r.first_token for r in sides.peer_short], [r.first_token for r in sides.short],
            "{:.2f}", ("<=", START)),
        Row("... with a cold compile cache", [], [sides.cold_first_token], "{:.2f}"),
        Row("peak memory, all runs (MiB)", [r.peak_mib for r in peers],
            [r.peak_mib for r in sides.long + sides.short], "{:.0f}", ("<=", MEMORY), False, max),
        Row(f"CPU seconds, {read} tokens and {made} more", [r.cpu for r in sides.peer_long],
            [r.cpu for r in sides.long], "{:.2f}"),
        Row("share of the read bandwidth (%)", [share * x for x in tg], [share * x for x in short],
            "{:.0f}"),
        Row("llama-completion's generation (tokens/s)",
            [run.rates.generation() for run in sides.peer_short], short, "{:.1f}"),
        Row("llama-completion's prefill (tokens/s)",
            [run.rates.prefill() for run in sides.peer_long],
            [run.rates.prefill() for run in sides.long], "{:.1f}"),
    ]


def table(name, sides, work):
    """(lines, whether every promise is kept)"""
    rows, quiet = rows_of(sides, work), sides.quiet()
    lines = ["", f"{name}: {1e3 * sides.weight_gb():.0f} MB of weights a token, plain loops read "
             f"{sides.bandwidth:.1f} GB/s",
             f"  {'':<42}{'llama.cpp':>22}{'ours':>22}{'ratio':>8}  promise",
             *(row.line(quiet) for row in rows), runs.busy_note(sides.all_runs())]
    return lines, all(row.verdict(quiet) in ("", "KEPT") for row in rows)


def undisturbed(label, measure):
    """The first of three runs during which the machine was ours; without one, the quietest."""
    taken = []
    while not taken or (taken[-1].others > runs.BUSY and len(taken) < TRIES):
        taken.append(measure())
        progress(f"  {label}: {taken[-1].cpu:.1f} s CPU, others used "
                 f"{100 * taken[-1].others:.0f} % of the machine")
    return min(taken, key=lambda run: run.others)


def measure_all(name, weights, programs, options, scratch):
    """All runs with one file, after one of each that warms caches and is not counted."""
    llama, ours = programs
    work = decode_runs.Work(options.prompt_tokens, options.new_tokens)
    short = decode_runs.Work(SHORT_PROMPT, options.new_tokens)
    once = lambda program, what: decode_runs.measure(program, weights, what, scratch)  # noqa: E731
    once(llama, short)
    cold = once(ours, short)
    once(ours, work)
    taken = {key: [] for key in ("bench", "peer_long", "long", "peer_short", "short")}
    bandwidths = []
    for i in range(options.rounds):
        bandwidths.append(decode_runs.bandwidth(options.read_bandwidth, scratch))
        plan = {
            "bench": lambda: decode_runs.measure_bench(llama, weights, work, scratch),
            "peer_long": lambda: once(llama, work),
            "long": lambda: once(ours, work),
            "peer_short": lambda: once(llama, short),
            "short": lambda: once(ours, short),
        }
        for key, measure in plan.items():
            taken[key].append(undisturbed(f"{name}, round {i + 1}, {key}", measure))
    return Sides(**taken, cold_first_token=cold.first_token, bandwidth=max(bandwidths)), work


def bf16_file(llama_folder):
    """The same weights in bfloat16, made once by llama.cpp's own quantiser."""
    source, target = runs.ROOT / Q4_K_M, llama_folder / "gemma-3-270m-BF16.gguf"
    if not target.exists():
        part = target.with_suffix(".part")
        command = [llama_folder / "build/bin/llama-quantize", "--allow-requantize", source, part,
                   "BF16"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"llama-quantize could not make {target}:\n{result.stderr[-500:]}")
        part.rename(target)
    return target


def flags_of(name, given):
    """Ours would hold 16-bit weights in float32, its default, unless told otherwise."""
    if name != "bf16" or any(flag.startswith("weight_dtype=") for flag in given):
        return given
    return ["weight_dtype=bfloat16", *given]


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="bench/decode_vs_llama_cpp",
        description="Gemma 3 270M reads a prompt and generates, with llama.cpp and with "
        "build/maxtext in turns on all cores: speed, time to the first token, memory, and the "
        "share of the machine's read bandwidth; then MaxText's own engine with random weights. On "
        "2 cores a full run takes about 15 minutes and wants an idle machine.")
    parser.add_argument("--only", action="append", choices=WEIGHTS, metavar="NAME",
                        help=f"these weights (may be repeated): {', '.join(WEIGHTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--prompt-tokens", type=int, default=512, help="BOS counted (default 512)")
    parser.add_argument("--new-tokens", type=int, default=128, help="default 128")
    parser.add_argument("--ours", type=pathlib.Path, default=runs.ROOT / "build/maxtext",
                        help="the program to measure (default build/maxtext)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more flag for ours, such as dtype=float32")
    parser.add_argument("--read-bandwidth", type=pathlib.Path,
                        help="the built bench/read_bandwidth.cc (default: built in build/)")
    parser.add_argument("--maxtext", action=argparse.BooleanOptionalAction, default=True,
                        help="measure MaxText's engine too")
    parser.add_argument("--save", action="store_true",
                        help="write bench/results/DATE-CPU-decode.txt")
    parser.add_argument("--check", action="store_true", help="exit 1 if a promise isn't kept")
    parser.add_argument("--llama", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--maxtext-python", type=pathlib.Path, help=argparse.SUPPRESS)
    return check_options(parser, parser.parse_args(arguments))


def check_options(parser, options):
    if options.rounds < 1 or options.prompt_tokens < 2 or options.new_tokens < 3:
        parser.error("--rounds must be at least 1, --prompt-tokens 2, --new-tokens 3")
    if options.prompt_tokens == SHORT_PROMPT:
        parser.error(f"--prompt-tokens {SHORT_PROMPT} is the short prompt's already")
    if not options.ours.exists():
        parser.error(f"{options.ours} is not there: run: make build")
    if not (runs.ROOT / Q4_K_M).exists():
        parser.error(f"{Q4_K_M} is not there: run: make setup")
    options.read_bandwidth = options.read_bandwidth or machine.build("read_bandwidth")
    if options.read_bandwidth is None:
        parser.error("bench/read_bandwidth.cc is not built: run: make build")
    options.read_bandwidth = options.read_bandwidth.resolve()
    return options


def compare_all(options, threads, scratch):
    """Measures and prints each file of weights; (lines, whether every promise is kept)"""
    lines, all_kept = [], True
    for name in options.only or WEIGHTS:
        weights = runs.ROOT / Q4_K_M if name == "q4_k_m" else bf16_file(options.llama)
        llama = decode_runs.LlamaCpp(options.llama / "build/bin", threads)
        ours = decode_runs.Ours(options.ours.resolve(), scratch / f"cache-{name}",
                                flags_of(name, options.set))
        sides, work = measure_all(name, weights, (llama, ours), options, scratch)
        block, kept = table(name, sides, work)
        print("\n".join(block), flush=True)
        lines, all_kept = lines + block, all_kept and kept
    return lines, all_kept


def main(arguments):
    options, threads = parse(arguments), len(os.sched_getaffinity(0))
    lines = [*machine.description(), f"peer      llama.cpp of {machine.pinned_llama_cpp()}, "
             f"GGML_NATIVE, {threads} threads",
             f"runs      {options.rounds} of each, in turns: medians (lowest-highest)"
             + (f"; ours with {' '.join(options.set)}" if options.set else "")]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="decode_vs_llama_cpp.") as folder:
        blocks, all_kept = compare_all(options, threads, pathlib.Path(folder))
        if options.maxtext and options.maxtext_python:
            blocks += maxtext_decode.block(options, pathlib.Path(folder))
    if options.save:
        progress(f"saved {machine.save_result(lines + blocks, '-decode')}")
    return 1 if options.check and not all_kept else 0


if __name__ == "__main__":
    # A plain `kill` ends the program being measured too, and removes the scratch folder.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, OSError) as error:
        sys.exit(f"decode_vs_llama_cpp: error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
