#!/usr/bin/env python3
"""Draws a timeline of the server (/debug/trace, serve --trace) as a picture.

    curl -o trace.json 'http://127.0.0.1:8000/debug/trace?seconds=5'
    bench/plot_trace.py trace.json docs/trace.svg --from 1200 --to 1600    # ms

For looking closely open the file at ui.perfetto.dev instead.
"""

import argparse
import json
import pathlib

COLORS = {"decode": "#14938a", "prefill": "#2f6db3", "mixed": "#5b86c4", "layer": "#7fc4bd",
          "logits": "#14938a", "read": "#d98a29", "write": "#b9b3a2", "flush": "#8d8878",
          "copy": "#8a6fb0", "queued": "#dcd7ca", "load": "#d98a29", "swapped out": "#c9b458"}
LANES = ("steps", "compute stream", "copies out", "copies in", "reads", "writes", "request")
TITLES = {"steps": "steps", "compute stream": "layers", "copies out": "copies out",
          "copies in": "copies in", "reads": "disk reads", "writes": "disk writes"}
KEY = (("decode", "decode"), ("prefill", "prefill"), ("mixed", "both"), ("read", "read, load"),
       ("write", "write"), ("copy", "copy"), ("queued", "queued"))
WIDTH, LEFT, TOP, ROW, THIN, GAP = 780, 92, 58, 16, 4, 9


def rows_of(trace, begin, end):
    """The spans in [begin, end] us of each row, by lane: {lane: {tid: [span]}}, and rows' names."""
    lanes, names = {lane: {} for lane in LANES}, {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["tid"]] = event["args"]["name"]
        if event["ph"] != "X" or event["cat"] not in lanes:
            continue
        if event["ts"] < end and event["ts"] + event["dur"] > begin:
            lanes[event["cat"]].setdefault(event["tid"], []).append(event)
    return lanes, names


class Picture:
    def __init__(self, begin, end):
        self.begin, self.scale = begin, WIDTH / (end - begin)
        self.parts, self.y = [], TOP

    def x(self, us):
        return LEFT + min(max((us - self.begin) * self.scale, 0), WIDTH)

    def text(self, x, y, text, anchor="start", color="#5d6a66", size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
                          f'font-size="{size}">{text}</text>')

    def box(self, span, height, inset=0):
        left, right = self.x(span["ts"]), self.x(span["ts"] + span["dur"])
        gap = 0.4 if right - left > 2 else 0
        self.parts.append(
            f'<rect x="{left:.2f}" y="{self.y + inset}" width="{max(right - left - gap, 0.3):.2f}" '
            f'height="{height - 2 * inset}" fill="{COLORS.get(span["name"], "#999")}"/>')

    def lane(self, title, rows, height):
        if not rows:
            return
        self.text(LEFT - 8, self.y + max(height * len(rows) / 2, 6) + 4, title, "end")
        for spans in rows:
            for span in spans:
                self.box(span, height)
            self.y += height + (1 if height == THIN else 0)
        self.y += GAP

    def request(self, title, spans):
        self.text(LEFT - 8, self.y + 12, title, "end")
        for span in spans:  # what is inside comes after, and is drawn on top
            self.box(span, ROW, inset=4 if span["name"] in ("load", "swapped out") else 0)
        self.y += ROW + 4


def plot(trace, begin, end):
    lanes, names = rows_of(trace, begin, end)
    picture = Picture(begin, end)
    for lane in LANES[:-1]:
        rows = list(lanes[lane].values())
        thin = lane in ("reads", "writes")
        picture.lane(TITLES[lane], rows, THIN if thin else ROW)
    for tid, spans in lanes["request"].items():
        picture.request(names[tid], spans)
    bottom = picture.y + 4
    grid = []
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
                if (end - begin) / 1000 / s <= 10)
    for ms in range(0, int((end - begin) / 1000) + 1, step):
        x = picture.x(begin + ms * 1000)
        grid.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}" '
                    'stroke="#e6e1d4"/>')
        picture.text(x, bottom + 16, f"{ms} ms" if ms else "0", "middle")
    at = LEFT
    for name, title in KEY:
        if not any(span["name"] == name for rows in lanes.values() for row in rows.values()
                   for span in row):
            continue
        picture.parts.append(f'<rect x="{at}" y="36" width="10" height="10" '
                             f'fill="{COLORS[name]}"/>')
        picture.text(at + 14, 45, title)
        at += 30 + 7 * len(title)
    height, width = bottom + 28, LEFT + WIDTH + 30
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif"><rect width="{width}" height="{height}" fill="#fffdf8"/>'
            f'<text x="{LEFT}" y="24" fill="#17211f" font-size="15">What the server did, and what '
            'requests waited for</text>')
    return "\n".join([head, *grid, *picture.parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("svg")
    parser.add_argument("--from", dest="begin", type=float, default=0, help="ms (0)")
    parser.add_argument("--to", dest="end", type=float, help="ms (the end)")
    arguments = parser.parse_args()
    trace = json.loads(pathlib.Path(arguments.trace).read_text(encoding="utf-8"))
    last = max(event["ts"] + event.get("dur", 0) for event in trace["traceEvents"] if "ts" in event)
    end = arguments.end * 1000 if arguments.end else last
    pathlib.Path(arguments.svg).write_text(plot(trace, arguments.begin * 1000, end),
                                           encoding="utf-8")


if __name__ == "__main__":
    main()
