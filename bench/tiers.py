#!/usr/bin/env python3
"""What the tiers below the device save, and what they cost, side by side.

    bench/tiers.py [--rounds 5] [--only restore|never|turns] [--dir DIR]

Servers of the release build run beside each other and are asked in turn, so that both see the same
machine; an idle one uses no processor. DIR (default: /var/tmp) must be on a disk.

restore  a prompt of 6,000 tokens that the device pool has lost comes up from NVMe, with 32 new
         tokens behind it, against the same prompt computed: seconds to the first token
never    prompts that nobody sends twice, on a server that writes every page to NVMe against one
         without tiers: throughput (the goal is 0.97 or more)
turns    36 streams on a device pool for 12, with NVMe and without: all tokens per second, and the
         mean and the worst wait for a first token
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from harness import Server  # noqa: E402


def tokens(seed, count):
    """Token ids that stand for nothing: what is measured does not depend on their meaning."""
    generator = random.Random(seed)
    return [generator.randrange(1000, 40000) for _ in range(count)]


def ask(server, prompt, max_tokens=1):
    """Seconds to the whole answer, and its usage."""
    start = time.perf_counter()
    status, reply = server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True})
    if status != 200:
        raise SystemExit(f"the server answered {status}: {reply}")
    return time.perf_counter() - start, reply["usage"], reply["choices"][0]["text"]


def show(name, ratios):
    print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
          f"{len(ratios)} pairs", flush=True)


def restore(folder, rounds):
    pool = ("--kv-device-size", "160M")  # one such prompt at a time
    tiers = (*pool, "--kv-nvme-dir", folder, "--kv-nvme-size", "4G")
    ratios = []
    with Server(*tiers) as with_tiers, Server(*pool) as without:
        documents = [tokens(number, 6000) for number in range(2)]
        for document in documents:
            ask(with_tiers, document)
        for number in range(rounds):
            prompt = documents[number % 2] + tokens(1000 + number, 32)
            loaded, usage, text = ask(with_tiers, prompt)
            computed, _, plain = ask(without, prompt)
            if text != plain:
                raise SystemExit("the answers differ")
            came_up = usage["spillway"]["tokens"]["nvme"]
            if came_up < 5900:
                raise SystemExit(f"only {came_up} tokens came from NVMe")
            ratios.append(computed / loaded)
            print(f"  restored in {loaded * 1000:.0f} ms, computed in {computed * 1000:.0f} ms")
    show("restore of 6,000 tokens and 32 new ones, computed / restored", ratios)


def never(folder, rounds):
    tiers = ("--kv-device-size", "256M", "--kv-nvme-dir", folder, "--kv-nvme-size", "8G")
    ratios = []
    with Server(*tiers) as with_tiers, Server("--kv-device-size", "256M") as without:
        for number in range(rounds * 4):
            prompt = tokens(10_000 + number, 512)
            order = [(with_tiers, 0), (without, 1)]
            if number % 2:
                order.reverse()
            seconds = [0.0, 0.0]
            for server, place in order:
                seconds[place] = ask(server, prompt, 16)[0]
            ratios.append(seconds[1] / seconds[0])
    show("prompts that never repeat, throughput with tiers / without", ratios)


def stream(server, prompt, max_tokens):
    """Seconds to the first token and to the end."""
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body,
                                     {"content-type": "application/json"})
    start, first = time.perf_counter(), None
    with urllib.request.urlopen(request, timeout=1200) as response:
        for line in response:
            if first is None and line.startswith(b"data: {"):
                first = time.perf_counter() - start
    return first, time.perf_counter() - start


def turns(folder, _rounds):
    streams, prompt_tokens, max_tokens = 36, 128, 160
    # 18 pages a stream at its end, for 12 of them.
    pool = ("--kv-device-size", str(18 * 12 * 368640), "--max-num-seqs", "64")
    for name, flags in (("device only", pool),
                        ("with NVMe", (*pool, "--kv-nvme-dir", folder, "--kv-nvme-size", "4G"))):
        with Server(*flags) as server, \
                concurrent.futures.ThreadPoolExecutor(streams) as threads:
            start = time.perf_counter()
            results = list(threads.map(
                lambda number: stream(server, tokens(20_000 + number, prompt_tokens), max_tokens),
                range(streams)))
            seconds = time.perf_counter() - start
            firsts = [first for first, _ in results]
            cache = server.cache()
            print(f"{name}: {streams * max_tokens / seconds:.0f} tokens/s, first token after "
                  f"{statistics.mean(firsts):.1f} s on average and {max(firsts):.1f} s at worst, "
                  f"{cache['preemptions']} preemptions", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("restore", "never", "turns"))
    parser.add_argument("--dir", default="/var/tmp")
    arguments = parser.parse_args()
    for part in (restore, never, turns):
        if arguments.only not in (None, part.__name__):
            continue
        folder = tempfile.mkdtemp(prefix="spillway-bench-", dir=arguments.dir)
        try:
            part(folder, arguments.rounds)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
