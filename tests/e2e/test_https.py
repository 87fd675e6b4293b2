"""TLS on the real program: HTTP, event streams and WebSockets."""

import json
import pathlib
import ssl
import subprocess
import tempfile
import unittest
import urllib.request

from websockets.sync.client import connect

from harness import Server


class HttpsServer(Server):
    def __init__(self, folder):
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(self.key), "-out",
                        str(self.cert)], check=True, capture_output=True)
        super().__init__("--ssl-certfile", str(self.cert), "--ssl-keyfile", str(self.key),
                         wait=False)
        self.trust = ssl.create_default_context(cafile=str(self.cert))
        self.url = self.url.replace("http:", "https:")
        self.wait_ready()

    def get(self, path, headers={}):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self.trust, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class Https(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = HttpsServer(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.server.wait_idle()
        cls.assertEqual(cls(), cls.server.stop(), 0)
        cls.folder.cleanup()

    def test_curl_streams_events(self):
        body = json.dumps({"prompt": "Hi", "max_tokens": 5, "stream": True})
        out = subprocess.run(
            ["curl", "-sN", "--cacert", str(self.server.cert), self.server.url + "/v1/completions",
             "-d", body], capture_output=True, text=True, check=True).stdout
        self.assertTrue(out.endswith("data: [DONE]\n\n"), out)

    def test_a_websocket_gets_its_answer_and_a_clean_close(self):
        with connect(self.server.url.replace("https", "wss") + "/v1/responses",
                     ssl=self.server.trust) as socket:
            socket.send(json.dumps({"type": "response.create", "input": "Hi",
                                    "max_output_tokens": 4}))
            kinds = []
            while not kinds or kinds[-1] not in ("response.incomplete", "response.completed"):
                kinds.append(json.loads(socket.recv(timeout=60))["type"])
            self.assertIn("response.output_text.delta", kinds)
        self.assertEqual(socket.close_code, 1000)

    def test_a_socket_cut_midway_frees_its_pages(self):
        with connect(self.server.url.replace("https", "wss") + "/v1/responses",
                     ssl=self.server.trust) as socket:
            socket.send(json.dumps({"type": "response.create", "input": "A long story.",
                                    "max_output_tokens": 3000}))
            while json.loads(socket.recv(timeout=60))["type"] != "response.output_text.delta":
                pass
        self.server.wait_idle(10)
        self.assertEqual(self.server.metric("spillway:websockets"), 0)


if __name__ == "__main__":
    unittest.main()
