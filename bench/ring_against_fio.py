#!/usr/bin/env python3
"""Reads of the NVMe tier's ring against fio, and its processor time against a default io_uring.

    bench/ring_against_fio.py [--dir DIR] [--bytes 256K,1M,4M] [--depth 1,8,32] [--seconds 1]
                              [--rounds 3] [--binary build/release/ring_bench]

Same file, block size and depth, in turns, so that both see the same machine. Goals: GB/s at least
0.95 of fio's; processor time per read at most 0.7 of a default io_uring's (nothing registered, one call per read,
ordinary memory; the ring reads into huge pages, as the pools have them). Run as root it does all
a second time as a plain user who may lock 8 MiB of memory. Needs fio (Debian package). DIR must lie
on the disk to be measured.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLAIN_USER = ["prlimit", "--memlock=8388608", "setpriv", "--reuid=65534", "--regid=65534",
              "--clear-groups"]


def ring_bench(prefix, binary, path, size, depth, seconds):
    """Returns {ring: (GB/s, us of CPU per read)} and what our ring says of itself."""
    out = subprocess.run(
        [*prefix, binary, path, "--rings", "uring,default", "--bytes", size, "--depth", depth,
         "--seconds", str(seconds), "--rounds", "1"], check=True, capture_output=True,
        text=True).stdout
    figures, says = {}, ""
    for line in out.splitlines()[1:]:
        parts = line.split(maxsplit=5)
        figures[parts[0]] = (float(parts[3]), float(parts[4]))
        if parts[0] == "uring":
            says = parts[5]
    return figures, says


def fio(prefix, path, size, depth, seconds):
    out = subprocess.run(
        [*prefix, "fio", "--name=pages", f"--filename={path}", "--rw=randread",
         "--ioengine=io_uring", "--direct=1", f"--bs={size}", f"--iodepth={depth}", "--time_based",
         f"--runtime={seconds}", "--readonly", "--output-format=json"], check=True,
        capture_output=True, text=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e9


def compare(who, prefix, options, binary, path):
    print(f"\n{who}")
    print(f"{'bytes':>6} {'depth':>5} {'ring GB/s':>10} {'fio GB/s':>9} {'ratio':>6} "
          f"{'ring us':>8} {'default us':>10} {'ratio':>6}")
    says = ""
    for size in options.bytes.split(","):
        for depth in options.depth.split(","):
            rounds = []
            for _ in range(options.rounds):
                theirs = fio(prefix, path, size, depth, max(1, options.seconds))
                ours, says = ring_bench(prefix, binary, path, size, depth, options.seconds)
                rounds.append((ours["uring"][0], theirs, ours["uring"][1], ours["default"][1]))
            speed, theirs, cpu, default_cpu = (statistics.median(r[i] for r in rounds)
                                               for i in range(4))
            print(f"{size:>6} {depth:>5} {speed:10.2f} {theirs:9.2f} {speed / theirs:6.2f} "
                  f"{cpu:8.1f} {default_cpu:10.1f} {cpu / default_cpu:6.2f}", flush=True)
    print(f"the ring: {says}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default=str(ROOT / "build"))
    parser.add_argument("--binary", default=str(ROOT / "build/release/ring_bench"))
    parser.add_argument("--bytes", default="256K,1M,4M")
    parser.add_argument("--depth", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("needs fio: apt-get install fio")
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        path = f"{directory}/pages"
        # One short case makes the file and fills it.
        subprocess.run([options.binary, path, "--bytes", "1M", "--depth", "1", "--seconds", "0.1",
                        "--rounds", "1"], check=True, stdout=subprocess.DEVNULL)
        compare(f"as {'root' if os.geteuid() == 0 else 'this user'}", [], options, options.binary,
                path)
        if os.geteuid() == 0:
            os.chown(directory, 65534, 65534)
            os.chown(path, 65534, 65534)
            compare("as a plain user with 8 MiB of lockable memory", PLAIN_USER, options,
                    options.binary, path)


if __name__ == "__main__":
    main()
