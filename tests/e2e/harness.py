"""Starts a real server with the real default model on a free port, and talks to it.

Environment: SPILLWAY_BINARY (path of the program), SPILLWAY_CACHE (models), SPILLWAY_TEST_DEVICE
(--device of the server).
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SPILLWAY_BINARY", str(ROOT / "build/release/spillway"))
CACHE = pathlib.Path(os.environ.get("SPILLWAY_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or
                                  pathlib.Path.home() / ".cache") / "spillway")
# What is compared and timed here is the processor's, unless somebody says otherwise.
DEVICE = os.environ.get("SPILLWAY_TEST_DEVICE", "cpu")
MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running server; stopped with SIGTERM at the end, and that must work."""

    def __init__(self, *arguments, wait=True, env=None, device="512M"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile("w+")
        command = self.command("serve", "--port", str(self.port), "--model", str(MODEL),
                               "--kv-device-size", device, "--device", DEVICE, *arguments)
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(env or {})})
        if wait:
            self.wait_ready()

    def command(self, *arguments):
        return [BINARY, *arguments]

    def wait_ready(self, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended:\n{self.output()}")
            with contextlib.suppress(OSError):
                if self.get("/health")[0] == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready:\n{self.output()}")

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path, headers={}):
        connection = self.connect()
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def post(self, path, body, headers={}):
        connection = self.connect()
        try:
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request("POST", path, data,
                               {"Content-Type": "application/json", **headers})
            reply = connection.getresponse()
            text = reply.read().decode()
            return reply.status, json.loads(text) if text else None
        finally:
            connection.close()

    def cache(self):
        return json.loads(self.get("/debug/cache")[1])

    def wait_idle(self, seconds=30):
        """Waits until nothing runs and no page is in use, then returns /debug/cache."""
        end = time.monotonic() + seconds
        while True:
            state = self.cache()
            busy = state["running"] or state["waiting"] or any(
                p["writable"] or p["filling"] or p["orphaned"] for p in state["pools"])
            if not busy:
                return state
            if time.monotonic() > end:
                raise AssertionError(f"not idle: {state}")
            time.sleep(0.05)

    def metric(self, name, **labels):
        """The sum of a metric over what matches the labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            match = re.match(r"([\w:]+)(?:\{(.*)\})? (\S+)$", line)
            if match and match.group(1) == name:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2) or ""))
                if all(found.get(k) == v for k, v in labels.items()):
                    total += float(match.group(3))
        return total

    def stop(self, seconds=60):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"SIGTERM did not end the server:\n{self.output()}")
        code = self.process.returncode
        self.log.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not self.log.closed:
            print(self.output()[-4000:])
        code = self.stop()
        if kind is None and code != 0:
            raise AssertionError(f"the server ended with {code}")
