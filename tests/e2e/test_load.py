"""Many clients at once, and many that leave: afterwards every gauge is back at its baseline."""

import contextlib
import json
import logging
import re
import threading
import time
import unittest

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from harness import Server

logging.getLogger("websockets").setLevel(logging.CRITICAL)  # of sockets closed on purpose

# Gauges that need not be back where they were, and why.
DIFFERING = {
    "spillway:tier_bytes_per_second",  # a rate, as measured last
}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def gauges(server):
    """Every gauge that the server has, by name and labels."""
    text = server.get("/metrics")[1]
    names = set(re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)) - DIFFERING
    found = {}
    for line in text.splitlines():
        match = re.match(r"([\w:]+)(\{.*\})? (\S+)$", line)
        if match and match.group(1) in names:
            labels = re.findall(r'\w+="[^"]*"', match.group(2) or "")
            labels = ",".join(sorted(l for l in labels if not l.startswith("model_name=")))
            found[f"{match.group(1)} {labels}".strip()] = float(match.group(3))
    return found


def rest(server, seconds=30):
    """Every gauge, once they no longer change."""
    server.wait_idle(seconds)
    end = time.monotonic() + seconds
    last, since = gauges(server), time.monotonic()
    while time.monotonic() - since < 0.5:
        now = gauges(server)
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() > end:
            raise AssertionError(f"the gauges do not come to rest: {now}")
        time.sleep(0.05)
    return last


def baseline(server):
    """Every gauge at rest with an empty cache. What clients held must have gone by itself."""
    held = rest(server)
    server.post("/reset_prefix_cache", {})
    empty = rest(server)
    for name, value in held.items():
        if name.startswith(("spillway:sessions", "spillway:kv_pages_pinned")):
            empty[name + " before the reset"] = value
    return empty


def event_stream(server, prompt, tokens):
    connection = server.connect(300)
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "stream": True,
        "temperature": 0}), {"Content-Type": "application/json"})
    return connection


def socket(server):
    return connect(server.url.replace("http", "ws") + "/v1/responses", open_timeout=60,
                   max_size=None)


def create(prompt, tokens, **more):
    return json.dumps({"type": "response.create", "input": prompt, "max_output_tokens": tokens,
                       "temperature": 0, **more})


class Load(unittest.TestCase):
    def run_all(self, work, count):
        failures = []

        def guarded(index):
            try:
                work(index)
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))
        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def stream(self, server, index):
        if index % 2 == 0:
            connection = event_stream(server, f"Say something about {index}.", 24)
            with contextlib.closing(connection):
                text = connection.getresponse().read().decode()
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-200:])
            return
        with socket(server) as one:
            for lane in ("a", "b"):
                one.send(create(f"Say something about {index}.", 12, stream_id=lane))
            ended = []
            while len(ended) < 2:
                event = json.loads(one.recv(timeout=300))
                if event["type"] in ENDS:
                    ended.append(event["type"])
            self.assertTrue(all(e in ENDS[:2] for e in ended), ended)

    def leave_midway(self, server, index):
        prompt = f"Story {index % 7}, long."
        if index % 2 == 0:
            connection = event_stream(server, prompt, 500)
            if index % 3:
                connection.getresponse().read(20)
            connection.close()
            return
        with contextlib.suppress(ConnectionClosed), socket(server) as one:
            one.send(create(prompt, 500, store=index % 4 == 1))
            if index % 3:
                for _ in range(5):
                    one.recv(timeout=60)
            if index % 5:
                one.socket.close()  # gone without a word

    def test_128_streams_and_200_disconnects_leave_every_gauge_at_its_baseline(self):
        with Server() as server:
            server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2})
            before = baseline(server)
            self.assertEqual(before["vllm:num_requests_running"], 0)
            self.assertEqual(before["spillway:websockets"], 0)
            self.assertEqual(before["spillway:open_requests"], 0)
            self.assertEqual(before['spillway:kv_pages group="0",state="sealed",tier="device"'], 0)
            self.assertIn("spillway:sessions before the reset", before)
            self.run_all(lambda index: self.stream(server, index), 128)
            self.assertEqual(baseline(server), before)
            for index in range(200):
                self.leave_midway(server, index)
            self.assertEqual(baseline(server), before)

    def test_gauges_count_what_is_open(self):
        with Server() as server, socket(server) as one:
            one.send(create("Name a river.", 2))
            while json.loads(one.recv(timeout=60))["type"] not in ENDS:
                pass
            self.assertEqual(server.metric("spillway:sessions"), 1)
            self.assertEqual(server.metric("spillway:open_requests"), 0)
            one.send(create("Write a long story.", 3000))
            while json.loads(one.recv(timeout=60))["type"] != "response.output_text.delta":
                pass
            self.assertEqual(server.metric("spillway:websockets"), 1)
            self.assertEqual(server.metric("spillway:open_requests"), 1)
            self.assertEqual(server.metric("spillway:connections"), 2)
            self.assertEqual(server.metric("vllm:num_requests_running"), 1)
            for line in server.get("/metrics")[1].splitlines():
                if line.startswith("vllm:"):
                    self.assertIn('{model_name="', line)

    def test_an_idle_server_uses_no_processor(self):
        with Server() as server:
            server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 3})
            time.sleep(0.5)

            def used():
                with open(f"/proc/{server.process.pid}/stat") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
                return int(fields[11]) + int(fields[12])  # ticks of user and system time
            before = used()
            time.sleep(3)
            self.assertLessEqual(used() - before, 2)  # of 300


if __name__ == "__main__":
    unittest.main()
