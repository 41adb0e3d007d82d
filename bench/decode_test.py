#!/usr/bin/env python3
"""What bench/decode_vs_llama_cpp reads out of both programs' output, and how it judges."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import decode_runs  # noqa: E402
import decode_side_by_side as side_by_side  # noqa: E402
import machine  # noqa: E402
import maxtext_decode  # noqa: E402
import runs  # noqa: E402

OURS = """Cache: 0.7 MB a slot of 36 tokens
Prefill: 512 tokens in 1.250 s (409.6 tokens/s). Generation: 127 steps in 2.540 s (50.0 tokens/s).
Input `I love to` -> ` see`
"""
PEER = """0.00.805.013 I common_perf_print:    samplers time =       1.98 ms /    24 tokens
0.00.805.043 I common_perf_print: prompt eval time =    1024.00 ms /   512 tokens (    2.00 ms per token,   500.00 tokens per second)
0.00.805.057 I common_perf_print:        eval time =    2540.00 ms /   127 runs   (   20.00 ms per token,    50.00 tokens per second)
0.00.805.070 I common_perf_print:       total time =    3564.00 ms /   639 tokens
"""
BENCH = "\n".join(
    f'{{"cpu_info": "x", "model_size": 246587904, "n_prompt": {p}, "n_gen": {g}, "n_depth": {d}, '
    f'"avg_ts": {rate}, "samples_ts": [ {rate} ]}}'
    for p, g, d, rate in [(512, 0, 0, 500.5), (0, 128, 0, 60.25), (0, 128, 512, 55.0)])
WORK = decode_runs.Work(512, 128)


def run_of(prefill, generation, first=1.0, peak=300.0, others=0.0):
    rates = decode_runs.Rates(512, 512 / prefill, 127, 127 / generation)
    return decode_runs.Run(rates, first, 5.0, 6.0, peak, others)


def sides_of(ours, others=0.0):
    """llama.cpp as in BENCH (60.25 and 500.5 tokens/s, 1 s, 300 MiB), and these runs of ours."""
    bench = decode_runs.BenchRun(decode_runs.parse_bench(BENCH), 300.0, 9.0, others)
    peer = run_of(500, 60)
    return side_by_side.Sides(bench=[bench], peer_long=[peer], peer_short=[peer], long=ours,
                              short=ours, cold_first_token=4.0, bandwidth=20.0)


def verdicts(sides):
    return [row.verdict(sides.quiet()) for row in side_by_side.rows_of(sides, WORK) if row.promise]


class Parsing(unittest.TestCase):
    def test_ours(self):
        rates = decode_runs.parse_ours(OURS)
        self.assertEqual((rates.prompt_tokens, rates.steps), (512, 127))
        self.assertAlmostEqual(rates.prefill(), 409.6)
        self.assertAlmostEqual(rates.generation(), 50.0)

    def test_peer(self):
        rates = decode_runs.parse_peer(PEER)
        self.assertEqual((rates.prompt_tokens, rates.steps), (512, 127))
        self.assertAlmostEqual(rates.prefill(), 500.0)
        self.assertAlmostEqual(rates.generation(), 50.0)

    def test_bench(self):
        figures = decode_runs.parse_bench("warming up\n" + BENCH)
        self.assertEqual(figures.weight_bytes, 246587904)
        self.assertEqual(figures.rates,
                         {(512, 0, 0): 500.5, (0, 128, 0): 60.25, (0, 128, 512): 55.0})

    def test_nothing_is_made_up(self):
        for parse in (decode_runs.parse_ours, decode_runs.parse_peer, decode_runs.parse_bench):
            self.assertRaises(ValueError, parse, "")
        self.assertRaises(ValueError, decode_runs.parse_ours, OURS.replace("Generation", "Made"))
        self.assertRaises(ValueError, decode_runs.parse_ours, OURS.replace("1.250", "0.000"))
        # The prompt's line alone must not pass for the generation's.
        only_prompt = "\n".join(PEER.splitlines()[:2])
        self.assertRaises(ValueError, decode_runs.parse_peer, only_prompt)


class FirstToken(unittest.TestCase):
    def first(self, *pieces):
        finder = decode_runs.FirstToken("I love to")
        for at, piece in enumerate(pieces):
            finder.push(piece, at)
        return finder.at

    def test_behind_the_prompt(self):
        self.assertEqual(self.first(b"log\r\nI lo", b"ve to", b" see", b" the"), 2)

    def test_colours_are_no_token(self):
        self.assertEqual(self.first(b"\x1b[33mI love to", b"\x1b", b"[0", b"m", b" see"), 4)

    def test_none(self):
        self.assertIsNone(self.first(b"I love", b" to"))


class Prompt(unittest.TestCase):
    def test_length_and_sameness(self):
        for tokens in (4, 512):
            prompt = decode_runs.prompt_of(tokens)
            self.assertEqual(len(prompt.split()), tokens - 1)
            self.assertEqual(prompt, decode_runs.prompt_of(tokens))


class Script(decode_runs.Ours):
    """A shell script in place of a program."""

    def command(self, weights, work):
        return ["sh", "-c", self.binary]


class Measuring(unittest.TestCase):
    def measure(self, script, work=decode_runs.Work(4, 3)):
        with tempfile.TemporaryDirectory() as folder:
            return decode_runs.measure(Script(script, None), None, work, pathlib.Path(folder))

    def line(self, tokens=4, steps=2):
        return f"echo 'Prefill: {tokens} tokens in 0.1 s. Generation: {steps} steps in 0.1 s'"

    def test_the_first_token_on_a_terminal(self):
        prompt = decode_runs.Work(4, 3).prompt()
        run = self.measure(f"test -t 1 && printf '{prompt}' && sleep 0.3 && echo x && "
                           + self.line())
        self.assertGreater(run.first_token, 0.3)
        self.assertLessEqual(run.first_token, run.wall)

    def test_faults_show_the_last_lines(self):
        prompt = f"printf '{decode_runs.Work(4, 3).prompt()} x';"
        for script, word in [
                ("echo broken >&2; exit 3", "status 3"),
                (prompt + "exit 0", "no line with Prefill"),
                (self.line(), "no token was seen"),
                (prompt + self.line(tokens=5), "read 5 tokens and took 2 steps, not 4 and 2"),
                (prompt + self.line(steps=1), "read 4 tokens and took 1 steps, not 4 and 2")]:
            with self.assertRaisesRegex(RuntimeError, word):
                self.measure(script)
        with self.assertRaisesRegex(RuntimeError, "broken"):
            self.measure("echo broken >&2; exit 3")


class Judging(unittest.TestCase):
    def test_kept_and_missed(self):
        self.assertEqual(verdicts(sides_of([run_of(1000, 80, 0.9, 400)])), ["KEPT"] * 6)
        self.assertEqual(verdicts(sides_of([run_of(800, 65, 1.1, 500)])), ["MISSED"] * 6)

    def test_a_busy_machine_keeps_nothing_but_memory(self):
        sides = sides_of([run_of(1000, 80, 0.9, 400)], others=0.06)
        self.assertEqual(verdicts(sides), ["NOT COUNTED"] * 5 + ["KEPT"])
        lines, kept = side_by_side.table("q4_k_m", sides, WORK)
        self.assertFalse(kept)
        self.assertIn("NOT AN IDLE MACHINE", lines[-1])

    def test_the_table(self):
        ours = [run_of(1000, rate) for rate in (70, 80, 90)]
        lines, kept = side_by_side.table("q4_k_m", sides_of(ours), WORK)
        self.assertTrue(kept)
        self.assertIn("247 MB of weights a token, plain loops read 20.0 GB/s", lines[1])
        self.assertRegex(lines[3], r"generation \(tokens/s\) +60.2 +80.0 \(70.0-90.0\) +1.33x  "
                                   r">= 1.20x  KEPT")
        # 0.2466 GB x 60.25 and x 80 a second, of 20 GB/s
        self.assertRegex("\n".join(lines), r"share of the read bandwidth \(%\) +74 +99")

    def test_disturbed_runs_are_taken_again(self):
        busy, quiet = run_of(1, 1, others=0.5), run_of(2, 2, others=0.01)
        self.assertIs(side_by_side.undisturbed("", iter([busy, quiet]).__next__), quiet)
        less = run_of(1, 1, others=0.2)
        self.assertIs(side_by_side.undisturbed("", iter([busy, less, busy]).__next__), less)


class MaxText(unittest.TestCase):
    def figures(self, script):
        run = runs.watch(["sh", "-c", script], dict(os.environ), "/", maxtext_decode.read_figures,
                         stdout=subprocess.PIPE)
        return run.seen

    def test_figures(self):
        figures = self.figures("""echo noise; echo '{"first_token": true}'
                                  echo '{"prefill": 80.5, "generation": 3.25}'""")
        self.assertEqual((figures.prefill, figures.generation), (80.5, 3.25))
        self.assertGreater(figures.first_token, 0)

    def test_half_of_them_is_none(self):
        self.assertIsNone(self.figures("""echo '{"first_token": true}'"""))


class Flags(unittest.TestCase):
    def test_16_bit_weights_stay_so_unless_told_otherwise(self):
        self.assertEqual(side_by_side.flags_of("q4_k_m", ["a=b"]), ["a=b"])
        self.assertEqual(side_by_side.flags_of("bf16", ["a=b"]), ["weight_dtype=bfloat16", "a=b"])
        self.assertEqual(side_by_side.flags_of("bf16", ["weight_dtype=float32"]),
                         ["weight_dtype=float32"])


class Pins(unittest.TestCase):
    def test_every_requirement_has_its_hash(self):
        text = (runs.ROOT / "bench/requirements-llama-cpp.txt").read_text()
        self.assertEqual(text.count("=="), text.count("--hash=sha256:"))
        self.assertRegex(machine.pinned_llama_cpp(), r"^llama-cpp-python \d")


if __name__ == "__main__":
    side_by_side.progress = lambda text: None
    unittest.main()
