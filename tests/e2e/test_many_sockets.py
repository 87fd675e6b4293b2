"""Thousands of idle WebSockets on the real program (case H4)."""

import contextlib
import os
import resource
import socket
import subprocess
import time
import unittest

from harness import BINARY, MODEL, Server, free_port

UPGRADE = (b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
           b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
SOCKETS = 10_000
BYTES_EACH_MAX = 32 << 10
OWN_FILES = 200  # that this process and the server need besides


class Process:
    """What the system says of the server."""

    def __init__(self, pid):
        self.path = f"/proc/{pid}"

    def resident(self):
        with open(self.path + "/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def files(self):
        return len(os.listdir(self.path + "/fd"))


def open_sockets(stack, port, count):
    """`count` WebSockets, 250 at a time so that none waits in a full backlog."""
    sockets = []
    for index in range(count):
        # Each source address has ports of its own.
        source = (f"127.0.0.{2 + index % 8}", 0)
        one = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), timeout=20, source_address=source))
        one.sendall(UPGRADE)
        sockets.append(one)
        if index % 250 == 249 or index == count - 1:
            for waiting in sockets[index // 250 * 250:]:
                answer = b""
                while not answer.endswith(b"\r\n\r\n"):
                    more = waiting.recv(4096)
                    assert more, f"closed after {answer!r}"
                    answer += more
                assert answer.startswith(b"HTTP/1.1 101"), answer
    return sockets


class ManySockets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        hard = cls.limits[1]
        files = SOCKETS + OWN_FILES
        if hard != resource.RLIM_INFINITY:
            files = min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, cls.limits[0]), hard))
        cls.count = files - OWN_FILES

    @classmethod
    def tearDownClass(cls):
        resource.setrlimit(resource.RLIMIT_NOFILE, cls.limits)

    def check(self, server):
        """Opens and closes them all, twice. Returns the bytes that each took."""
        process = Process(server.process.pid)
        server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2})
        server.wait_idle()
        files = process.files()
        before = process.resident()
        grown = []
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                sockets = open_sockets(stack, server.port, self.count)
                grown.append(process.resident() - before)
                self.assertEqual(server.metric("spillway:connections"), self.count + 1)
                self.assertGreaterEqual(process.files(), self.count)
                # The others are served as ever.
                start = time.monotonic()
                reply = server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2})
                self.assertEqual(reply[0], 200)
                self.assertLess(time.monotonic() - start, 5)
                sockets[-1].settimeout(0.01)
                with self.assertRaises(TimeoutError):
                    sockets[-1].recv(1)
            end = time.monotonic() + 20
            while server.metric("spillway:connections") > 1:  # the one that asks
                self.assertLess(time.monotonic(), end, "connections are left")
                time.sleep(0.05)
            end = time.monotonic() + 5
            while process.files() > files and time.monotonic() < end:
                time.sleep(0.05)
            self.assertLessEqual(process.files(), files)
        self.assertLess(grown[1], grown[0] * 1.1, "a second round takes more: a leak")
        return grown[0] / self.count

    def test_idle_websockets_take_bounded_memory_and_give_everything_back(self):
        with Server() as server:
            each = self.check(server)
            print(f"\n{self.count} idle WebSockets: {each:.0f} bytes of memory each")
            self.assertLess(each, BYTES_EACH_MAX)
            if self.limits[1] >= 20_000 or self.limits[1] == resource.RLIM_INFINITY:
                self.assertNotIn("may be open", server.output())

    def test_a_server_that_may_open_few_files_says_so(self):
        port = free_port()
        process = subprocess.Popen(
            [BINARY, "serve", "--port", str(port), "--model", str(MODEL),
             "--kv-device-size", "64M"], stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256)))
        try:
            lines = ""
            while "ready" not in lines:
                line = process.stderr.readline()
                self.assertNotEqual(line, "", f"the server ended: {lines}")
                lines += line
            # The soft limit of 128 was raised to the hard one.
            self.assertIn("256 may be open", lines)
        finally:
            process.terminate()
            process.wait(60)
            process.stderr.close()


if __name__ == "__main__":
    unittest.main()
