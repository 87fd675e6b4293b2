#!/usr/bin/env python3
"""Plots what bench/replay wrote: hits by cache size, for each policy.

    build/release/replay --csv replay.csv conversation.jsonl
    bench/plot_replay.py replay.csv docs/replay.svg
"""

import argparse
import csv
import math
import pathlib

COLORS = {"lru": "#d98a29", "s3fifo": "#8a6fb0", "value": "#14938a", "optimum": "#9aa5a1"}
NAMES = {"lru": "LRU", "s3fifo": "S3-FIFO", "value": "value (default)",
         "optimum": "knows the future"}
WIDTH, HEIGHT, MARGIN = 640, 300, 56


def plot(rows):
    sizes = sorted({int(row["device_blocks"]) for row in rows})
    y_max = max(float(row["hit_share"]) for row in rows) * 108

    def x_of(size):
        whole = math.log(sizes[-1] / sizes[0]) or 1
        return MARGIN + math.log(size / sizes[0]) / whole * WIDTH

    def y_of(percent):
        return MARGIN + HEIGHT * (1 - percent / y_max)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * MARGIN} '
             f'{HEIGHT + 2 * MARGIN}" font-family="sans-serif" font-size="13">',
             f'<rect width="{WIDTH + 2 * MARGIN}" height="{HEIGHT + 2 * MARGIN}" fill="#fffdf8"/>',
             f'<text x="{MARGIN}" y="26" fill="#17211f" font-size="15">Blocks found in the cache '
             '(% of all asked for), by its size</text>']
    for percent in range(0, int(y_max) + 1, 10):
        y = y_of(percent)
        parts.append(f'<line x1="{MARGIN}" x2="{MARGIN + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
                     'stroke="#dcd7ca"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5d6a66">'
                     f'{percent}</text>')
    for size in sizes:
        parts.append(f'<text x="{x_of(size):.1f}" y="{MARGIN + HEIGHT + 20}" text-anchor="middle" '
                     f'fill="#5d6a66">{size:,}</text>')
    for number, policy in enumerate(p for p in COLORS if any(r["policy"] == p for r in rows)):
        mine = sorted((int(r["device_blocks"]), 100 * float(r["hit_share"])) for r in rows
                      if r["policy"] == policy)
        points = " ".join(f"{x_of(size):.1f},{y_of(hits):.1f}" for size, hits in mine)
        dash = ' stroke-dasharray="5 5"' if policy == "optimum" else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[policy]}" '
                     f'stroke-width="2.5" stroke-linejoin="round"{dash}/>')
        parts.append(f'<text x="{MARGIN + 12}" y="{MARGIN + 18 + 20 * number}" '
                     f'fill="{COLORS[policy]}">{NAMES[policy]}</text>')
    parts.append(f'<text x="{MARGIN + WIDTH / 2}" y="{MARGIN + HEIGHT + 42}" text-anchor="middle" '
                 'fill="#5d6a66">blocks of 512 tokens</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("svg")
    arguments = parser.parse_args()
    with open(arguments.csv, newline="", encoding="utf-8") as file:
        pathlib.Path(arguments.svg).write_text(plot(list(csv.DictReader(file))), encoding="utf-8")


if __name__ == "__main__":
    main()
