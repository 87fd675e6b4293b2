#!/usr/bin/env python3
"""What 200 clients that misbehave cost one that does not (case H3).

One server, one healthy client that streams short answers, one after the other. It is measured in
turns of a few seconds, alone and beside 200 slow clients in a process of their own: slow headers
(a byte now and then), slow bodies, readers that take a little of a large answer now and then, and
WebSockets that send half a frame and stay. Alternating turns, so that what else the machine does
meets both alike. Prints the medians and the 99th percentiles, and their ratio.

    bench/slow_clients.py [--turns 8] [--seconds 6]
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import socket
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
import harness  # noqa: E402

KINDS = ("slow headers", "slow bodies", "slow readers", "idle sockets")
REQUEST = {"messages": [{"role": "user", "content": "Count to five."}], "max_tokens": 8,
           "temperature": 0, "stream": True, "ignore_eos": True}
LARGE = json.dumps({"prompt": "word " * 40_000}).encode()  # /tokenize answers with 40,000 numbers


class SlowClient:
    """One connection; poke() does the little that it does, and comes twice a second."""

    def __init__(self, port, kind):
        self.port, self.kind, self.socket = port, kind, None
        self.open()

    def open(self):
        self.close()
        self.socket = socket.socket()
        if self.kind == "slow readers":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", self.port))
        first = {
            "slow headers": b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            "slow bodies": b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: 100000\r\n\r\n{",
            "slow readers": b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                            + str(len(LARGE)).encode() + b"\r\n\r\n" + LARGE,
            "idle sockets": b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
                            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
                            b"Sec-WebSocket-Version: 13\r\n"
                            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\xfe",
        }[self.kind]
        self.socket.sendall(first)
        self.socket.setblocking(False)

    def poke(self):
        try:
            if self.kind == "slow readers":
                if self.socket.recv(512) == b"":
                    self.open()
            elif self.kind != "idle sockets":
                self.socket.send(b"x")
        except BlockingIOError:
            pass
        except OSError:
            self.open()  # met a deadline: here it is again

    def close(self):
        if self.socket is not None:
            self.socket.close()


def misbehave(port, count, wanted, ready):
    """Keeps `count` slow clients while `wanted` is set."""
    while True:
        wanted.wait()
        clients = [SlowClient(port, KINDS[i % len(KINDS)]) for i in range(count)]
        time.sleep(1)
        ready.set()
        at = 0
        while wanted.is_set():
            for client in clients[at::10]:
                client.poke()
            at = (at + 1) % 10
            time.sleep(0.05)
        for client in clients:
            client.close()
        time.sleep(0.5)
        ready.clear()


def healthy(server, seconds, first, whole):
    """Streams answers for a while; appends milliseconds to the first byte and to the end."""
    connection = server.connect()
    end = time.monotonic() + seconds
    body = json.dumps(REQUEST)
    with contextlib.closing(connection):
        while time.monotonic() < end:
            start = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", body,
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            reply.read(1)
            first.append(1000 * (time.perf_counter() - start))
            text = reply.read()
            whole.append(1000 * (time.perf_counter() - start))
            assert text.endswith(b"data: [DONE]\n\n"), text[-200:]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=8, help="of each kind")
    parser.add_argument("--seconds", type=float, default=6, help="of a turn")
    parser.add_argument("--clients", type=int, default=200)
    arguments = parser.parse_args()
    wanted, ready = multiprocessing.Event(), multiprocessing.Event()
    times = {name: ([], []) for name in ("alone", "beside")}
    with harness.Server("--log-level", "warn") as server:
        slow = multiprocessing.Process(target=misbehave, daemon=True, args=(
            server.port, arguments.clients, wanted, ready))
        slow.start()
        healthy(server, 2, [], [])
        for turn in range(2 * arguments.turns):
            name = ("alone", "beside")[turn % 2]
            if name == "beside":
                wanted.set()
                ready.wait()
                open_now = server.metric("spillway:connections")
                assert open_now > arguments.clients, open_now
            healthy(server, arguments.seconds, *times[name])
            wanted.clear()
            while ready.is_set():
                time.sleep(0.05)
        slow.kill()
    print(f"{arguments.clients} slow clients: {', '.join(KINDS)}; "
          f"{len(times['alone'][1])} + {len(times['beside'][1])} answers of a healthy one")
    print("| milliseconds | alone | beside | ratio |\n|---|---|---|---|")
    for index, what in enumerate(("to the first byte", "whole answer")):
        for name, of in (("median", statistics.median), ("p99", lambda v: percentile(v, 0.99))):
            alone, beside = of(times["alone"][index]), of(times["beside"][index])
            print(f"| {what}, {name} | {alone:.2f} | {beside:.2f} | {beside / alone:.2f} |")


if __name__ == "__main__":
    main()
