#!/usr/bin/env python3
"""From a start to the first good /health, what an idle server costs, and what stays in memory.

    bench/start_up.py [--starts 10] [--pool MIB]

start      the release binary with a warm file cache, again and again, and `tools/serve`, which first
           looks whether anything is to be installed or built: seconds to a 200 of /health
idle       processor time that a server without requests takes
memory     resident memory, right after the start and once every page of the pool has been used,
           against the model file and the pool
"""

import argparse
import http.client
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import BINARY, MODEL, Server, free_port  # noqa: E402

MIB = 1 << 20


def seconds_to_health(command, port):
    """Starts it, waits for a 200, stops it."""
    with tempfile.TemporaryFile("w+") as log:
        begin = time.perf_counter()
        process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
        while True:
            if process.poll() is not None:
                log.seek(0)
                raise SystemExit(f"the server ended:\n{log.read()}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.002)
        seconds = time.perf_counter() - begin
        process.terminate()
        process.wait(60)
        return seconds


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    """(all, anonymous, of files) bytes."""
    found = dict(line.split(":") for line in
                 pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return [int(found[name].split()[0]) << 10 for name in ("VmRSS", "RssAnon", "RssFile")]


def fill_pool(server, pool_bytes):
    """Different prompts until each page of the pool has been written."""
    generator, asked = random.Random(1), 0
    page = server.cache()["pools"][0]["page_bytes"]
    while asked < pool_bytes / page * 16 * 1.2:
        prompt = [generator.randrange(1000, 40000) for _ in range(4000)]
        status, reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        if status != 200:
            raise SystemExit(f"the server answered {status}: {reply}")
        asked += len(prompt)


def show_starts(starts):
    commands = {"spillway serve": [BINARY, "serve", "--model", str(MODEL)],
                "tools/serve": [str(ROOT / "tools/serve")]}
    times = {name: [] for name in commands}
    seconds_to_health(commands["spillway serve"], free_port())  # the file cache is warm from here
    for _ in range(starts):
        for name, command in commands.items():
            times[name].append(seconds_to_health(command, free_port()))
    print(f"| seconds to /health, {starts} starts | median | slowest |\n|---|---|---|")
    for name, values in times.items():
        print(f"| `{name}` | {statistics.median(values):.2f} | {max(values):.2f} |", flush=True)


def show_cost(pool_bytes, seconds):
    weights = os.path.getsize(MODEL)
    with Server(device=str(pool_bytes)) as server:
        pid = server.process.pid
        first = resident(pid)
        before = processor_seconds(pid)
        time.sleep(seconds)
        idle = processor_seconds(pid) - before
        fill_pool(server, pool_bytes)
        server.wait_idle()
        full = resident(pid)
    both = weights + pool_bytes
    print(f"\nidle for {seconds} s: {idle:.2f} s of processor time")
    print(f"weights {weights / MIB:.0f} MiB, pool {pool_bytes / MIB:.0f} MiB\n")
    print("| resident MiB | all | anonymous | of files | against weights and pool |\n"
          "|---|---|---|---|---|")
    for name, (all_, anonymous, of_files) in (("started", first), ("pool used", full)):
        print(f"| {name} | {all_ / MIB:.0f} | {anonymous / MIB:.0f} | {of_files / MIB:.0f} | "
              f"{all_ / both:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=10, help="of each kind")
    parser.add_argument("--pool", type=int, default=512, help="MiB")
    parser.add_argument("--idle", type=int, default=20, help="seconds")
    arguments = parser.parse_args()
    show_starts(arguments.starts)
    show_cost(arguments.pool * MIB, arguments.idle)


if __name__ == "__main__":
    main()
