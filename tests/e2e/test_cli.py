"""The command line as a person meets it: subcommands, exit codes, the chat in a real terminal."""

import json
import os
import pathlib
import pty
import re
import select
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, MODEL


def run(*arguments, text=None):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, input=text,
                          timeout=120)


class CommandLine(unittest.TestCase):
    def test_help_and_version(self):
        for arguments in (("--help",), ("serve", "--help"), ("chat", "--help"), ("version",)):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0, arguments)
            self.assertNotEqual(result.stdout, "", arguments)
        self.assertIn("--max-model-len", run("serve", "--help").stdout)

    def test_wrong_flags_are_refused_with_a_line_that_names_them(self):
        for arguments in (("serve", "--port", "x"), ("serve", "--nope"), ("nope",),
                          ("serve", "--api-key", "")):
            result = run(*arguments)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertNotEqual(result.stderr, "", arguments)

    def test_a_missing_model_says_so(self):
        result = run("inspect", "/nowhere/model.gguf")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/nowhere/model.gguf", result.stderr)

    def test_inspect_tells_what_a_model_needs(self):
        result = run("inspect", str(MODEL))
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("llama", "Q4_1", "8192"):
            self.assertIn(part, result.stdout)

    def test_template_prints_the_rendering_or_exits_with_1(self):
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder) / "t.jinja"
            context = pathlib.Path(folder) / "c.json"
            template.write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}")
            context.write_text(json.dumps({"messages": [{"role": "user", "content": "hé"}]}))
            good = run("template", str(template), str(context))
            self.assertEqual((good.returncode, good.stdout), (0, "[user: hé]"))
            template.write_text("{{ raise_exception('no system role') }}")
            refused = run("template", str(template), str(context))
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn("no system role", refused.stderr)
            self.assertEqual(run("template", str(template), folder + "/none.json").returncode, 1)


class Chat(unittest.TestCase):
    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(BINARY, [BINARY, "chat", "--model", str(MODEL), "--kv-device-size", "128M",
                              "--temperature", "0", "--max-tokens", "600"])
        self.seen = ""

    def tearDown(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

    def read_until(self, pattern, seconds=60):
        """What came since the last call, up to and with the pattern."""
        end = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.seen)
            if match:
                text, self.seen = self.seen[:match.end()], self.seen[match.end():]
                return text
            self.assertLess(time.monotonic(), end, f"waited in vain for {pattern}: {self.seen[-500:]}")
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def test_a_second_turn_shows_cached_tokens_and_ctrl_c_stops_only_the_answer(self):
        self.read_until("> ")
        self.type("Name one river.\n")
        self.read_until(r"prompt tokens, 0 from cache")
        self.read_until("> ")
        self.type("Tell me a very long story about it, with many chapters.\n")
        self.read_until("chapters.")
        time.sleep(0.6)
        self.type("\x03")
        self.read_until("> ")
        self.type("Name another river.\n")
        line = self.read_until(r"\[\d+ prompt tokens, \d+ from cache")
        self.assertGreater(int(re.search(r"(\d+) from cache", line).group(1)), 0)
        self.read_until("> ")
        self.type("\x04")
        end = time.monotonic() + 20
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            self.assertLess(time.monotonic(), end, "the chat did not end at the end of input")
            time.sleep(0.05)
        self.tearDown = lambda: os.close(self.terminal)


if __name__ == "__main__":
    unittest.main()
