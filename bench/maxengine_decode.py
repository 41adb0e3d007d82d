"""Decodes with MaxText's own engine and random weights, as maxtext.inference.decode calls it.

Run by bench/decode_vs_llama_cpp with the Python of .deps/bench-maxtext. MaxText's decode itself
ends at once without JetStream, which no package index has; its engine needs only two small types
of it, for which MaxText brings stand-ins (DECOUPLE_GCLOUD). Prints a JSON line at the first token
and one with the rates at the end. Arguments: prompt tokens, new tokens, then MaxText's flags.
"""

import json
import sys
import time

import jax
import numpy

from maxtext.configs import pyconfig
from maxtext.inference.maxengine import maxengine


def register_result_tokens():
    """Lets the stand-in for JetStream's ResultTokens pass through jax.jit, as the real one does."""
    kind = maxengine.engine_api.ResultTokens
    layout = {"tokens_idx": (0, 1), "valid_idx": (1, 2), "length_idx": (2, 3)}
    jax.tree_util.register_pytree_node(
        kind, lambda r: ((r.data, r.log_prob), None),
        lambda _, leaves: kind(data=leaves[0], log_prob=leaves[1], samples_per_slot=1, **layout))


def token_of(result):
    """The sampled token on the host, as a caller needs it before the next step can be shown."""
    return int(numpy.asarray(result.data)[0, 0])


def main(prompt_tokens, new_tokens, flags):
    register_result_tokens()
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    config = pyconfig.initialize(["maxtext.inference.decode", *flags])
    engine = maxengine.MaxEngine(config)
    rng = jax.random.PRNGKey(1234)
    params = engine.load_params(rng)
    tokens = numpy.arange(1000, 1000 + prompt_tokens, dtype=numpy.int32)

    def prefill():
        prefix, first = engine.prefill(params=params, padded_tokens=tokens,
                                       true_length=prompt_tokens, rng=rng, slot=0)
        return prefix, token_of(first)

    prefix, _ = prefill()
    print(json.dumps({"first_token": True}), flush=True)
    begin = time.monotonic()
    prefix, _ = prefill()
    prefill_seconds = time.monotonic() - begin
    state = engine.insert(prefix, engine.init_decode_state(rng), slot=0)
    state, result = engine.generate(params, state, rng=rng)  # compiles
    token_of(result)
    begin = time.monotonic()
    for _ in range(new_tokens - 2):
        state, result = engine.generate(params, state, rng=rng)
        token_of(result)
    seconds = time.monotonic() - begin
    print(json.dumps({"prefill": prompt_tokens / prefill_seconds,
                      "generation": (new_tokens - 2) / seconds}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
