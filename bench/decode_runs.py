"""One measured run of a decoding program, and what its output says.

Generation runs on a pseudo-terminal, as for a person: both programs then show each token as it is
made, so the first byte behind the prompt's echo is the first token. Rates are the programs' own.
"""

import dataclasses
import errno
import json
import os
import pathlib
import random
import re
import subprocess
import time

import runs

# Each is one token of Gemma's vocabulary with the space before it, so n of them and a BOS are n + 1
# tokens; what the programs say that they have read is checked all the same.
WORDS = ("the of and to in is was for on as with by he at from his an were are which this be had "
         "or that not but have one new her she they who been has more when first all two their out "
         "up time after only some could would other into than then them these made over did "
         "many").split()
OURS_PREFILL = re.compile(r"Prefill: (\d+) tokens in ([\d.]+) s")
OURS_GENERATION = re.compile(r"Generation: (\d+) steps in ([\d.]+) s")
PEER_PREFILL = re.compile(r"prompt eval time\s*=\s*([\d.]+) ms\s*/\s*(\d+) tokens")
PEER_GENERATION = re.compile(r"[^t] eval time\s*=\s*([\d.]+) ms\s*/\s*(\d+) runs")


def prompt_of(tokens):
    """A text of so many tokens, BOS counted; the same one each time."""
    return " ".join(random.Random(tokens).choices(WORDS, k=tokens - 1))


@dataclasses.dataclass(frozen=True)
class Work:
    """A prompt to read and tokens to make."""

    prompt_tokens: int
    new_tokens: int

    def prompt(self):
        return prompt_of(self.prompt_tokens)

    def length(self):
        return self.prompt_tokens + self.new_tokens


@dataclasses.dataclass(frozen=True)
class Rates:
    """A program's own account: tokens read and made after the first one, with their seconds."""

    prompt_tokens: int
    prefill_seconds: float
    steps: int
    generation_seconds: float

    def prefill(self):
        return self.prompt_tokens / self.prefill_seconds

    def generation(self):
        return self.steps / self.generation_seconds


def rates_of(prefill, generation):
    (prompt_tokens, prefill_seconds), (steps, generation_seconds) = prefill, generation
    if prefill_seconds <= 0 or generation_seconds <= 0:
        raise ValueError("a rate over no time")
    return Rates(int(prompt_tokens), prefill_seconds, int(steps), generation_seconds)


def parse_ours(text):
    """The line "Prefill: N tokens in S s (...). Generation: N steps in S s (...)."."""
    prefill, generation = OURS_PREFILL.search(text), OURS_GENERATION.search(text)
    if not prefill or not generation:
        raise ValueError("no line with Prefill: and Generation:")
    return rates_of((prefill[1], float(prefill[2])), (generation[1], float(generation[2])))


def parse_peer(text):
    """llama.cpp's lines "prompt eval time = MS ms / N tokens" and "eval time = MS ms / N runs"."""
    prefill, generation = PEER_PREFILL.search(text), PEER_GENERATION.search(text)
    if not prefill or not generation:
        raise ValueError("no lines with prompt eval time and eval time")
    return rates_of((prefill[2], float(prefill[1]) / 1e3),
                    (generation[2], float(generation[1]) / 1e3))


@dataclasses.dataclass(frozen=True)
class BenchFigures:
    """What `llama-bench -o jsonl` says, tokens/s by (prompt, new tokens, depth)."""

    rates: dict
    weight_bytes: int  # of all tensors: the tied table is among them once, and read once a token
    build: str


def parse_bench(text):
    tests = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if not tests:
        raise ValueError("no JSON line")
    rates = {(t["n_prompt"], t["n_gen"], t["n_depth"]): float(t["avg_ts"]) for t in tests}
    return BenchFigures(rates, int(tests[0]["model_size"]), str(tests[0]["cpu_info"]))


class FirstToken:
    """Finds when a terminal first shows something behind the prompt's echo."""

    def __init__(self, prompt):
        self.prompt = prompt.encode()
        self.shown = b""
        self.at = None

    def push(self, data, now):
        self.shown += data
        if self.at is not None:
            return
        begin = self.shown.find(self.prompt)
        # Colours and cursor movements are no token.
        rest = self.shown[begin + len(self.prompt):] if begin >= 0 else b""
        if re.sub(rb"\x1b(\[[0-9;?]*[A-Za-z]?)?", b"", rest):
            self.at = now


def read_terminal(master, slave, first):
    def read(_process, start):
        os.close(slave)
        while True:
            try:
                data = os.read(master, 65536)
            except OSError as error:  # how Linux tells that the last writer has gone
                if error.errno == errno.EIO:
                    return first
                raise
            if not data:
                return first
            first.push(data, time.monotonic() - start)
    return read


@dataclasses.dataclass(frozen=True)
class Run:
    rates: Rates
    first_token: float  # seconds after the command
    wall: float
    cpu: float
    peak_mib: float
    others: float  # share of the machine's CPUs that other processes used meanwhile, 0 to 1


class Ours:
    name = "ours"
    parse = staticmethod(parse_ours)

    def __init__(self, binary, cache, extra=()):
        self.binary, self.cache, self.extra = str(binary), cache, list(extra)

    def command(self, weights, work):
        return [self.binary, "decode", "model_name=gemma3-270m", f"load_parameters_path={weights}",
                f"max_prefill_predict_length={work.prompt_tokens}",
                f"max_target_length={work.length()}", f"prompt={work.prompt()}",
                "ignore_eos=true", "prompt_lookup_num_tokens=0", "log_config=false", f"jax_cache_dir={self.cache}", *self.extra]


class LlamaCpp:
    name = "llama.cpp"
    parse = staticmethod(parse_peer)

    def __init__(self, folder, threads):
        self.folder, self.threads = folder, threads

    def command(self, weights, work):
        # A context of this length, as ours has; no trial run before the prompt, which would come on
        # top of the time to the first token, and no search for a GPU's layers.
        return [str(self.folder / "llama-completion"), "-m", str(weights), "-t", str(self.threads),
                "-p", work.prompt(), "-n", str(work.new_tokens), "-c", str(work.length()),
                "-no-cnv", "--ignore-eos", "--temp", "0", "--no-warmup", "-fit", "off", "--perf"]

    def bench_command(self, weights, work):
        return [str(self.folder / "llama-bench"), "-m", str(weights), "-t", str(self.threads),
                "-p", str(work.prompt_tokens), "-n", str(work.new_tokens),
                "-d", f"0,{work.prompt_tokens}", "-r", "1", "-o", "jsonl"]


def measure(program, weights, work, folder):
    """One run of `program`; RuntimeError with its last lines if it fails or does other work."""
    folder.mkdir(parents=True, exist_ok=True)
    log_path, first = folder / f"{program.name}.log", FirstToken(work.prompt())
    master, slave = os.openpty()
    try:
        with log_path.open("wb") as log:
            run = runs.watch(program.command(weights, work), dict(os.environ), folder,
                             read_terminal(master, slave, first), stdin=subprocess.DEVNULL,
                             stdout=slave, stderr=log)
    finally:
        os.close(master)
    log_path.write_bytes(log_path.read_bytes() + first.shown)
    return finish(program, work, run, log_path)


def finish(program, work, run, log_path):
    trouble = f"ended with status {run.status}"
    if run.status == 0:
        try:
            rates = program.parse(log_path.read_text(errors="replace"))
            if run.seen.at is None:
                raise ValueError("no token was seen behind the prompt")
            if (rates.prompt_tokens, rates.steps) == (work.prompt_tokens, work.new_tokens - 1):
                return Run(rates, run.seen.at, run.wall, run.cpu, run.peak_mib, run.others)
            trouble = (f"read {rates.prompt_tokens} tokens and took {rates.steps} steps, "
                       f"not {work.prompt_tokens} and {work.new_tokens - 1}")
        except ValueError as error:
            trouble = f"printed something else than expected: {error}"
    raise RuntimeError(f"{program.name}: {trouble}:\n{runs.last_lines(log_path)}")


@dataclasses.dataclass(frozen=True)
class BenchRun:
    figures: BenchFigures
    peak_mib: float
    cpu: float
    others: float


def run_for_json(name, command, folder, parse, environment=None):
    """Runs a program that prints JSON on stdout; (what `parse` makes of it, the watched run)."""
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / f"{pathlib.Path(command[0]).name}.log"
    with log_path.open("wb") as log:
        run = runs.watch([str(word) for word in command], environment or dict(os.environ), folder,
                         lambda process, _start: process.stdout.read(),
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    try:
        if run.status != 0:
            raise ValueError(f"status {run.status}")
        return parse(run.seen.decode()), run
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"{name} failed ({error}):\n{runs.last_lines(log_path)}") from error


def measure_bench(llama, weights, work, folder):
    figures, run = run_for_json("llama-bench", llama.bench_command(weights, work), folder,
                                parse_bench)
    return BenchRun(figures, run.peak_mib, run.cpu, run.others)


def bandwidth(program, folder):
    """GB/s that plain read loops reach on all threads."""
    return run_for_json("read_bandwidth", [program], folder,
                        lambda text: json.loads(text)["best_gb_per_second"])[0]
