"""MaxText and ours on the same configurations, in turns. Called by bench/train_vs_maxtext."""

import argparse
import dataclasses
import pathlib
import signal
import statistics
import sys
import tempfile

import machine
import runs


@dataclasses.dataclass
class Side:
    """All runs of one program on one configuration."""

    cold: runs.Run
    warm: runs.Run
    long: list

    def step(self):
        return runs.median_interval(self.long, "at")

    def best_step(self):
        return min(x for run in self.long for x in run.intervals("at"))

    def step_cpu(self):
        return runs.median_interval(self.long, "cpu")

    def first_step(self, run):
        return run.steps[0].at

    def warm_start(self):
        # Its own compile and start-up; a step's time is not start-up.
        return max(0.01, self.first_step(self.warm) - self.step())

    def all_runs(self):
        return [self.cold, self.warm, *self.long]

    def peak_mib(self):
        return max(run.peak_mib for run in self.all_runs())


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="bench/train_vs_maxtext",
        description="Trains the same models with MaxText 0.2.5 and with build/maxtext on the CPU, "
        "in turns, and prints speed, start-up and memory side by side. On 2 cores a full run takes "
        "about 35 minutes and wants an idle machine.")
    names = [c.name for c in runs.CONFIGURATIONS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME",
                        help=f"this configuration (may be repeated): {', '.join(names)}")
    parser.add_argument("--steps", type=int, default=7, help="steps a run, at least 4 (default 7)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of --steps each (default 2)")
    parser.add_argument("--ours", type=pathlib.Path, default=runs.ROOT / "build/maxtext",
                        help="the program to measure (default build/maxtext)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more flag for ours, such as attention=dot_product")
    parser.add_argument("--matmul-peak", type=pathlib.Path,
                        help="the built bench/matmul_peak.cc (default: built in build/)")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True,
                        help="write bench/results/DATE-CPU.txt")
    parser.add_argument("--check", action="store_true", help="exit 1 if a promise isn't kept")
    parser.add_argument("--maxtext-python", type=pathlib.Path, required=True,
                        help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.steps < 4 or options.rounds < 1:
        parser.error("--steps must be at least 4 and --rounds at least 1")
    if not options.ours.exists():
        parser.error(f"{options.ours} is not there: run: make build")
    return options


def progress(text):
    print(text, file=sys.stderr, flush=True)


def measure_both(configuration, programs, options, scratch):
    """Cold, warm and long runs, MaxText and ours in turns; {program name: Side}."""
    taken = {program.name: [] for program in programs}
    plan = [("cold cache", 1), ("warm cache", 1)]
    plan += [(f"round {i + 1}", options.steps) for i in range(options.rounds)]
    for label, steps in plan:
        for program in programs:
            run = runs.measure(program, configuration, steps,
                               scratch / configuration.name / program.name)
            taken[program.name].append(run)
            progress(f"  {configuration.name}, {label}, {program.name}: {run.wall:.1f} s wall, "
                     f"{run.cpu:.1f} s CPU, others used {100 * run.others:.0f} % of the machine")
    return {name: Side(r[0], r[1], r[2:]) for name, r in taken.items()}


def row(label, theirs, ours, form, ratio="", promise="", kept=None):
    verdict = "" if kept is None else ("kept" if kept else "MISSED")
    return (f"  {label:<34}{form.format(theirs):>12}{form.format(ours):>12}{ratio:>9}  "
            f"{promise:<10}{verdict}").rstrip()


def table(configuration, theirs, ours, peak):
    """(lines, whether every promise is kept)"""
    c, lines, kept = configuration, [], []

    def add(label, a, b, form, ratio=None, promise="", ok=None):
        lines.append(row(label, a, b, form, "" if ratio is None else f"{ratio:.2f}x", promise, ok))
        if ok is not None:
            kept.append(ok)

    speedup = theirs.step() / ours.step()
    add("step, median (s)", theirs.step(), ours.step(), "{:.2f}")
    add("step, best (s)", theirs.best_step(), ours.best_step(), "{:.2f}",
        theirs.best_step() / ours.best_step())
    add("step, CPU seconds", theirs.step_cpu(), ours.step_cpu(), "{:.2f}",
        theirs.step_cpu() / ours.step_cpu())
    add("tokens/s", c.tokens() / theirs.step(), c.tokens() / ours.step(), "{:.1f}", speedup,
        f">= {c.speedup}x", speedup >= c.speedup)
    cold = ours.first_step(ours.cold) / theirs.first_step(theirs.cold)
    add("command to step 0, cold cache (s)", theirs.first_step(theirs.cold),
        ours.first_step(ours.cold), "{:.1f}", cold, "<= 0.50x", cold <= 0.5)
    add("command to step 0, warm cache (s)", theirs.first_step(theirs.warm),
        ours.first_step(ours.warm), "{:.1f}")
    warm = ours.warm_start() / theirs.warm_start()
    add("... of it beyond the step (s)", theirs.warm_start(), ours.warm_start(), "{:.2f}", warm,
        "<= 0.10x", warm <= 0.1)
    cpu = ours.cold.steps[0].cpu / theirs.cold.steps[0].cpu
    add("cold step 0, CPU seconds", theirs.cold.steps[0].cpu, ours.cold.steps[0].cpu, "{:.1f}", cpu)
    cpu = ours.warm.steps[0].cpu / theirs.warm.steps[0].cpu
    add("warm step 0, CPU seconds", theirs.warm.steps[0].cpu, ours.warm.steps[0].cpu, "{:.1f}", cpu)
    memory = ours.peak_mib() / theirs.peak_mib()
    add("peak memory, all runs (MiB)", theirs.peak_mib(), ours.peak_mib(), "{:.0f}", memory,
        "<= 1.00x", memory <= 1.0)
    add("peak memory, warm runs (MiB)", max(r.peak_mib for r in theirs.all_runs()[1:]),
        max(r.peak_mib for r in ours.all_runs()[1:]), "{:.0f}")
    if peak:
        add("share of the machine's peak (%)", share(c, theirs.step(), peak),
            share(c, ours.step(), peak), "{:.1f}")
    add("loss at step 0", theirs.cold.steps[0].loss, ours.cold.steps[0].loss, "{:.3f}")
    add("loss at the last step", theirs.long[0].steps[-1].loss, ours.long[0].steps[-1].loss,
        "{:.3f}")
    return lines, all(kept)


def share(configuration, step_seconds, peak):
    return 100 * configuration.flops() / (step_seconds * peak * 1e9)


def find_peak(options):
    program = options.matmul_peak or machine.build("matmul_peak")
    if program is None:
        progress("no matmul_peak program (make build first): the shares of the peak are left out")
        return None
    return machine.peak_gflops(program)


def main(arguments):
    options = parse(arguments)
    ours = runs.Ours(options.ours.resolve(), options.set)
    programs = [runs.MaxText(options.maxtext_python), ours]
    lines = [*machine.description(), "peer      MaxText 0.2.5, jax 0.12.0.1, attention=dot_product",
             f"runs      {options.rounds} x {options.steps} steps, in turns"
             + (f"; ours with {' '.join(options.set)}" if options.set else "")]
    print("\n".join(lines), flush=True)
    peak = find_peak(options)
    if peak:
        lines.append(f"peak      {peak:.0f} GFLOP/s: a 2048 x 2048 float32 product, same plugin")
        print(lines[-1], flush=True)
    blocks, all_kept = compare_all(programs, options, peak)
    if options.save:
        progress(f"saved {machine.save_result(lines + blocks)}")
    return 1 if options.check and not all_kept else 0


def compare_all(programs, options, peak):
    """Measures and prints every configuration asked for; (lines, whether every promise is kept)"""
    lines, all_kept = [], True
    with tempfile.TemporaryDirectory(prefix="train_vs_maxtext.") as scratch:
        for c in runs.CONFIGURATIONS:
            if options.only and c.name not in options.only:
                continue
            sides = measure_both(c, programs, options, pathlib.Path(scratch))
            body, kept = table(c, sides["MaxText"], sides["ours"], peak)
            all_kept = all_kept and kept
            block = ["", f"{c.name}: {c.devices} device(s), {c.tokens()} tokens a step, "
                     f"{c.shape.parameters() / 1e6:.1f} M parameters",
                     f"  {'':<34}{'MaxText':>12}{'ours':>12}{'ratio':>9}  promise", *body,
                     runs.busy_note(run for side in sides.values() for run in side.all_runs())]
            print("\n".join(block), flush=True)
            lines += block
    return lines, all_kept


if __name__ == "__main__":
    # A plain `kill` ends the program being measured too, and removes the scratch folder.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, OSError) as error:
        sys.exit(f"train_vs_maxtext: error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
