"""The configurations of the benchmarks, and one measured run of a training program.

A run is watched from outside, in the same way for both programs: the time at which each
`completed step:` line arrives, the CPU time used by then, and the peak resident memory that the
kernel reports when the process has ended.
"""

import dataclasses
import os
import pathlib
import re
import signal
import statistics
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP_LINE = re.compile(rb"completed step: (\d+), seconds: ([\d.]+).* loss: ([-\d.]+|nan)")
RUN_LIMIT_SECONDS = 3600
BUSY = 0.05  # a share of the machine used by others from which figures don't count


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    emb: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    length: int
    window: int

    def parameters(self):
        attention = self.emb * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        norms = 4 * self.emb + 2 * self.head_dim
        layer = attention + 3 * self.emb * self.mlp + norms
        return self.vocab * self.emb + self.layers * layer + self.emb

    def flags(self):
        return [
            "model_name=gemma3-4b", "override_model_config=True",
            f"base_num_decoder_layers={self.layers}", f"base_emb_dim={self.emb}",
            f"base_num_query_heads={self.heads}", f"base_num_kv_heads={self.kv_heads}",
            f"head_dim={self.head_dim}", f"base_mlp_dim={self.mlp}", f"vocab_size={self.vocab}",
            f"max_target_length={self.length}", f"sliding_window_size={self.window}",
        ]


SMALL = Shape(8, 256, 4, 2, 64, 1024, 1024, 512, 128)
SHAPED_270M = Shape(18, 640, 4, 1, 256, 2048, 32768, 1024, 512)


@dataclasses.dataclass(frozen=True)
class Configuration:
    name: str
    shape: Shape
    dtype: str
    devices: int
    speedup: float  # what is promised: tokens/s over MaxText's

    def tokens(self):  # a step; one row a device
        return self.shape.length * self.devices

    def flops(self):  # model FLOPs of a step
        return 6 * self.shape.parameters() * self.tokens()

    def flags(self):
        # The schedule's length is fixed so that runs of 1 and of N steps are the same program.
        return self.shape.flags() + [
            "run_name=bench", "hardware=cpu", "enable_checkpointing=false",
            "dataset_type=synthetic", "scan_layers=True", "per_device_batch_size=1",
            f"dtype={self.dtype}", f"ici_fsdp_parallelism={self.devices}",
            "learning_rate_schedule_steps=20", "log_config=false", "enable_tensorboard=false",
        ]


CONFIGURATIONS = [
    Configuration("small-bf16", SMALL, "bfloat16", 4, 1.5),
    Configuration("270m-f32", SHAPED_270M, "float32", 1, 1.4),
    Configuration("270m-bf16", SHAPED_270M, "bfloat16", 1, 1.7),
]


class Program:
    """A program to measure: how to call it on a configuration."""

    name = ""

    def command(self, configuration, steps, folder):
        raise NotImplementedError

    def environment(self, configuration):
        return dict(os.environ)


class Ours(Program):
    name = "ours"

    def __init__(self, binary, extra=()):
        self.binary = str(binary)
        self.extra = list(extra)

    def command(self, configuration, steps, folder):
        return [self.binary, "train", str(ROOT / "configs/base.yml"), *configuration.flags(),
                f"steps={steps}", f"base_output_directory={folder}/out",
                f"jax_cache_dir={folder}/cache", *self.extra]


class MaxText(Program):
    name = "MaxText"

    def __init__(self, python):
        self.python = str(python)

    def command(self, configuration, steps, folder):
        # Its flash attention does not run on CPU.
        return [self.python, "-u", "-m", "maxtext.trainers.pre_train.train",
                *configuration.flags(), f"steps={steps}", f"base_output_directory={folder}/out",
                f"jax_cache_dir={folder}/cache", "skip_jax_distributed_system=True",
                "attention=dot_product"]

    def environment(self, configuration):
        count = f"--xla_force_host_platform_device_count={configuration.devices}"
        return {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": count}


@dataclasses.dataclass
class Step:
    at: float  # seconds after the command
    cpu: float  # CPU seconds used by then
    loss: float


@dataclasses.dataclass
class Run:
    steps: list
    wall: float
    cpu: float
    peak_mib: float
    others: float  # share of the machine's CPUs that other processes used meanwhile, 0 to 1

    def intervals(self, what):
        """Seconds (`at`) or CPU seconds (`cpu`) between the lines of steps 1, 2, ..., N-2.

        Both programs log a step after the next one has been started, so the first line also holds
        start-up and the last one comes early: neither counts.
        """
        values = [getattr(step, what) for step in self.steps[1:-1]]
        return [b - a for a, b in zip(values, values[1:])]


def cpu_seconds_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds():
    """CPU seconds that all processes have used since boot (user, nice, system, irq, softirq)."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def read_steps(process, start, log):
    steps = []
    for line in process.stdout:
        now = time.monotonic() - start
        log.write(line)
        match = STEP_LINE.search(line)
        if match:
            steps.append(Step(now, cpu_seconds_of(process.pid), float(match[3])))
    return steps


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@dataclasses.dataclass
class Watched:
    """A command seen from outside, from just before its start to its end."""

    seen: object  # what reading its output gave
    status: int
    wall: float
    cpu: float
    peak_mib: float
    others: float  # as in Run


def watch(command, environment, folder, read, **streams):
    """Runs the command in `folder`; read(process, start) reads its output to the end."""
    busy, start = machine_cpu_seconds(), time.monotonic()
    process = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True,
                               **streams)
    timer = threading.Timer(RUN_LIMIT_SECONDS, end_group, [process])
    timer.start()
    try:
        seen = read(process, start)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        end_group(process)
        raise
    finally:
        timer.cancel()
        if process.stdout:
            process.stdout.close()
    wall, cpu = time.monotonic() - start, usage.ru_utime + usage.ru_stime
    others = (machine_cpu_seconds() - busy - cpu) / (wall * (os.cpu_count() or 1))
    return Watched(seen, process.returncode, wall, cpu, usage.ru_maxrss / 1024, max(0.0, others))


def last_lines(path, count=8):
    return b"".join(path.read_bytes().splitlines(True)[-count:]).decode(errors="replace")


def measure(program, configuration, steps, folder):
    """Runs `program` for `steps` steps in `folder`; raises RuntimeError with its last lines."""
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / f"log-{steps}-steps"
    with log_path.open("wb") as log:
        run = watch(program.command(configuration, steps, folder),
                    program.environment(configuration), folder,
                    lambda process, start: read_steps(process, start, log),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.status != 0 or len(run.seen) != steps:
        raise RuntimeError(f"{program.name} ended with status {run.status} after "
                           f"{len(run.seen)} of {steps} steps of {configuration.name}:\n"
                           f"{last_lines(log_path)}")
    return Run(run.seen, run.wall, run.cpu, run.peak_mib, run.others)


def busy_note(all_runs):
    every = [run.others for run in all_runs]
    note = (f"  other processes used {100 * statistics.mean(every):.0f} % of the machine "
            f"on average, {100 * max(every):.0f} % at most")
    if max(every) > BUSY:
        note += ": NOT AN IDLE MACHINE, times and shares do not count; CPU seconds come nearer"
    return note


def median_interval(runs, what):
    return statistics.median(x for run in runs for x in run.intervals(what))
