"""A chat of 50 turns: each prefill computes only what is new."""

import unittest

from harness import Server


class MultiTurn(unittest.TestCase):
    def test_turn_50_computes_only_what_is_new(self):
        with Server() as server:
            messages, known = [], 0
            for number in range(1, 51):
                messages.append({"role": "user", "content": f"Tell me fact number {number}."})
                status, reply = server.post("/v1/chat/completions", {
                    "messages": messages, "max_tokens": 12, "temperature": 0})
                self.assertEqual(status, 200, reply)
                messages.append({"role": "assistant",
                                 "content": reply["choices"][0]["message"]["content"]})
                usage = reply["usage"]
                details = usage["prompt_tokens_details"]
                # All whole pages of the turn before, prompt and answer, come from the cache: its
                # last token was drawn and never computed.
                new = usage["prompt_tokens"] - known
                if number > 1:
                    self.assertLessEqual(details["computed_tokens"], new + 16, f"turn {number}")
                self.assertEqual(details["computed_tokens"] + details["cached_tokens"],
                                 usage["prompt_tokens"])
                known = usage["prompt_tokens"] + usage["completion_tokens"] - 1
            self.assertGreater(usage["prompt_tokens"], 1000)
            self.assertLess(details["computed_tokens"], 64)


if __name__ == "__main__":
    unittest.main()
