"""Writes one file a block format: random encoded blocks, then the values that the `gguf` package decodes them to.
   pip install gguf==0.19.0 numpy; python make_gguf_blocks.py OUTPUT_FOLDER"""
import sys, struct, numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize

# Byte positions of the float16 scales in a block; the rest is random bits.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
rng = np.random.default_rng(7)
for name in ["F16", "BF16", *HALVES]:
    elements, size = GGML_QUANT_SIZES[T[name]]
    blocks = 64 if elements == 1 else (4 if elements == 32 else 2)
    raw = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
    if elements == 1:
        values = (rng.standard_normal(blocks) * 3).astype(np.float32)
        values[:4] = 0, -0.0, 1e-6, 65504  # 1e-6 is subnormal in float16
        raw = (values.astype(np.float16).view(np.uint8) if name == "F16"
               else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)).reshape(blocks, 2)
    for position in HALVES.get(name, []):
        raw[:, position:position + 2] = (rng.standard_normal(blocks) * 0.02).astype(np.float16).view(np.uint8).reshape(blocks, 2)
    row = raw.reshape(1, -1)
    values = dequantize(row, T[name]).astype(np.float32).reshape(-1)
    with open(f"{sys.argv[1]}/{name}.bin", "wb") as f:
        f.write(struct.pack("<I", blocks) + row.tobytes() + values.tobytes())
