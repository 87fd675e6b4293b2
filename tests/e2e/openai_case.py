"""One server for all tests of a class, and the official client to ask it with."""

import unittest

import openai

from harness import Server


class OpenAiCase(unittest.TestCase):
    """The server must come to rest and end well."""

    DEVICE = "512M"

    @classmethod
    def setUpClass(cls):
        cls.server = Server(device=cls.DEVICE)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_idle()
        cls.assertEqual(cls(), cls.server.stop(), 0)
