#!/usr/bin/env python3
"""What the tiers below the device save, and what they cost, side by side.

    bench/tiers.py [--rounds 5] [--only PART] [--dir DIR]

Servers of the release build run beside each other and are asked in turn, so that both see the same
machine; an idle one uses no processor. DIR (default: /var/tmp) must be on a disk.

restore  a prompt of 6,000 tokens that the device pool has lost comes up from NVMe, with 32 new
         tokens behind it, against the same prompt computed: seconds to the first token
slots    the same with 8,000 tokens beside llama.cpp's server, which restores a saved slot and then
         computes the new tokens; needs SPILLWAY_PEER_SERVER, its llama-server built as
         bench/against_llama_cpp.py builds it
overlap  a restore of 6,000 tokens with 1,000 new ones behind it, against the restore alone and
         these tokens alone (their prefix on the device): time over the longer of the two (the goal
         is 1.15)
never    prompts that nobody sends twice, on a server that writes every page to NVMe against one
         without tiers: throughput (the goal is 0.97 or more)
turns    36 streams of 1,024 tokens on a device pool for 12, on the device alone, with a host tier,
         with NVMe: how many run (have had a token and not their last, at most), all tokens per
         second, mean time per token of a stream, mean and worst wait for a first token, how full
         the pool was
throttle the restore from a disk that the kernel slows down (bench/throttle.py; needs root): load
         and recompute as decided, against a server that loads all and one that computes all;
         seconds to the first token, and the ratio to the better of the two (the goal: 1.05 at most)
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from harness import MODEL, Server, free_port  # noqa: E402
from throttle import ReadThrottle, Unavailable  # noqa: E402


PAGE_BYTES = 368640  # 16 tokens of the default model
ROOM = 100  # tokens: new ones, and what a pool may hold of an older prompt


def pool_for(count):
    """A device pool for one prompt of so many tokens, so that the next one pushes it out."""
    return "--kv-device-size", str((count + ROOM) // 16 * PAGE_BYTES)


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


def settle(server):
    """Waits until what is to be written is written."""
    before = None
    while True:
        tiers = server.cache()["tiers"]
        if tiers["paths_waiting"] == 0 and tiers == before:
            return
        before = tiers
        time.sleep(0.2)


def restore(folder, rounds):
    pool = pool_for(6000)
    tiers = (*pool, "--kv-nvme-dir", folder, "--kv-nvme-size", "4G")
    ratios = []
    with Server(*tiers) as with_tiers, Server(*pool) as without:
        documents = [tokens(number, 6000) for number in range(2)]
        for document in documents:
            ask(with_tiers, document)
            settle(with_tiers)
        for number in range(rounds):
            prompt = documents[number % 2] + tokens(1000 + number, 32)
            loaded, usage, text = ask(with_tiers, prompt)
            computed, _, plain = ask(without, prompt)
            if text != plain:
                raise SystemExit("the answers differ")
            came_up = usage["spillway"]["tokens"]["nvme"]
            if came_up < 0.95 * 6000:  # the front may be computed meanwhile
                raise SystemExit(f"only {came_up} tokens came from NVMe")
            ratios.append(computed / loaded)
            print(f"  restored in {loaded * 1000:.0f} ms, computed in {computed * 1000:.0f} ms")
    show("restore of 6,000 tokens and 32 new ones, computed / restored", ratios)


def overlap(folder, rounds):
    # One prompt of 7,000 tokens at a time.
    tiers = ("--kv-device-size", str(440 * PAGE_BYTES), "--kv-nvme-dir", folder, "--kv-nvme-size", "4G")
    ratios, sums = [], []
    with Server(*tiers) as server:
        documents = [tokens(number, 6000) for number in range(2)]
        suffixes = (tokens(30_000 + number, 1000) for number in range(10_000))

        def timed(prompt, nvme):
            settle(server)
            seconds, usage, _ = ask(server, prompt)
            came_up = usage["spillway"]["tokens"]["nvme"]
            if not 0.95 * nvme <= came_up <= nvme:  # the front may be computed meanwhile
                raise SystemExit(f"{came_up} tokens came from NVMe, not {nvme}")
            return seconds

        for document in documents:
            ask(server, document + next(suffixes))
            settle(server)
        for number in range(rounds):
            document, other = documents
            load = timed(document + tokens(20_000 + number, 8), 6000)
            compute = timed(document + next(suffixes), 0)
            timed(other + next(suffixes), 6000)  # puts the document out
            both = timed(document + next(suffixes), 6000)
            timed(other + next(suffixes), 6000)
            ratios.append(both / max(load, compute))
            sums.append(both / (load + compute))
            print(f"  restored in {load * 1000:.0f} ms, computed in {compute * 1000:.0f} ms, "
                  f"both in {both * 1000:.0f} ms", flush=True)
        counts = server.cache()["tiers"]
        print(f"  {counts['steps_under_load']} steps began before their prefix was there, "
              f"{counts['steps_in_vain']} of them in vain")
    show("restore of 6,000 tokens under 1,000 new ones, both / the longer alone", ratios)
    show("the same, both / one after the other", sums)


class Peer:
    """llama.cpp's server with one slot that can be saved and restored."""

    def __init__(self, program, folder):
        self.port = free_port()
        self.process = subprocess.Popen(
            [program, "-m", str(MODEL), "-c", "8192", "-np", "1", "-t", "2", "-fa", "on",
             "--port", str(self.port), "--slot-save-path", folder, "--cache-ram", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_PROC_BIND": "true"})
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as reply:
                    if reply.status == 200:
                        return
            time.sleep(0.1)
        raise SystemExit("the peer's server is not ready")

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)

    def complete(self, prompt):
        return self.post("/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0,
                                         "cache_prompt": True, "id_slot": 0})

    def stop(self):
        self.process.terminate()
        self.process.wait()


def slots(folder, rounds):
    program = os.environ.get("SPILLWAY_PEER_SERVER")
    if not program:
        print("slots: left out, SPILLWAY_PEER_SERVER does not name llama-server")
        return
    count = 8000
    documents = [tokens(number, count) for number in range(2)]
    ratios, recomputed = [], []
    peer = Peer(program, folder)
    pool = pool_for(count)
    try:
        with Server(*pool, "--kv-nvme-dir", folder + "/pages", "--kv-nvme-size", "4G") as ours, \
                Server(*pool) as without:
            for number, document in enumerate(documents):
                peer.complete(document)
                saved = peer.post("/slots/0?action=save", {"filename": f"{number}.bin"})
                if saved["n_saved"] < count:
                    raise SystemExit(f"the peer saved {saved['n_saved']} tokens only")
                ask(ours, document)
                settle(ours)
            for number in range(rounds):
                prompt = documents[number % 2] + tokens(1000 + number, 32)
                start = time.perf_counter()
                restored = peer.post("/slots/0?action=restore",
                                     {"filename": f"{number % 2}.bin"})
                answer = peer.complete(prompt)
                theirs = time.perf_counter() - start
                if restored["n_restored"] < count or answer["timings"]["prompt_n"] > 40:
                    raise SystemExit(f"the peer restored nothing: {restored} {answer['timings']}")
                loaded, usage, _ = ask(ours, prompt)
                came_up = usage["spillway"]["tokens"]["nvme"]
                if came_up < 0.95 * count:
                    raise SystemExit(f"only {came_up} tokens came from NVMe")
                computed, _, _ = ask(without, prompt)
                ratios.append(theirs / loaded)
                recomputed.append(computed / loaded)
                print(f"  restored in {loaded * 1000:.0f} ms, by the peer in {theirs * 1000:.0f} "
                      f"ms (its restore {restored['timings']['restore_ms']:.0f} ms), computed in "
                      f"{computed * 1000:.0f} ms", flush=True)
    finally:
        peer.stop()
    show("restore of 8,000 tokens and 32 new ones, llama.cpp / Spillway", ratios)
    show("the same, computed / restored", recomputed)


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
    """When it was sent, when its first token came, and when it ended."""
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body,
                                     {"content-type": "application/json"})
    start, first = time.perf_counter(), None
    with urllib.request.urlopen(request, timeout=1200) as response:
        for line in response:
            if first is None and line.startswith(b"data: {"):
                first = time.perf_counter()
    return start, first, time.perf_counter()


def most_at_once(results):
    """Of how many streams, at most, the first token was out and the last was not."""
    changes = sorted([(first, 1) for _, first, _ in results] +
                     [(end, -1) for _, _, end in results])
    most = running = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def turns(folder, _rounds):
    streams, prompt_tokens, max_tokens = 36, 768, 256
    # 64 pages a stream at its end, for 12 of them.
    pool = ("--kv-device-size", str(64 * 12 * PAGE_BYTES), "--max-num-seqs", "64")
    for name, flags in (("device only", pool),
                        ("with a host tier", (*pool, "--kv-host-size", "2G")),
                        ("with NVMe", (*pool, "--kv-nvme-dir", folder, "--kv-nvme-size", "4G"))):
        fill, done = [], threading.Event()
        with Server(*flags) as server, \
                concurrent.futures.ThreadPoolExecutor(streams) as threads:

            def watch():
                while not done.wait(0.2):
                    free = server.metric("spillway:kv_pages", state="free")
                    fill.append(1 - free / server.metric("spillway:kv_pages_capacity"))

            watcher = threading.Thread(target=watch)
            watcher.start()
            start = time.perf_counter()
            results = list(threads.map(
                lambda number: stream(server, tokens(20_000 + number, prompt_tokens), max_tokens),
                range(streams)))
            seconds = time.perf_counter() - start
            done.set()
            watcher.join()
            firsts = [first - begin for begin, first, _ in results]
            each = [(end - first) / (max_tokens - 1) for _, first, end in results]
            print(f"{name}: {most_at_once(results)} streams at once, "
                  f"{streams * max_tokens / seconds:.0f} tokens/s, "
                  f"{statistics.mean(each) * 1000:.0f} ms a token, first token after "
                  f"{statistics.mean(firsts):.1f} s on average and {max(firsts):.1f} s at worst, "
                  f"pool {statistics.median(fill or [0]) * 100:.0f}% full (median), "
                  f"{server.cache()['preemptions']} preemptions", flush=True)


def throttle(folder, rounds):
    try:
        # Each server has a disk of its own speed: none waits for what another has asked for.
        limits = {"decided": ReadThrottle(folder), "loaded": ReadThrottle(folder)}
    except Unavailable as why:
        print(f"throttle: left out, {why}")
        return
    count, settling = 6000, 2
    pool = pool_for(count)

    def tiers(name):
        return (*pool, "--kv-nvme-dir", f"{folder}/{name}", "--kv-nvme-size", "1G")

    with limits["decided"], limits["loaded"], Server(*tiers("decided")) as decided, \
            Server(*tiers("loaded"), "--test-load-all") as loaded, Server(*pool) as computed:
        servers = {"decided": decided, "loaded": loaded, "computed": computed}
        documents = [tokens(number, count) for number in range(2)]
        for name, limit in limits.items():
            limit.add(servers[name].process.pid)
            for document in documents:
                ask(servers[name], document)
                settle(servers[name])
        number = 0
        for megabytes in (30, 80, 400, 30):
            for limit in limits.values():
                limit.set(megabytes * 1_000_000)
            seconds = {name: [] for name in servers}
            came_up = []
            for round_number in range(settling + rounds):
                prompt = documents[number % 2] + tokens(1000 + number, 32)
                number += 1
                texts = set()
                order = sorted(servers)
                for name in order[number % 3:] + order[:number % 3]:
                    if name in limits:
                        settle(servers[name])
                    took, usage, text = ask(servers[name], prompt)
                    texts.add(text)
                    seconds[name].append(took)
                    nvme = usage["spillway"]["tokens"]["nvme"]
                    if name == "decided" and round_number >= settling:
                        came_up.append(nvme)
                    if name != "loaded":
                        continue
                    if nvme < 0.95 * count - ROOM:
                        raise SystemExit(f"only {nvme} tokens came from NVMe")
                    if took < 0.8 * nvme / 16 * PAGE_BYTES / (megabytes * 1e6):
                        raise SystemExit(f"{nvme} tokens in {took:.2f} s: the kernel does not "
                                         f"hold this disk to {megabytes} MB/s")
                if len(texts) != 1:
                    raise SystemExit("the answers differ")
            better = [min(pair) for pair in zip(seconds["loaded"], seconds["computed"])]
            ratios = [a / b for a, b in zip(seconds["decided"], better)]
            middle = {name: statistics.median(all_s[settling:]) for name, all_s in seconds.items()}
            print(f"  {megabytes} MB/s: loaded {middle['loaded'] * 1000:.0f} ms, computed "
                  f"{middle['computed'] * 1000:.0f}, as decided {middle['decided'] * 1000:.0f} "
                  f"with {statistics.median(came_up):.0f} tokens from NVMe; right after the change "
                  f"{ratios[0]:.2f} and {ratios[1]:.2f} of the better", flush=True)
            show(f"a disk of {megabytes} MB/s, as decided / the better of the two",
                 ratios[settling:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("restore", "slots", "overlap", "never", "turns",
                                           "throttle"))
    parser.add_argument("--dir", default="/var/tmp")
    arguments = parser.parse_args()
    for part in (restore, slots, overlap, never, turns, throttle):
        if arguments.only not in (None, part.__name__):
            continue
        folder = tempfile.mkdtemp(prefix="spillway-bench-", dir=arguments.dir)
        try:
            part(folder, arguments.rounds)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
