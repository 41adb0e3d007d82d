"""OpenAI's own Python client against `maxtext serve` with the real Gemma 3 270M.

Run by ctest as: openai_client_test.py MAXTEXT; scripts/get_client.sh openai fetches the client.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
import time
import unittest
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, ".deps/openai/lib"))

import openai  # noqa: E402

MAXTEXT = sys.argv.pop(1)
MODEL = "gemma3-270m"
KEY = "a secret"
PROMPT = "The capital of France is"
ROUNDS = int(os.environ.get("MT_ROUNDS", "1"))  # of the prompts at once


def start_server():
    """The program and its address; it tells its free port itself."""
    process = subprocess.Popen(
        [MAXTEXT, "serve", f"model_name={MODEL}", "port=0", f"api_key={KEY}",
         "load_parameters_path=.deps/weights/gemma-3-270m-Q4_K_M.gguf",
         "max_target_length=128", "max_concurrent_decodes=4", "dtype=float32"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"Serving at (http://\S+)", line):
            return process, found[1]
    raise AssertionError("the server ended: " + "".join(said))


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process, cls.url = start_server()
        # One line per request stays below what a pipe holds only for a while.
        cls.drain = subprocess.Popen(["cat"], stdin=cls.process.stdout, stdout=subprocess.DEVNULL)
        cls.client = openai.OpenAI(base_url=cls.url + "/v1", api_key=KEY, max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        code = cls.process.wait(timeout=60)
        cls.drain.wait()
        assert code == 0, f"SIGTERM: exit status {code}"

    def complete(self, prompt=PROMPT, **fields):
        fields = {"temperature": 0, "max_tokens": 8} | fields
        return self.client.completions.create(model=MODEL, prompt=prompt, **fields)

    def metric(self, name):
        request = urllib.request.Request(self.url + "/metrics", headers={"Authorization": "Bearer " + KEY})
        text = urllib.request.urlopen(request).read().decode()
        return float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])

    def test_completion_speaks_of_france_and_counts_its_tokens(self):
        answer = self.complete()
        self.assertIn("France", answer.choices[0].text)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.prompt_tokens, 6)  # <bos> and five words
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertEqual(answer.usage.total_tokens, 14)

    def test_stream_is_the_whole_answer_in_pieces(self):
        pieces = list(self.complete(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.text for p in pieces for c in p.choices)
        self.assertEqual(text, self.complete().choices[0].text)
        self.assertEqual(pieces[-1].usage.completion_tokens, 8)

    def test_chat_is_the_same_streamed_and_whole(self):
        fields = {"model": MODEL, "temperature": 0, "max_tokens": 8,
                  "messages": [{"role": "user", "content": "Name a colour."}]}
        whole = self.client.chat.completions.create(**fields)
        pieces = self.client.chat.completions.create(stream=True, **fields)
        text = "".join(c.delta.content or "" for p in pieces for c in p.choices)
        self.assertEqual(text, whole.choices[0].message.content)

    def test_log_probs_of_echoed_prompt_and_of_output(self):
        choice = self.complete(logprobs=2, echo=True, max_tokens=4).choices[0]
        self.assertTrue(choice.text.startswith(PROMPT))
        p = choice.logprobs
        self.assertEqual(len(p.tokens), 6 + 4)
        self.assertIsNone(p.token_logprobs[0])
        for token, log_prob, top in list(zip(p.tokens, p.token_logprobs, p.top_logprobs))[-4:]:
            # Greedy; the two are less by sums over the vocabulary that are taken apart, in float32.
            self.assertAlmostEqual(log_prob, max(top.values()), delta=1e-5)
            self.assertAlmostEqual(log_prob, top[token], delta=1e-5)

    def test_n_and_seed(self):
        fields = {"temperature": 1, "n": 3, "seed": 7}
        first, again = self.complete(**fields), self.complete(**fields)
        texts = {c.index: c.text for c in first.choices}
        self.assertEqual(sorted(texts), [0, 1, 2])
        self.assertGreater(len(set(texts.values())), 1)
        self.assertEqual(texts, {c.index: c.text for c in again.choices})

    def test_stop_leaves_the_stop_text_out(self):
        whole = self.complete().choices[0].text
        stop = whole[len(whole) // 2:][:4]
        choice = self.complete(stop=[stop]).choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(choice.text, whole[:whole.index(stop)])

    def test_errors_are_the_clients_own_classes(self):
        for field, value in (("temperature", 3), ("max_tokens", -1), ("n", 0), ("suffix", "x")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.complete(**{field: value})
            self.assertEqual(caught.exception.param, field)
            self.assertIn(field, str(caught.exception))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt="word " * 200)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="another", prompt="x")
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])

    def test_abandoned_streams_leave_the_slots_free(self):
        for _ in range(8):  # twice the slots
            stream = self.complete(prompt="Once upon a time", max_tokens=100, stream=True,
                                   extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
        until = time.monotonic() + 5
        while self.metric("maxtext_requests_active") > 0 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(self.metric("maxtext_requests_active"), 0)
        self.assertEqual(self.metric("jetstream_slots_used_percentage"), 0)

    def test_prompts_at_once_give_what_they_give_one_by_one(self):
        seed = int(os.environ.get("MT_SEED", time.time_ns() % 2**32))
        print(f"MT_SEED={seed}", flush=True)
        order = random.Random(seed)
        prompts = [f"{i} times {i} is the number that " + "we count and " * (i % 5) for i in range(16)]

        def shown(answer):
            return answer.choices[0].text, answer.choices[0].logprobs.token_logprobs

        alone = {p: shown(self.complete(prompt=p, logprobs=1)) for p in prompts}

        async def all_at_once():
            async with openai.AsyncOpenAI(base_url=self.url + "/v1", api_key=KEY, max_retries=0) as client:
                async def ask(p):
                    return p, shown(await client.completions.create(
                        model=MODEL, prompt=p, temperature=0, max_tokens=8, logprobs=1))
                return dict(await asyncio.gather(*map(ask, order.sample(prompts, len(prompts)))))

        for _ in range(ROUNDS):
            self.assertEqual(asyncio.run(all_at_once()), alone)  # bit for bit


if __name__ == "__main__":
    unittest.main()
