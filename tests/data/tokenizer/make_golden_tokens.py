#!/usr/bin/env python3
"""Writes golden_MODEL.tsv from reference values MODEL.jsonl (see README.md): make_golden_tokens.py FOLDER"""

import json
import pathlib
import sys

for model in ("smollm2", "gemma3"):
    lines = []
    for line in open(pathlib.Path(sys.argv[1]) / f"{model}.jsonl"):
        case = json.loads(line)
        flags = f"{int(case['bos'])}{int(case['special'])}"
        tokens = " ".join(map(str, case["tokens"]))
        lines.append(f"{case['name']}\t{flags}\t{case['text'].encode().hex()}\t{tokens}\n")
    (pathlib.Path(__file__).parent / f"golden_{model}.tsv").write_text("".join(lines))
