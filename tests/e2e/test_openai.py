"""The official openai client, curl and plain HTTP against a real server with the real model."""

import json
import subprocess
import unittest

import openai

from openai_case import OpenAiCase


class OpenAiClient(OpenAiCase):
    def chat(self, text, **extra):
        return self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], **extra)

    def test_chat_answers_with_usage(self):
        reply = self.chat("What is a KV cache?", max_tokens=24, temperature=0)
        self.assertIn("cache", reply.choices[0].message.content)
        self.assertEqual(reply.usage.total_tokens,
                         reply.usage.prompt_tokens + reply.usage.completion_tokens)
        self.assertIsNotNone(reply.usage.prompt_tokens_details.cached_tokens)

    def test_a_second_turn_reuses_the_first_ones_pages(self):
        messages = [{"role": "user", "content": "Tell me about the river Rhine, in one paragraph."}]
        first = self.client.chat.completions.create(model=self.model, messages=messages,
                                                    max_tokens=64, temperature=0)
        messages += [{"role": "assistant", "content": first.choices[0].message.content},
                     {"role": "user", "content": "And the Danube?"}]
        second = self.client.chat.completions.create(model=self.model, messages=messages,
                                                     max_tokens=8, temperature=0)
        cached = second.usage.prompt_tokens_details.cached_tokens
        self.assertGreaterEqual(cached, first.usage.prompt_tokens // 16 * 16)
        self.assertLess(cached, second.usage.prompt_tokens)

    def test_streaming_gives_the_same_text_and_usage_only_when_asked(self):
        whole = self.chat("Count to five.", max_tokens=32, temperature=0)
        chunks = list(self.chat("Count to five.", max_tokens=32, temperature=0, stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertTrue(all(c.usage is None for c in chunks))
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices
                          and c.choices[0].finish_reason],
                         [whole.choices[0].finish_reason])
        with_usage = list(self.chat("Count to five.", max_tokens=32, temperature=0, stream=True,
                                    stream_options={"include_usage": True}))
        self.assertEqual(with_usage[-1].choices, [])
        self.assertEqual(with_usage[-1].usage.completion_tokens, whole.usage.completion_tokens)

    # case A8
    def test_streamed_choices_carry_their_index_and_end_once(self):
        ask = {"max_tokens": 12, "temperature": 1.0, "seed": 11, "n": 3}
        whole = self.chat("Name a colour.", **ask)
        texts, ends = {}, []
        for chunk in self.chat("Name a colour.", stream=True, **ask):
            for choice in chunk.choices:
                self.assertNotIn(choice.index, [index for index, _ in ends])
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                if choice.finish_reason:
                    ends.append((choice.index, choice.finish_reason))
        self.assertEqual(texts, {c.index: c.message.content for c in whole.choices})
        self.assertEqual(dict(ends), {c.index: c.finish_reason for c in whole.choices})

    def test_seeded_answers_repeat_and_choices_differ(self):
        def texts():
            reply = self.chat("Name an animal.", max_tokens=16, temperature=1.0, seed=7, n=3)
            return [c.message.content for c in reply.choices]
        self.assertEqual(texts(), texts())
        self.assertGreater(len(set(texts())), 1)

    def test_logprobs_come_with_the_tokens(self):
        reply = self.chat("Hi", max_tokens=4, temperature=0, logprobs=True, top_logprobs=3)
        for entry in reply.choices[0].logprobs.content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertAlmostEqual(entry.top_logprobs[0].logprob, entry.logprob, places=4)
            self.assertEqual(bytes(entry.bytes).decode(errors="ignore"), entry.token)

    def test_stop_strings_are_cut_off(self):
        reply = self.chat("Count: 1, 2, 3,", max_tokens=64, temperature=0, stop=["5"])
        self.assertNotIn("5", reply.choices[0].message.content)
        self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_completions_take_text_lists_and_tokens(self):
        create = self.client.completions.create
        text = create(model=self.model, prompt="The sky is", max_tokens=4, temperature=0)
        tokens = self.server.post("/tokenize", {"prompt": "The sky is"})[1]["tokens"]
        same = create(model=self.model, prompt=tokens, max_tokens=4, temperature=0)
        self.assertEqual(text.choices[0].text, same.choices[0].text)
        both = create(model=self.model, prompt=["The sky is", "Grass is"], max_tokens=4,
                      temperature=0)
        self.assertEqual([c.index for c in both.choices], [0, 1])
        self.assertEqual(both.choices[0].text, text.choices[0].text)

    def test_echo_with_no_tokens_scores_the_prompt(self):
        reply = self.client.completions.create(
            model=self.model, prompt="The capital of France is Paris", max_tokens=0, echo=True,
            logprobs=1)
        logprobs = reply.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), "The capital of France is Paris")
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(p < 0 for p in logprobs.token_logprobs[1:]))
        self.assertEqual(reply.usage.prompt_tokens_details.cached_tokens, 0)

    def test_errors_have_openais_shape(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nope", messages=[])
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("x", temperature=5)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("word " * 9000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_a_closed_stream_gives_its_pages_back(self):
        stream = self.chat("Write a long story.", max_tokens=2000, stream=True)
        next(iter(stream))
        stream.close()
        self.server.wait_idle()

    def test_curl_streams_events(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5,
                           "stream": True})
        out = subprocess.run(["curl", "-sN", self.server.url + "/v1/chat/completions", "-H",
                              "Content-Type: application/json", "-d", body],
                             capture_output=True, text=True, check=True).stdout
        events = [e for e in out.split("\n\n") if e]
        self.assertTrue(all(e.startswith("data: ") for e in events))
        self.assertEqual(events[-1], "data: [DONE]")

    def test_the_cache_is_empty_after_a_reset(self):
        self.chat("Fill a page or two of the cache with this sentence, please.", max_tokens=20)
        self.server.wait_idle()
        self.assertEqual(self.server.post("/reset_prefix_cache", {})[0], 200)
        for pool in self.server.cache()["pools"]:
            self.assertEqual(pool["free"], pool["capacity"])


if __name__ == "__main__":
    unittest.main()
