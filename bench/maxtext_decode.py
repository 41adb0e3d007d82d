"""MaxText's decoding of a model of the same size, with random weights, as far as it runs on CPU."""

import dataclasses
import json
import os
import subprocess
import time

import runs

SHAPE_270M = runs.Shape(18, 640, 4, 1, 256, 2048, 262144, 640, 512)
DTYPES = ["float32", "bfloat16"]
DRIVER = runs.ROOT / "bench/maxengine_decode.py"


@dataclasses.dataclass(frozen=True)
class Figures:
    first_token: float  # seconds after the command
    prefill: float  # tokens/s
    generation: float


def flags(dtype, options, folder):
    shape = dataclasses.replace(SHAPE_270M, length=options.prompt_tokens + options.new_tokens)
    # Unscanned is the faster form there for decoding; its flash attention does not run on CPU.
    return [*shape.flags(), "run_name=bench", "hardware=cpu", "enable_checkpointing=false",
            "skip_jax_distributed_system=True", "scan_layers=false", "attention=dot_product",
            f"max_prefill_predict_length={options.prompt_tokens}", "per_device_batch_size=1",
            f"weight_dtype={dtype}", f"dtype={dtype}", "log_config=false",
            f"base_output_directory={folder}/out", f"jax_cache_dir={folder}/cache"]


def read_figures(process, start):
    """Its two JSON lines, the first one by its time; None while one is missing."""
    first = rates = None
    for line in process.stdout:
        if line.startswith(b'{"first_token"'):
            first = time.monotonic() - start
        elif line.startswith(b'{"prefill"'):
            rates = json.loads(line)
    return Figures(first, rates["prefill"], rates["generation"]) if first and rates else None


def watch_python(options, words, folder, read):
    """A run of MaxText's Python; (watched run, the last line that it wrote to stderr)"""
    log_path = folder / "maxtext.log"
    with log_path.open("wb") as log:
        run = runs.watch([str(options.maxtext_python), "-u", *words],
                         {**os.environ, "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}, folder,
                         read, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    return run, runs.last_lines(log_path, 1).strip()


def what_decode_says(options, folder):
    """MaxText's own program, as it is."""
    words = ["-m", "maxtext.inference.decode", *flags("float32", options, folder)]
    run, last = watch_python(options, words, folder, lambda process, _start: process.stdout.read())
    return "ran" if run.status == 0 else last


def measure(dtype, options, folder):
    """The second of two runs, so with a warm compile cache."""
    words = [str(DRIVER), str(options.prompt_tokens), str(options.new_tokens),
             *flags(dtype, options, folder)]
    for _ in range(2):
        run, last = watch_python(options, words, folder, read_figures)
        if run.status != 0 or run.seen is None:
            return f"  {dtype:<10}did not run: {last}"
    figures = run.seen
    busy = "" if run.others <= runs.BUSY else "; NOT AN IDLE MACHINE"
    return (f"  {dtype:<10}prefill {figures.prefill:.1f} tokens/s, generation "
            f"{figures.generation:.1f} tokens/s, command to first token "
            f"{figures.first_token:.1f} s, {run.peak_mib:.0f} MiB{busy}")


def block(options, folder):
    """Measures, prints and returns the lines."""
    lines = ["", "MaxText 0.2.5, the same size with random weights, warm compile cache"]
    lines.append(f"  maxtext.inference.decode: {what_decode_says(options, folder)}")
    print("\n".join(lines), flush=True)
    for dtype in DTYPES:
        scratch = folder / dtype
        scratch.mkdir()
        lines.append(measure(dtype, options, scratch))
        print(lines[-1], flush=True)
    return lines
