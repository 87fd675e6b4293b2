#!/usr/bin/env python3
"""Plots the time to the first token by disk speed: recomputed, loaded, and with tiers.

    SPILLWAY_SIM_TABLE=1 build/release/scheduler_test --gtest_filter='NeverSlower.*' > table.txt
    bench/plot_disk_speeds.py table.txt docs/disk_speeds.svg
"""

import argparse
import math
import pathlib
import re

MODEL, ASK = "4 KiB, 100,000/s", "8192 + 32"
SERIES = (("recompute", "computed", "#8a6fb0"), ("load", "loaded", "#d98a29"),
          ("tiers", "with tiers", "#14938a"))
WIDTH, HEIGHT, MARGIN = 640, 300, 56


def rows_of(text):
    """{disk MB/s: {series: ms}} of one model and prompt, as never_slower_test prints them."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if len(cells) == 9 and cells[0] == MODEL and re.sub(r"\s+", " ", cells[3]) == ASK:
            rows[float(cells[1])] = dict(zip(("recompute", "load", "tiers"), map(float, cells[4:7])))
    if not rows:
        raise SystemExit(f"no row of '{MODEL}' and '{ASK}' in this file")
    return dict(sorted(rows.items()))


def plot(rows):
    speeds = list(rows)
    times = [ms for row in rows.values() for ms in row.values()]
    low, high = min(times) * 0.8, max(times) * 1.25

    def x_of(speed):
        return MARGIN + math.log(speed / speeds[0]) / math.log(speeds[-1] / speeds[0]) * WIDTH

    def y_of(ms):
        return MARGIN + HEIGHT * (1 - math.log(ms / low) / math.log(high / low))

    def text(x, y, what, anchor="middle", color="#5d6a66", size=13):
        return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
                f'font-size="{size}">{what}</text>')

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * MARGIN + 40} '
             f'{HEIGHT + 2 * MARGIN}" font-family="sans-serif">',
             f'<rect width="{WIDTH + 2 * MARGIN + 40}" height="{HEIGHT + 2 * MARGIN}" '
             'fill="#fffdf8"/>',
             text(MARGIN, 26, "First token of 8,192 tokens seen before and 32 new ones (ms), by "
                  "the disk's MB/s; simulated", "start", "#17211f", 15)]
    for ms in (5, 10, 20, 50, 100, 200, 500):
        if low < ms < high:
            parts.append(f'<line x1="{MARGIN}" x2="{MARGIN + WIDTH}" y1="{y_of(ms):.1f}" '
                         f'y2="{y_of(ms):.1f}" stroke="#dcd7ca"/>')
            parts.append(text(MARGIN - 8, y_of(ms) + 4, ms, "end"))
    for speed in speeds:
        parts.append(text(x_of(speed), MARGIN + HEIGHT + 22, f"{speed:g}"))
    for key, name, color in SERIES:
        points = [(x_of(speed), y_of(row[key])) for speed, row in rows.items()]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="3"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in points]
    # Where they lie apart: computed at the right, the two others at the left.
    last, first = rows[speeds[-1]], rows[speeds[0]]
    parts.append(text(x_of(speeds[-1]) + 8, y_of(last["recompute"]) + 4, "computed", "start",
                      SERIES[0][2]))
    parts.append(text(x_of(speeds[0]) + 10, y_of(first["load"]) - 4, "loaded", "start",
                      SERIES[1][2]))
    parts.append(text(x_of(speeds[0]) + 10, y_of(first["tiers"]) + 24, "with tiers", "start",
                      SERIES[2][2]))
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("svg", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.svg.write_text(plot(rows_of(arguments.table.read_text())))


if __name__ == "__main__":
    main()
