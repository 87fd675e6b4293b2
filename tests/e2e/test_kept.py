"""What clients want to be kept: static parts of prompts, pins; and what they are told meanwhile."""

import contextlib
import json
import tempfile
import threading
import time
import unittest

import openai
from websockets.sync.client import connect

from harness import Server
from openai_case import OpenAiCase
from test_tiers import TierServer, document, settle

RULES = document(900, 220)  # what stays the same


def flood(server, count=12, seed=5000):
    for i in range(count):
        status, reply = server.post("/v1/completions", {
            "prompt": document(seed + i, 150), "max_tokens": 1})
        assert status == 200, reply


class Kept(OpenAiCase):
    """On a device of about three prompts."""

    DEVICE = "32M"

    def setUp(self):
        self.server.post("/reset_prefix_cache", {})

    def ask(self, question, marked, **more):
        part = {"type": "text", "text": RULES}
        if marked:
            part["prompt_cache_breakpoint"] = {"mode": "explicit"}
        return self.client.chat.completions.create(
            model=self.model, max_tokens=4, temperature=0,
            messages=[{"role": "system", "content": [part]},
                      {"role": "user", "content": question}], **more)

    def test_a_marked_system_prompt_outlives_other_prompts(self):
        for marked in (True, False):
            self.server.post("/reset_prefix_cache", {})
            first = self.ask("one", marked)
            flood(self.server)
            second = self.ask("two", marked, prompt_cache_key="k",
                              prompt_cache_options={"mode": "implicit"})
            receipt = second.usage.model_dump()["spillway"]
            cached = second.usage.prompt_tokens_details.cached_tokens
            if marked:
                self.assertGreaterEqual(cached, receipt["static"])
                self.assertGreater(receipt["static"], 200)
                self.assertGreater(self.server.cache()["static_parts"], 0)
            else:
                self.assertLess(cached, 100)
            self.assertEqual(first.usage.prompt_tokens, second.usage.prompt_tokens)

    def test_wrong_cache_options_are_400_with_their_field(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask("x", True, extra_body={"prompt_cache_options": {"mode": "sometimes"}})
        self.assertEqual(caught.exception.param, "prompt_cache_options.mode")

    def test_a_response_echoes_what_was_applied(self):
        reply = self.client.responses.create(
            model=self.model, max_output_tokens=4, prompt_cache_options={"mode": "explicit"},
            input=[{"role": "user", "content": [
                {"type": "input_text", "text": RULES,
                 "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
                {"type": "input_text", "text": "Go on."}]}])
        self.assertEqual(reply.prompt_cache_options.mode, "explicit")
        self.assertGreater(reply.usage.model_dump()["spillway"]["static"], 200)

    def test_a_pin_outlives_other_prompts_until_it_is_deleted(self):
        status, pin = self.server.post("/v1/cache/pins", {
            "messages": [{"role": "system", "content": RULES}], "ttl": 600})
        self.assertEqual(status, 200, pin)
        self.assertGreater(pin["tokens"], 200)
        self.assertAlmostEqual(pin["expires_at"], time.time() + 600, delta=5)
        flood(self.server)
        listed = json.loads(self.server.get("/v1/cache/pins")[1])
        self.assertEqual([p["id"] for p in listed["data"]], [pin["id"]])
        self.assertEqual(listed["data"][0]["device_tokens"], pin["tokens"])
        self.assertEqual(self.server.metric("spillway:pinned_prefixes"), 1)
        self.assertEqual(self.server.metric("spillway:pinned_prefix_pages"), pin["pages"])
        used = self.ask("What now?", False).usage
        self.assertGreaterEqual(used.prompt_tokens_details.cached_tokens, pin["tokens"])
        # A second one finds no room: at most a quarter is pinned.
        status, full = self.server.post("/v1/cache/pins", {"prompt": document(901, 150)})
        self.assertEqual((status, full["error"]["code"]), (409, "pin_limit_reached"))
        self.assertEqual(self.delete(pin["id"]), 200)
        self.assertEqual(self.delete(pin["id"]), 404)
        self.assertEqual(self.server.metric("spillway:pinned_prefixes"), 0)

    def test_a_pin_ends_at_its_ttl_and_at_a_reset(self):
        body = {"prompt": RULES, "ttl": 1}
        self.assertEqual(self.server.post("/v1/cache/pins", body)[0], 200)
        end = time.monotonic() + 10
        while self.server.metric("spillway:pinned_prefixes") != 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual(self.server.post("/v1/cache/pins", {**body, "ttl": 60})[0], 200)
        self.server.post("/reset_prefix_cache", {})
        self.assertEqual(json.loads(self.server.get("/v1/cache/pins")[1])["data"], [])

    def delete(self, pin):
        connection = self.server.connect()
        try:
            connection.request("DELETE", f"/v1/cache/pins/{pin}")
            return connection.getresponse().status
        finally:
            connection.close()

    def test_a_timeout_ends_the_answer(self):
        body = {"model": self.model, "prompt": "A very long story.", "max_tokens": 1000,
                "ignore_eos": True, "timeout": 0.3}
        started = time.monotonic()
        status, reply = self.server.post("/v1/completions", body)
        self.assertEqual((status, reply["error"]["code"]), (504, "deadline_exceeded"))
        self.assertLess(time.monotonic() - started, 5)
        connection = self.server.connect()
        try:
            connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
            stream = connection.getresponse()
            text = stream.read().decode()
        finally:
            connection.close()
        self.assertEqual(stream.status, 200)
        self.assertEqual(text.count('"deadline_exceeded"'), 1)
        self.server.wait_idle(5)


class Waiting(unittest.TestCase):
    def test_a_stream_in_the_queue_says_so_and_the_official_client_does_not_mind(self):
        with Server("--max-num-seqs", "1") as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
            stop = threading.Event()

            def occupy():
                with client.completions.create(
                        model="SmolLM2-135M-Instruct.Q4_1", prompt="Tell", max_tokens=4000,
                        stream=True, extra_body={"ignore_eos": True}) as stream:
                    for _ in stream:
                        if stop.is_set():
                            break
            other = threading.Thread(target=occupy)
            other.start()
            while server.cache()["running"] == 0:
                time.sleep(0.02)
            connection = server.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "messages": [{"role": "user", "content": "hi"}], "stream": True,
                "max_tokens": 4}))
            raw = connection.getresponse()  # the head comes with the first comment
            line = raw.readline().decode()
            self.assertTrue(line.startswith(": spillway {"), line)
            told = json.loads(line.removeprefix(": spillway "))
            self.assertEqual((told["state"], told["before"]), ("queued", 0))
            self.assertGreaterEqual(told["wait_ms"], 900)
            seen = []

            def ask():
                for chunk in client.chat.completions.create(
                        model="SmolLM2-135M-Instruct.Q4_1", stream=True, max_tokens=4,
                        temperature=0, messages=[{"role": "user", "content": "hi"}]):
                    seen.append(chunk)
            mine = threading.Thread(target=ask)
            mine.start()
            time.sleep(1.5)
            stop.set()
            other.join()
            self.assertTrue(raw.read().decode().endswith("data: [DONE]\n\n"))
            connection.close()
            mine.join()
            self.assertEqual(seen[-1].choices[0].finish_reason, "length")


class PinnedOnDisk(unittest.TestCase):
    def test_a_pin_goes_down_first_and_comes_back_after_a_restart(self):
        with tempfile.TemporaryDirectory() as directory:
            with TierServer(directory, "--kv-nvme-write", "reuse", device="32M") as server:
                status, pin = server.post("/v1/cache/pins", {"prompt": RULES})
                self.assertEqual(status, 200, pin)
                self.assertGreaterEqual(settle(server)["pages"], pin["pages"])
            with TierServer(directory, device="32M") as server:
                status, reply = server.post("/v1/completions",
                                            {"prompt": RULES + " More.", "max_tokens": 1})
                self.assertEqual(status, 200, reply)
                self.assertGreaterEqual(reply["usage"]["spillway"]["tokens"]["nvme"], 200)



class Prefetch(unittest.TestCase):
    """Pages of an open socket's conversation come up while its client types, or still sends."""

    def turn(self, socket, message):
        socket.send(message)
        while True:
            event = json.loads(socket.recv(timeout=60))
            self.assertNotEqual(event["type"], "error", event)
            if event["type"] in ("response.completed", "response.incomplete"):
                return event["response"]["usage"]["spillway"]["tokens"]

    @staticmethod
    def create(text):
        return json.dumps({"type": "response.create", "input": text, "max_output_tokens": 1})

    pushed = 0

    def push_off(self, server):
        """Other open conversations, more than the device holds; then they end."""
        url = server.url.replace("http", "ws") + "/v1/responses"
        with contextlib.ExitStack() as sockets:
            for i in range(10):
                socket = sockets.enter_context(connect(url))
                self.turn(socket, self.create(document(7000 + self.pushed + i, 150)))
            settle(server)
        self.pushed += 10  # others the next time
        end = time.monotonic() + 10
        while server.cache()["sessions"] > 1:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def wait_prefetched(self, server, more_than):
        end = time.monotonic() + 20
        while True:
            tokens = server.metric("spillway:session_prefetched_tokens_total")
            if tokens > more_than and server.wait_idle()["tiers"]["loads"] == 0:
                return tokens
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_a_hint_and_the_first_bytes_of_a_message_bring_pages_up(self):
        text = document(1, 200)
        with tempfile.TemporaryDirectory() as directory, \
                TierServer(directory, "--eviction-policy", "lru", device="32M") as server, \
                connect(server.url.replace("http", "ws") + "/v1/responses") as socket:
            self.turn(socket, self.create(text))
            settle(server)
            self.push_off(server)
            # Without anything said, they come up for the request.
            self.assertGreater(self.turn(socket, self.create(text + " One."))["nvme"], 100)
            self.push_off(server)
            socket.send(json.dumps({"type": "spillway:prefetch"}))
            tokens = self.wait_prefetched(server, 0)
            used = self.turn(socket, self.create(text + " One. Two."))
            self.assertEqual(used["nvme"], 0, used)
            self.assertGreater(used["device"], 150)
            self.push_off(server)
            time.sleep(0.3)  # hints come no more often than that

            def pieces():
                message = self.create(text + " One. Two. Three.")
                yield message[:40]
                self.wait_prefetched(server, tokens)
                yield message[40:]
            used = self.turn(socket, pieces())
            self.assertEqual(used["nvme"], 0, used)
            self.assertGreater(used["device"], 150)


if __name__ == "__main__":
    unittest.main()
