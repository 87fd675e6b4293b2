#!/usr/bin/env python3
"""Latency of each turn of a 50-turn chat, with and without the prefix cache, side by side.

    bench/multi_turn.py [--turns 50] [--svg docs/multi_turn.svg] [--csv FILE]

Starts two servers of the release build (one with --no-enable-prefix-caching) and alternates between
them turn by turn, so that both see the same machine. Prints a table; writes the plot.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from harness import Server  # noqa: E402

QUESTIONS = ["Tell me one more thing about rivers.", "Why is that so?", "Give me an example.",
             "How do people use it?", "What should a visitor look at first?"]


def turn(server, messages, max_tokens):
    """Asks, appends the answer; returns (seconds to the whole answer, usage)."""
    start = time.perf_counter()
    status, reply = server.post("/v1/chat/completions", {
        "messages": messages, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True})
    seconds = time.perf_counter() - start
    if status != 200:
        raise SystemExit(f"the server answered {status}: {reply}")
    messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
    return seconds, reply["usage"]


def polyline(points, color, width, height, x_max, y_max, margin):
    coordinates = " ".join(
        f"{margin + (x - 1) / max(1, x_max - 1) * width:.1f},"
        f"{margin + height - y / y_max * height:.1f}" for x, y in points)
    return (f'<polyline points="{coordinates}" fill="none" stroke="{color}" stroke-width="2.5" '
            'stroke-linejoin="round"/>')


def plot(path, rows):
    """rows: (turn, seconds with the cache, seconds without, prompt tokens)."""
    width, height, margin = 640, 300, 56
    y_max = max(r[2] for r in rows) * 1.08 * 1000
    x_max = rows[-1][0]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 2 * margin} '
             f'{height + 2 * margin}" font-family="sans-serif" font-size="13">',
             f'<rect width="{width + 2 * margin}" height="{height + 2 * margin}" fill="#fffdf8"/>']
    for step in range(5):
        y = margin + height * step / 4
        label = y_max * (4 - step) / 4
        parts.append(f'<line x1="{margin}" x2="{margin + width}" y1="{y:.1f}" y2="{y:.1f}" '
                     'stroke="#dcd7ca"/>')
        parts.append(f'<text x="{margin - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5d6a66">'
                     f'{label:.0f}</text>')
    for x in range(0, x_max + 1, 10):
        at = margin + (max(x, 1) - 1) / max(1, x_max - 1) * width
        parts.append(f'<text x="{at:.1f}" y="{margin + height + 20}" text-anchor="middle" '
                     f'fill="#5d6a66">{max(x, 1)}</text>')
    parts.append(polyline([(r[0], r[2] * 1000) for r in rows], "#d98a29", width, height, x_max,
                          y_max, margin))
    parts.append(polyline([(r[0], r[1] * 1000) for r in rows], "#14938a", width, height, x_max,
                          y_max, margin))
    parts.append(f'<text x="{margin}" y="26" fill="#17211f" font-size="15">Milliseconds per turn, '
                 f'{x_max}-turn chat ({rows[-1][3]} prompt tokens at the end)</text>')
    parts.append(f'<text x="{margin + 12}" y="{margin + 18}" fill="#d98a29">without the prefix '
                 'cache</text>')
    parts.append(f'<text x="{margin + 12}" y="{margin + 38}" fill="#14938a">with it</text>')
    parts.append(f'<text x="{margin + width / 2}" y="{margin + height + 42}" text-anchor="middle" '
                 'fill="#5d6a66">turn</text></svg>')
    pathlib.Path(path).write_text("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--svg")
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    rows = []
    with Server() as cached, Server("--no-enable-prefix-caching") as plain:
        chats = ([], [])
        for number in range(1, arguments.turns + 1):
            question = {"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}
            results = []
            for server, messages in zip((cached, plain), chats):
                messages.append(question)
                results.append(turn(server, messages, arguments.max_tokens))
            if chats[0] != chats[1]:
                raise SystemExit(f"turn {number}: the answers differ")
            (with_cache, usage), (without, _) = results
            details = usage["prompt_tokens_details"]
            rows.append((number, with_cache, without, usage["prompt_tokens"],
                         details["cached_tokens"]))
            print(f"turn {number:3}: {usage['prompt_tokens']:5} prompt tokens, "
                  f"{details['cached_tokens']:5} cached, {with_cache * 1000:7.0f} ms with the "
                  f"cache, {without * 1000:7.0f} ms without, {without / with_cache:5.1f}x",
                  flush=True)
    if arguments.csv:
        lines = ["turn,seconds_with,seconds_without,prompt_tokens,cached_tokens"]
        lines += [",".join(str(v) for v in row) for row in rows]
        pathlib.Path(arguments.csv).write_text("\n".join(lines) + "\n")
    if arguments.svg:
        plot(arguments.svg, rows)


if __name__ == "__main__":
    main()
