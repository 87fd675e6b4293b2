"""Writes tests/data/dequantize.bin: random blocks of every tensor type and what they stand for.

The values come from the Python package gguf (PyPI, MIT licence), gguf.quants.dequantize, so that
they are independent of Spillway. Run: python3 tests/kernels/make_dequantize_data.py OUTPUT

Records to the end of the file, little-endian: u32 type id, u32 element count, u32 block bytes,
the blocks, the elements as f32.
"""

import struct
import sys

import numpy
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "IQ4_NL"]
ELEMENTS = 512


def finite_blocks(rng, qtype):
    """Random bytes, block by block, drawn again where a scale would not be finite."""
    per_block, block_bytes = GGML_QUANT_SIZES[qtype]
    blocks = []
    while len(blocks) * per_block < ELEMENTS:
        block = rng.integers(0, 256, block_bytes, dtype=numpy.uint8)
        if numpy.isfinite(dequantize(block, qtype)).all():
            blocks.append(block)
    return numpy.concatenate(blocks)


def dequantize(data, qtype):
    with numpy.errstate(all="ignore"):
        return numpy.asarray(quants.dequantize(data, qtype), dtype=numpy.float32).reshape(-1)


def main():
    rng = numpy.random.default_rng(20260424)
    with open(sys.argv[1], "wb") as out:
        for name in TYPES:
            qtype = GGMLQuantizationType[name]
            data = finite_blocks(rng, qtype)
            values = dequantize(data, qtype)
            assert values.size == ELEMENTS
            out.write(struct.pack("<III", qtype.value, ELEMENTS, data.size))
            out.write(data.tobytes())
            out.write(values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
