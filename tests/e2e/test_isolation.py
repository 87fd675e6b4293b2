"""Tenants do not see each other: neither in the cache, nor in what the server tells of itself."""

import json
import unittest

from websockets.sync.client import connect

from harness import Server

KEYS = {"Authorization": "Bearer key-one"}, {"Authorization": "Bearer key-two"}
TEXT = "The quick brown fox jumps over the lazy dog, again and again and again. " * 8
SECRET = "xylophonist"  # a word that is nowhere else


class Isolation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "key-one", "--api-key", "key-two", "--log-level", "trace",
                            wait=False)
        cls.server.wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.assertEqual(cls(), cls.server.stop(), 0)

    def cached(self, key, **more):
        status, reply = self.server.post("/v1/completions", {
            "prompt": TEXT, "max_tokens": 1, **more}, key)
        self.assertEqual(status, 200, reply)
        return reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    # case I1
    def test_a_prefix_is_found_only_under_its_own_key_and_salt(self):
        one, two = KEYS
        self.assertEqual(self.cached(one), 0)
        self.assertGreater(self.cached(one), 64)
        self.assertEqual(self.cached(two), 0)
        self.assertEqual(self.cached(one, cache_salt="a"), 0)
        self.assertGreater(self.cached(one, cache_salt="a"), 64)
        # Neither parts that only look the same together, nor the other's salt.
        self.assertEqual(self.cached(one, cache_salt="aa"), 0)
        self.assertEqual(self.cached(two, cache_salt="a"), 0)

    # case I3
    def test_emptying_the_cache_takes_a_key(self):
        self.assertEqual(self.server.post("/reset_prefix_cache", {})[0], 401)
        self.assertEqual(self.server.post("/reset_prefix_cache", {}, KEYS[0])[0], 200)

    # case I4
    def test_nothing_that_the_server_tells_of_itself_has_a_prompt_in_it(self):
        one, two = KEYS
        message = [{"role": "user", "content": f"My name is {SECRET}."}]
        tool = {"type": "function", "function": {"name": SECRET, "parameters": {}}}
        for body in ({"messages": message, "max_tokens": 3},
                     {"messages": message, "max_tokens": 3, "cache_salt": SECRET, "user": SECRET,
                      "tools": [tool], "metadata": {"a": SECRET}},
                     {"messages": message, "temperature": 99},
                     {"messages": message, "model": SECRET},
                     {"messages": [{"role": SECRET, "content": "x"}]},
                     '{"messages": "' + SECRET,
                     {"messages": message * 4000}):
            self.server.post("/v1/chat/completions", body, one)
        self.server.get(f"/v1/models/{SECRET}?{SECRET}=1", {**one, "User-Agent": SECRET})
        self.server.get(f"/{SECRET}", {"Authorization": f"Bearer {SECRET}"})
        with connect(self.server.url.replace("http", "ws") + "/v1/responses",
                     additional_headers=one) as socket:
            for event in ({"type": "response.create", "input": SECRET, "max_output_tokens": 2,
                           "stream_id": SECRET},
                          {"type": "response.create", "previous_response_id": SECRET, "input": "x"},
                          {"type": SECRET}):
                socket.send(json.dumps(event))
            ended = 0
            while ended < 3:
                kind = json.loads(socket.recv(timeout=60))["type"]
                ended += kind in ("error", "response.completed", "response.incomplete")
        for path in ("/metrics", "/debug/cache", "/debug/trace?seconds=0.1", "/v1/models",
                     "/version", "/health"):
            self.assertNotIn(SECRET, self.server.get(path, two)[1].lower(), path)
        self.assertNotIn(SECRET, self.server.output().lower())
        self.assertIn("http method=POST path=/v1/chat/completions", self.server.output())


if __name__ == "__main__":
    unittest.main()
