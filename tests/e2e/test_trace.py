"""The timeline: /debug/trace and --trace show what overlaps with what, and no text of anybody."""

import json
import pathlib
import tempfile
import threading
import unittest

from harness import Server
from test_tiers import TierServer, document, settle

SECRET = "xylophonist"


def spans(trace, cat):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == cat]


def overlap(one, other):
    return min(one["ts"] + one["dur"], other["ts"] + other["dur"]) - max(one["ts"], other["ts"])


class Timeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="spillway-trace-")
        root = pathlib.Path(cls.folder.name)
        prompt = f"{SECRET}. " + document(1, 400)
        with TierServer(root / "kv", size="256M", device="128M") as server:
            status, reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
            assert status == 200, reply
            settle(server)
        # The next process finds the prompt on NVMe alone, and loads it while another stream decodes.
        cls.file = root / "trace.json"
        with TierServer(root / "kv", "--trace", str(cls.file), size="256M",
                        device="128M") as server:
            cls.answers, began = {}, threading.Semaphore(0)

            def read_stream():
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps({
                    "prompt": SECRET, "max_tokens": 150, "ignore_eos": True, "stream": True}),
                    {"Content-Type": "application/json"})
                stream = connection.getresponse()
                while stream.read(64):
                    began.release()
                connection.close()

            def record():
                cls.answers["trace"] = server.get("/debug/trace?seconds=2")

            def ask():
                cls.answers["loaded"] = server.post("/v1/completions",
                                                    {"prompt": prompt, "max_tokens": 20})

            threads = [threading.Thread(target=target) for target in (read_stream, record, ask)]
            threads[0].start()
            assert began.acquire(timeout=60)
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(120)
            cls.output = server.output()
        cls.trace = json.loads(cls.answers["trace"][1])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_disk_read_overlaps_the_steps_of_others(self):
        status, reply = self.answers["loaded"]
        self.assertEqual(status, 200, reply)
        self.assertGreater(reply["usage"]["spillway"]["tokens"]["nvme"], 300, reply["usage"])
        reads = [read for read in spans(self.trace, "reads") if read["args"]["result"] == "ok"]
        self.assertGreater(len(reads), 20)
        self.assertGreaterEqual(min(read["args"]["bytes"] for read in reads), 4096)
        steps = spans(self.trace, "steps")
        self.assertGreater(sum(step["args"]["decoding"] for step in steps), 20)
        self.assertTrue(any(overlap(read, step) > 0 for read in reads for step in steps))
        # The layers of a step lie in it, one after the other, and are most of it where nothing else
        # ran on the machine.
        layers = spans(self.trace, "compute stream")
        self.assertEqual({layer["args"]["layer"] for layer in layers if layer["name"] == "layer"},
                         set(range(30)))
        shares = [sum(layer["dur"] for layer in layers if overlap(layer, step) > 0) / step["dur"]
                  for step in steps]
        self.assertGreater(max(shares), 0.8)
        self.assertLess(max(shares), 1.01)

    def test_each_request_shows_what_it_waited_for(self):
        rows = {}
        for event in spans(self.trace, "request"):
            rows.setdefault(event["tid"], []).append(event)
        names = [{event["name"] for event in row} for row in rows.values()]
        self.assertTrue(any({"queued", "prefill", "decode"} <= row for row in names), names)
        self.assertTrue(any("load" in row for row in names), names)
        loaded = max((event["args"]["of_these_nvme"] for row in rows.values() for event in row))
        self.assertGreater(loaded, 300)

    def test_it_is_whole(self):
        self.assertEqual(self.answers["trace"][0], 200)
        at, open_until = 0, {}
        for event in self.trace["traceEvents"]:
            if event["ph"] == "M":
                continue
            self.assertGreaterEqual(event["ts"], at)
            at = event["ts"]
            self.assertLess(at, 4e6)
            if event["ph"] == "i":
                continue
            self.assertGreaterEqual(event["dur"], 0)
            end = event["ts"] + event["dur"]
            row = open_until.setdefault(event["tid"], [])
            while row and row[-1] <= event["ts"] + 0.0005:
                row.pop()
            if row:  # inside, not across
                self.assertLessEqual(end, row[-1] + 0.0015, event)
            row.append(end)
        named = {event["args"]["name"] for event in self.trace["traceEvents"]
                 if event["name"] == "thread_name"}
        self.assertLessEqual({"engine", "steps", "compute stream", "reads 1"}, named)

    def test_the_file_is_written_when_the_server_is_stopped(self):
        written = json.loads(self.file.read_text())
        for lane in ("engine", "steps", "compute stream", "reads", "request"):
            self.assertGreaterEqual(len(spans(written, lane)), len(spans(self.trace, lane)), lane)

    # case I4
    def test_it_holds_no_text(self):
        for text in (self.answers["trace"][1], self.file.read_text()):
            self.assertNotIn(SECRET, text.lower())
            self.assertNotIn("lantern", text)

    def test_a_file_that_cannot_be_written_is_refused_at_once(self):
        server = Server("--trace", "/nowhere/trace.json", wait=False)
        self.assertEqual(server.process.wait(20), 1)
        self.assertIn("--trace /nowhere/trace.json cannot be written", server.output())
        server.log.close()


if __name__ == "__main__":
    unittest.main()
