#!/usr/bin/env python3
"""Whether somebody else's time to the first token tells what is cached (case I1).

    bench/isolation.py [--pairs 30] [--tokens 1500] [--dir DIR]

One server with two API keys and an NVMe tier below a small device pool. Each round takes a prompt
that nobody has sent, lets its owner send it once, and then asks, in an order drawn anew:

cold     a fresh prompt of the same length, by the other key
foreign  the owner's prompt, by the other key
salted   the owner's prompt, by the owner's key with another cache_salt
own      the owner's prompt, by the owner

The first three must look alike, whichever tier has the prompt: on the device, and pushed out of it.
Prints medians and the ratio to cold, pair by pair. DIR (default /var/tmp) must be on a disk.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from harness import Server  # noqa: E402

OWNER, OTHER = ({"Authorization": f"Bearer {key}"} for key in ("key-one", "key-two"))
KINDS = ("cold", "foreign", "salted", "own")


class Asker:
    def __init__(self, server, tokens):
        self.server, self.tokens = server, tokens
        self.generator = random.Random(7)

    def fresh(self):
        return [self.generator.randrange(1000, 40000) for _ in range(self.tokens)]

    def first_token(self, prompt, key, salt=None):
        """Seconds to the first byte of a stream, and the tokens that came from the cache."""
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        if salt is not None:
            body["cache_salt"] = salt
        connection = self.server.connect()
        try:
            start = time.perf_counter()
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json", **key})
            reply = connection.getresponse()
            reply.readline()
            seconds = time.perf_counter() - start
            text = reply.read().decode()
        finally:
            connection.close()
        usage = next(json.loads(line[6:])["usage"] for line in text.splitlines()
                     if line.startswith("data: {") and '"prompt_tokens"' in line)
        return seconds, usage["prompt_tokens_details"]["cached_tokens"]


def measure(asker, pairs, below):
    """`below`: the prompt is pushed out of the device before it is asked for."""
    times = {kind: [] for kind in KINDS}
    for number in range(pairs + 1):
        prompt = asker.fresh()
        asker.first_token(prompt, OWNER)
        if below:
            time.sleep(0.3)  # it is written behind
            for _ in range(3):
                asker.first_token(asker.fresh(), OWNER)
        order = list(KINDS)
        asker.generator.shuffle(order)
        for kind in order:
            seconds, cached = asker.first_token(
                asker.fresh() if kind == "cold" else prompt,
                OWNER if kind in ("salted", "own") else OTHER,
                f"salt {number}" if kind == "salted" else None)
            if cached > 0 and kind != "own":
                raise SystemExit(f"{kind}: {cached} tokens from the cache")
            if number > 0:  # the first round warms up
                times[kind].append(1000 * seconds)
    return times


def show(title, times):
    print(f"| {title}, ms to the first token | median | smallest | against cold, pair by pair |\n"
          "|---|---|---|---|")
    for kind in KINDS:
        ratio = statistics.median(a / b for a, b in zip(times[kind], times["cold"]))
        print(f"| {kind} | {statistics.median(times[kind]):.1f} | {min(times[kind]):.1f} | "
              f"{ratio:.3f} |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--dir", default="/var/tmp")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        # The device holds three such prompts.
        pool = f"{arguments.tokens * 3 * 24 // 1024}M"
        with Server("--api-key", "key-one", "--api-key", "key-two", "--kv-nvme-dir", folder,
                    "--kv-nvme-size", "8G", device=pool) as server:
            asker = Asker(server, arguments.tokens)
            show("on the device", measure(asker, arguments.pairs, below=False))
            show("on NVMe", measure(asker, arguments.pairs, below=True))


if __name__ == "__main__":
    main()
