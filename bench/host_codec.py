#!/usr/bin/env python3
"""What a host tier holds with its pages encoded, and what bringing them up costs.

    bench/host_codec.py [--rounds 5] [--model GGUF ...]

Servers of the release build with a host tier of the same bytes, one with pages as they are and one
with --kv-host-codec planes, are filled with the project's own English text until both evict; then
they are asked in turn for prefixes that the device has lost. Prints the pages that each holds, the
time to the first token from host memory and computed, and the time of one page up and down.
"""

import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import MODEL, Server  # noqa: E402

HOST = "96M"
WORDS = 400  # of a prompt


class ModelServer(Server):
    def __init__(self, model, *arguments):
        self.model = model
        super().__init__(*arguments, device="32M")

    def command(self, *arguments):
        return super().command(*(str(self.model) if a == str(MODEL) else a for a in arguments))


def prompts():
    """Endless text of this project: documents of WORDS words, no two with the same beginning."""
    words = " ".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md"))).split()
    at = 0
    while True:
        chosen = [words[(at + i) % len(words)] for i in range(WORDS)]
        yield f"Part {at}: " + " ".join(chosen)
        at += WORDS * 7 // 5


def ask(server, prompt):
    """Seconds to the first token, and the receipt's tokens."""
    start = time.perf_counter()
    status, reply = server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
    if status != 200:
        raise SystemExit(f"the server answered {status}: {reply}")
    return time.perf_counter() - start, reply["usage"]["spillway"]["tokens"], reply["choices"]


def settle(server):
    before = None
    while True:
        tiers = server.cache()["tiers"]
        if tiers["paths_waiting"] == 0 and tiers == before:
            return tiers["host"]
        before = tiers
        time.sleep(0.1)


def mean_us(server, name):
    count = server.metric(f"spillway:tier_{name}_seconds_count", tier="host")
    return server.metric(f"spillway:tier_{name}_seconds_sum", tier="host") / max(count, 1) * 1e6


def compare(model, kv_type, rounds):
    common = ("--kv-cache-dtype", kv_type, "--kv-host-size", HOST, "--max-model-len", "1200")
    texts = prompts()
    with ModelServer(model, *common) as plain, \
            ModelServer(model, *common, "--kv-host-codec", "planes") as encoded:
        while True:
            text = next(texts)
            for server in (plain, encoded):
                ask(server, text)
            hosts = [settle(server) for server in (plain, encoded)]
            if all(host["evictions"] > 0 for host in hosts):
                break
        pages = [host["pages"] for host in hosts]
        used = [host["used_bytes"] / host["capacity_bytes"] for host in hosts]
        print(f"{model.stem} {kv_type}: {pages[0]} pages as they are, {pages[1]} encoded "
              f"({pages[1] / pages[0]:.2f}x), {used[0]:.3f} and {used[1]:.3f} of the bytes in use")
        times = {"as they are": [], "encoded": [], "computed": []}
        for _ in range(rounds):
            old, new = next(texts), [next(texts) for _ in range(3)]
            for server in (plain, encoded):
                computed, _, first = ask(server, old)
                settle(server)
                for other in new:  # push it out of the device
                    ask(server, other)
                settle(server)
                loaded, tokens, again = ask(server, old)
                if again != first:
                    raise SystemExit("the answers differ")
                if tokens["host"] < 0.5 * sum(tokens.values()):
                    continue  # not what is measured
                times["encoded" if server is encoded else "as they are"].append(loaded)
                times["computed"].append(computed)
        for name, seconds in times.items():
            if not seconds:
                continue
            print(f"  first token, {name}: {statistics.median(seconds) * 1000:.1f} ms "
                  f"({min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f}; {len(seconds)})")
        for name, server in (("as they are", plain), ("encoded", encoded)):
            print(f"  a page {name}: {mean_us(server, 'read'):.0f} us up, "
                  f"{mean_us(server, 'write'):.0f} us until it is there", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=pathlib.Path, nargs="*", default=[MODEL])
    options = parser.parse_args()
    for model in options.model:
        for kv_type in ("f16", "bf16"):
            compare(model, kv_type, options.rounds)


if __name__ == "__main__":
    main()
