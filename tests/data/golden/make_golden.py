#!/usr/bin/env python3
"""Packs reference values of a real model into one GGUF file that the tests read.

Usage: make_golden.py FOLDER_WITH_JSONL   (writes smollm2.gguf and gemma3.gguf beside this script)

Origin of the values: see README.md here. Full rows of log-probabilities are kept where above
e^-17; what is left out has 3e-4 of the probability, and the test counts it as one more outcome.
Needs the packages gguf and numpy.
"""
import gzip
import json
import pathlib
import sys

import gguf
import numpy as np

CUT = -17.0
TOP = 3


def add_case(writer, case, rows):
    name = case["name"] + "."
    writer.add_array(name + "tokens", case["tokens"])
    writer.add_array(name + "positions", [p["position"] for p in case["positions"]])
    tops = [entry for p in case["positions"] for entry in p["top"][:TOP]]
    writer.add_array(name + "top_tokens", [token for token, _ in tops])
    writer.add_array(name + "top_logprobs", [float(logprob) for _, logprob in tops])
    writer.add_float32(name + "mean_nll", case["mean_nll"])
    writer.add_array(name + "greedy", case["greedy"])
    writer.add_array(name + "greedy_margin", [float(m) for m in case["greedy_margin"]])
    if rows is None:
        return
    kept = [np.nonzero(row > CUT)[0] for row in rows]
    writer.add_array(name + "row_counts", [len(k) for k in kept])
    writer.add_array(name + "row_tokens", [int(t) for k in kept for t in k])
    writer.add_tensor(name + "row_logprobs", np.concatenate([r[k] for r, k in zip(rows, kept)]))


def pack(source, model, vocabulary):
    here = pathlib.Path(__file__).parent
    rows = np.frombuffer(gzip.open(source / f"{model}.logprobs.f16.gz").read(), np.float16)
    rows = rows.reshape(-1, vocabulary)
    cases = [json.loads(line) for line in open(source / f"{model}.jsonl")]
    cases = [case for case in cases if "positions" in case]
    writer = gguf.GGUFWriter(here / f"{model}.gguf", "golden")
    writer.add_array("cases", [case["name"] for case in cases])
    for case in cases:
        count = case.get("full_rows", 0)
        add_case(writer, case, rows[:count] if count else None)
        rows = rows[count:]
    assert len(rows) == 0
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    source = pathlib.Path(sys.argv[1])
    pack(source, "smollm2", 49152)
    pack(source, "gemma3", 262144)


if __name__ == "__main__":
    main()
