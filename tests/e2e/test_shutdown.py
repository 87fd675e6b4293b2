"""SIGTERM while clients are served: answers end, or end with an error; it never hangs (case A12)."""

import contextlib
import json
import signal
import socket
import threading
import time
import unittest

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from harness import Server

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Clients:
    """Streams over SSE and WebSocket in threads of their own; keeps how each one ended."""

    def __init__(self, server):
        self.server = server
        self.started = threading.Semaphore(0)
        self.ends = []
        self.threads = []

    def start(self, count, tokens):
        for index in range(count):
            work = self.sse if index % 2 == 0 else self.websocket
            self.threads.append(threading.Thread(target=work, args=(tokens,), daemon=True))
            self.threads[-1].start()
        for _ in range(count):
            if not self.started.acquire(timeout=60):
                raise AssertionError(f"not all clients were served: {self.ends}")

    def join(self):
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                raise AssertionError("a client still waits for its answer")

    def sse(self, tokens):
        connection = self.server.connect(60)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "messages": [{"role": "user", "content": "A long story."}], "max_tokens": tokens,
                "stream": True, "ignore_eos": True}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            head = reply.read(200)
            self.started.release()
            text = (head + reply.read()).decode()  # raises if the last chunk is missing
            self.ends.append("done" if text.endswith("data: [DONE]\n\n") else text[-300:])
        except Exception as error:  # noqa: BLE001
            self.ends.append(repr(error))
        finally:
            connection.close()

    def websocket(self, tokens):
        kind = None
        try:
            with connect(self.server.url.replace("http", "ws") + "/v1/responses") as one:
                one.send(json.dumps({"type": "response.create", "input": "A long story.",
                                     "max_output_tokens": tokens, "ignore_eos": True}))
                while kind not in ENDS:
                    event = json.loads(one.recv(timeout=60))
                    if event["type"] == "response.output_text.delta" and kind != event["type"]:
                        self.started.release()
                    kind = event["type"]
                end = "done" if kind == "response.incomplete" else json.dumps(event)
                with contextlib.suppress(TimeoutError):
                    one.recv(timeout=60)  # the close
                self.ends.append("not closed")
        except ConnectionClosed as closed:
            self.ends.append(end if kind in ENDS and closed.rcvd and closed.rcvd.code == 1001
                             else repr(closed))
        except Exception as error:  # noqa: BLE001
            self.ends.append(repr(error))


class Shutdown(unittest.TestCase):
    def terminate(self, server, seconds):
        """SIGTERM; the exit code, which must come in time."""
        server.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        code = server.process.wait(seconds)
        return code, time.monotonic() - start

    def test_answers_in_progress_end_first_and_nobody_new_is_served(self):
        with Server() as server:
            clients = Clients(server)
            clients.start(16, 120)
            idle = socket.create_connection(("127.0.0.1", server.port))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(idle.recv(1), b"")  # idle ones are closed at once
            idle.close()
            with self.assertRaises(OSError):
                socket.create_connection(("127.0.0.1", server.port), timeout=5).recv(1)
                raise ConnectionError("closed")
            clients.join()
            self.assertEqual(server.process.wait(30), 0)
            self.assertEqual(clients.ends, ["done"] * 16)

    def test_endless_answers_end_with_an_error_after_the_patience(self):
        with Server("--shutdown-timeout", "1") as server:
            clients = Clients(server)
            clients.start(16, 8000)
            code, seconds = self.terminate(server, 30)
            self.assertEqual(code, 0)
            self.assertGreater(seconds, 0.9)
            clients.join()
            self.assertEqual(len(clients.ends), 16)
            for end in clients.ends:
                self.assertIn("shutting down", end)

    def test_clients_that_neither_read_nor_speak_do_not_hold_it_up(self):
        with Server("--shutdown-timeout", "1") as server, contextlib.ExitStack() as stack:
            def open_socket(wire, receive_buffer=None):
                one = stack.enter_context(socket.socket())
                if receive_buffer:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
                one.connect(("127.0.0.1", server.port))
                one.sendall(wire)
            body = json.dumps({"prompt": ["A long story."] * 16, "max_tokens": 400, "stream": True,
                               "ignore_eos": True, "logprobs": 5}).encode()
            head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            for _ in range(4):
                open_socket(head % len(body) + body, 4096)  # reads nothing
            open_socket(b"GET / HT")
            open_socket(head % 100 + b"{")
            open_socket(b"GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            time.sleep(2)
            code, seconds = self.terminate(server, 40)
            self.assertEqual(code, 0)
            self.assertLess(seconds, 20)

    def test_it_stops_while_the_model_loads(self):
        server = Server(wait=False)
        while "listening" not in server.output():
            time.sleep(0.01)
        code, _ = self.terminate(server, 60)
        self.assertEqual(code, 0)
        server.log.close()


if __name__ == "__main__":
    unittest.main()
