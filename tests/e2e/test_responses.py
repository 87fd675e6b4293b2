"""The Responses API over HTTP and over the official client's own WebSocket."""

import asyncio
import json
import unittest

import openai
import websockets

from openai_case import OpenAiCase

ORDER = ["response.created", "response.in_progress", "response.output_item.added",
         "response.content_part.added", "response.output_text.delta",
         "response.output_text.done", "response.content_part.done",
         "response.output_item.done", "response.completed"]


class Responses(OpenAiCase):
    # ---- HTTP ----

    def test_basic_response(self):
        reply = self.client.responses.create(model=self.model, temperature=0, max_output_tokens=24,
                                             input="What is a KV cache?")
        self.assertIn("cache", reply.output_text)
        self.assertEqual(reply.usage.total_tokens,
                         reply.usage.input_tokens + reply.usage.output_tokens)

    def test_streaming_keeps_the_order_of_events(self):
        events = list(self.client.responses.create(
            model=self.model, input="Say hello.", temperature=0, max_output_tokens=200,
            stream=True))
        kinds = [e.type for e in events]
        collapsed = [k for i, k in enumerate(kinds) if i == 0 or k != kinds[i - 1]]
        self.assertEqual(collapsed, ORDER)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(text, events[-1].response.output_text)

    def test_a_response_is_continued_by_its_id(self):
        first = self.client.responses.create(model=self.model, temperature=0, max_output_tokens=16,
                                             input="My name is Ada. Remember it, please.")
        second = self.client.responses.create(model=self.model, temperature=0,
                                              max_output_tokens=16, input="What is my name?",
                                              previous_response_id=first.id)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens)
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)

    def test_an_unknown_previous_response_is_400(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model=self.model, input="x",
                                         previous_response_id="resp_nope")
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_a_cut_answer_is_incomplete(self):
        reply = self.client.responses.create(model=self.model, input="Tell a long story.",
                                             max_output_tokens=5)
        self.assertEqual(reply.status, "incomplete")
        self.assertEqual(reply.incomplete_details.reason, "max_output_tokens")

    # ---- the official client's WebSocket ----

    @staticmethod
    def until_end(connection):
        events = []
        for event in connection:
            events.append(event)
            if event.type in ("response.completed", "response.incomplete", "response.failed",
                              "error"):
                return events
        raise AssertionError(f"the connection ended after {[e.type for e in events]}")

    def test_official_websocket_speaks_the_same_events(self):
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input="Say hello.", temperature=0,
                                       max_output_tokens=200)
            kinds = [e.type for e in self.until_end(connection)]
            collapsed = [k for i, k in enumerate(kinds) if i == 0 or k != kinds[i - 1]]
            self.assertEqual(collapsed, ORDER)

    def test_official_websocket_continues_without_storing(self):
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input="My dog is called Rex.",
                                       store=False, temperature=0, max_output_tokens=16)
            first = self.until_end(connection)[-1].response
            connection.response.create(model=self.model, input="What is my dog called?",
                                       previous_response_id=first.id, store=False,
                                       temperature=0, max_output_tokens=16)
            second = self.until_end(connection)[-1].response
            self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)
        # What is not stored dies with its connection.
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input="x", previous_response_id=first.id)
            error = self.until_end(connection)[-1]
            self.assertEqual(error.type, "error")
            self.assertEqual(error.error.code, "previous_response_not_found")
            # The connection goes on, with the whole conversation.
            connection.response.create(model=self.model, input="Hello again.",
                                       max_output_tokens=4)
            self.assertIn(self.until_end(connection)[-1].type,
                          ("response.completed", "response.incomplete"))

    def test_a_failed_continuation_evicts_its_state(self):
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input="Hi", store=False,
                                       max_output_tokens=4)
            first = self.until_end(connection)[-1].response
            connection.response.create(model=self.model, input="x", store=False, temperature=99,
                                       previous_response_id=first.id)
            self.assertEqual(self.until_end(connection)[-1].type, "error")
            connection.response.create(model=self.model, input="x", store=False,
                                       previous_response_id=first.id)
            self.assertEqual(self.until_end(connection)[-1].error.code,
                             "previous_response_not_found")

    def test_generate_false_warms_the_cache_and_can_be_continued(self):
        text = "A long document about bridges. " * 40
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input=text, generate=False)
            warm = self.until_end(connection)[-1].response
            self.assertEqual(warm.status, "completed")
            self.assertEqual(warm.output, [])
            self.assertEqual(warm.usage.output_tokens, 0)
            connection.response.create(model=self.model, input="Summarize it.",
                                       previous_response_id=warm.id, max_output_tokens=4)
            usage = self.until_end(connection)[-1].response.usage
            self.assertGreater(usage.input_tokens_details.cached_tokens, 200)

    def test_lanes_run_side_by_side_and_echo_their_id(self):
        with self.client.responses.connect() as connection:
            for lane in ("a", "b"):
                connection.response.create(model=self.model, input="Count to ten.", stream_id=lane,
                                           max_output_tokens=30, temperature=0)
            ended, seen = set(), []
            for event in connection:
                seen.append(event.stream_id)
                if event.type in ("response.completed", "response.incomplete"):
                    ended.add(event.stream_id)
                    if ended == {"a", "b"}:
                        break
            switches = sum(x != y for x, y in zip(seen, seen[1:]))
            self.assertGreater(switches, 4)

    def test_steering_ends_the_response_and_a_successor_follows(self):
        with self.client.responses.connect() as connection:
            connection.response.create(model=self.model, input="Write a very long story.",
                                       max_output_tokens=1500)
            created = next(iter(connection))
            for event in connection:
                if event.type == "response.output_text.delta":
                    break
            connection.send({"type": "response.steer", "previous_response_id": created.response.id,
                             "input": "Stop. Say only: done."})
            kinds, responses = [], []
            for event in connection:
                kinds.append(event.type)
                if event.type == "response.incomplete" and len(responses) == 0:
                    self.assertEqual(event.response.incomplete_details.reason, "steered")
                if event.type == "response.created":
                    responses.append(event.response)
                    break
            self.assertIn("response.steer.accepted", kinds)
            self.assertIn("response.incomplete", kinds)
            self.assertEqual(responses[0].previous_response_id, created.response.id)

    def test_steering_what_is_not_there_is_refused_by_its_own_event(self):
        with self.client.responses.connect() as connection:
            connection.send({"type": "response.steer", "previous_response_id": "resp_nope",
                             "input": "x"})
            event = next(iter(connection))
            self.assertEqual(event.type, "response.steer.failed")
            self.assertEqual(event.error.code, "response_not_found")

    # ---- plain WebSocket ----

    def test_closing_the_socket_cancels(self):
        async def run():
            url = self.server.url.replace("http", "ws") + "/v1/responses"
            async with websockets.connect(url) as socket:
                await socket.send(json.dumps({"type": "response.create", "model": self.model,
                                              "input": "A long story.", "max_output_tokens": 3000}))
                for _ in range(6):
                    await socket.recv()
        asyncio.run(run())
        self.server.wait_idle(10)

    def test_bad_messages_get_an_error_event_and_the_connection_lives(self):
        async def run():
            url = self.server.url.replace("http", "ws") + "/v1/responses"
            async with websockets.connect(url) as socket:
                for text in ("{", "[]", '{"type":"nope"}', '{"type":"response.create","input":5}'):
                    await socket.send(text)
                    event = json.loads(await socket.recv())
                    self.assertEqual(event["type"], "error", text)
                    self.assertEqual(event["status"], 400, text)
                await socket.send(json.dumps({"type": "response.create", "input": "Hi",
                                              "max_output_tokens": 2}))
                self.assertEqual(json.loads(await socket.recv())["type"], "response.created")
        asyncio.run(run())

    def test_a_foreign_page_may_not_open_a_socket(self):
        async def run():
            url = self.server.url.replace("http", "ws") + "/v1/responses"
            with self.assertRaises(websockets.exceptions.InvalidStatus) as caught:
                async with websockets.connect(url, origin="https://evil.example"):
                    pass
            self.assertEqual(caught.exception.response.status_code, 403)
        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
