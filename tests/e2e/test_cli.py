"""The command line as a person meets it: subcommands, exit codes, the chat in a real terminal."""

import json
import os
import pathlib
import pty
import re
import resource
import select
import socket
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, MODEL, Server
from test_tiers import settle


def run(*arguments, text=None):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, input=text,
                          timeout=120)


class CommandLine(unittest.TestCase):
    def test_help_and_version(self):
        for arguments in (("--help",), ("serve", "--help"), ("chat", "--help"), ("plan", "--help"),
                          ("doctor", "--help"), ("version",)):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0, arguments)
            self.assertNotEqual(result.stdout, "", arguments)
        self.assertIn("--max-model-len", run("serve", "--help").stdout)
        for command in ("plan", "doctor"):
            self.assertIn(f"\n  {command} ", run("--help").stdout)

    def test_help_says_what_every_flag_does_in_lines_that_fit(self):
        for command in ("serve", "chat", "inspect", "tokenize", "template", "store ls",
                        "store rm"):
            text = run(*command.split(), "--help").stdout
            for noise in ("UINT", "{false}", " in [", ":{", ":FILE", ":DIR", "\n\n\n"):
                self.assertNotIn(noise, text, command)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)
            for name, rest in re.findall(r"^ {2,4}(-\S.*)\n(.*)", text, re.MULTILINE):
                described = len(re.split(r" {2,}", name)) > 1 or rest.startswith(" " * 30)
                self.assertTrue(described, f"{command}: {name}")
        text = run("serve", "--help").stdout
        self.assertEqual(text.count("SmolLM2"), 1)
        self.assertIn("ChatML", text)

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


    def test_flags_of_vllm_without_effect_are_taken_and_said_to_have_none(self):
        flags = ["--dtype", "auto", "--enforce-eager", "--no-enable-chunked-prefill",
                 "--prefix-caching-hash-algo", "sha256"]
        with Server(*flags, wait=False) as server:
            while "listening" not in server.output():
                self.assertIsNone(server.process.poll(), server.output())
                time.sleep(0.02)
            lines = server.output().splitlines()
            for flag in ("--dtype", "--enforce-eager",
                         "--prefix-caching-hash-algo", "--enable-chunked-prefill"):
                said = [line for line in lines if f"{flag} has no effect here: " in line]
                self.assertEqual(len(said), 1, (flag, lines))
            self.assertNotIn("--trust-remote-code", server.output())

    def test_a_server_that_cannot_start_says_why_and_exits_with_1(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for flags, part in ((("--model", "/nowhere.gguf", "--port", "0"), "/nowhere.gguf"),
                                (("--model", str(MODEL), "--port", port), port),
                                (("--model", str(MODEL), "--host", "nowhere"), "nowhere"),
                                (("--model", str(MODEL), "--ssl-certfile", "x"), "--ssl-keyfile")):
                result = run("serve", *flags)
                self.assertEqual(result.returncode, 1, flags)
                self.assertIn(part, result.stderr)

    def test_a_pool_too_small_for_the_longest_context_shortens_it(self):
        with Server("--kv-cache-memory-bytes", "24M", "--max-num-seqs", "2") as server:
            self.assertIn("shortened from 8,192", server.output())
            models = json.loads(server.get("/v1/models")[1])["data"]
            longest = models[0]["max_model_len"]
            self.assertLess(longest, 8192)
            self.assertGreater(longest, 256)
            status, reply = server.post("/v1/completions", {"prompt": [5] * (longest + 1)})
            self.assertEqual((status, reply["error"]["code"]), (400, "context_length_exceeded"))
            status, _ = server.post("/v1/completions", {"prompt": [5] * (longest - 2),
                                                        "max_tokens": 2})
            self.assertEqual(status, 200)

    def test_a_model_over_several_devices_serves_and_keeps_its_pages(self):
        """Three KV heads over two devices, in two stages; then the answer again, from NVMe."""
        question = {"messages": [{"role": "user", "content": "Tell me about tides. " * 30}],
                    "temperature": 0, "max_tokens": 12, "logprobs": True}
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2",
                     "--kv-nvme-dir", folder, "--kv-nvme-size", "256M", "--test-load-all")
            answers = []
            for _ in range(2):
                with Server(*flags) as server:
                    self.assertRegex(server.output(), r"device +4 of cpu .*: 2 stages of 2")
                    status, reply = server.post("/v1/chat/completions", question)
                    self.assertEqual(status, 200, reply)
                    answers.append(reply)
                    settle(server)
            self.assertEqual(answers[0]["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertGreater(answers[1]["usage"]["spillway"]["tokens"]["nvme"], 100)
            self.assertEqual(answers[0]["choices"], answers[1]["choices"])
            self.assertEqual(answers[0]["system_fingerprint"], answers[1]["system_fingerprint"])
        result = run("serve", "--model", str(MODEL), "--port", "0", "--tp", "16")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--tensor-parallel-size 16", result.stderr)

    def test_what_the_interfaces_promise_is_in_the_help(self):
        text = run("serve", "--help").stdout
        for flag in ("--model", "--served-model-name", "--host", "--port", "--api-key",
                     "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens",
                     "--device", "--gpu-memory-utilization", "--block-size", "--kv-cache-dtype",
                     "--kv-device-size", "--kv-cache-memory-bytes", "--threads",
                     "--enable-prefix-caching", "--no-enable-prefix-caching", "--seed",
                     "--tensor-parallel-size", "--pipeline-parallel-size",
                     "--chat-template", "--shutdown-timeout", "--ssl-certfile", "--ssl-keyfile"):
            self.assertIn(flag, text)


class Device(unittest.TestCase):
    """Where no GPU is to be seen; test_gpu.py has one."""

    BLIND = {"CUDA_VISIBLE_DEVICES": "-1"}
    WHY = r"(built without CUDA|no GPU to use: )"

    def test_a_gpu_that_is_not_there_is_refused_in_words(self):
        result = subprocess.run(
            [BINARY, "serve", "--model", str(MODEL), "--port", "0", "--device", "cuda"],
            env={**os.environ, **self.BLIND}, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "--device cuda: .*" + self.WHY)

    def test_auto_runs_on_the_processor_and_says_why(self):
        with Server("--device", "auto", env=self.BLIND) as server:
            self.assertRegex(server.output(), 'device wanted=auto used=cpu why="[^"]*' + self.WHY)
            self.assertRegex(server.output(), "device +cpu ")

    def test_what_is_no_device_or_share_is_refused(self):
        for flags in (("--device", "gpu"), ("--device", "cuda:x"), ("--device", "cuda:-1"),
                      ("--gpu-memory-utilization", "0"), ("--gpu-memory-utilization", "1.5"),
                      ("--gpu-memory-utilization", "nan")):
            result = run("serve", *flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(flags[0], result.stderr)

    def test_the_version_tells_whether_there_is_cuda(self):
        self.assertRegex(run("version").stdout, r"^spillway [\d.]+, (no )?CUDA$")


class Plan(unittest.TestCase):
    """The memory ledger; a 7B has 32 layers and 32 heads of 128."""

    SHAPE = ["--layers", "32", "--heads", "32", "--head-dim", "128"]

    def plan(self, *arguments):
        result = run("plan", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {line[:14].strip(): line[14:] for line in result.stdout.splitlines()
                if not line.startswith(" ")}

    def test_known_figures_of_a_7b(self):
        rows = self.plan(*self.SHAPE, "--users", "16", "--context", "4096")
        self.assertEqual(rows["a token"], "512 KiB")
        self.assertEqual(rows["a user"], "2.0 GiB for 4,096 tokens")
        self.assertEqual(rows["16 users"], "32.0 GiB")
        grouped = self.plan(*self.SHAPE, "--kv-heads", "8", "--users", "16")
        self.assertEqual((grouped["a token"], grouped["16 users"]), ("128 KiB", "8.0 GiB"))
        single = self.plan(*self.SHAPE, "--kv-heads", "1", "--users", "16")
        self.assertEqual((single["a token"], single["16 users"]), ("16.0 KiB", "1.0 GiB"))

    def test_says_who_spills_where(self):
        rows = self.plan(*self.SHAPE, "--users", "16", "--kv-device-size", "8G",
                         "--kv-host-size", "4G", "--kv-nvme-size", "11G")
        self.assertEqual(rows["device"], "8.0 GiB: room for 4 users; holds 4 of them here (8.0 GiB)")
        self.assertIn("holds 2 of them here", rows["host"])
        self.assertIn("holds 5 of them here", rows["nvme"])
        self.assertIn("2 users spill to host memory; 5 users spill to NVMe; no room for 5 users",
                      rows["outcome"])
        rows = self.plan(*self.SHAPE, "--users", "2", "--kv-device-size", "4G")
        self.assertIn("all fit", rows["outcome"])
        rows = self.plan(*self.SHAPE, "--kv-device-size", "1G")
        self.assertIn("--kv-device-size at least 2.0 GiB", rows["outcome"])

    def test_estimates_what_a_codec_of_host_memory_saves(self):
        sizes = ("--users", "99", "--kv-device-size", "8G", "--kv-host-size", "100G")
        self.assertIn("room for 50 users", self.plan(*self.SHAPE, *sizes)["host"])
        said = run("plan", *self.SHAPE, *sizes, "--kv-host-codec", "planes").stdout
        self.assertIn("room for 56 users", said)
        self.assertIn("(an estimate: 1.8 GiB a user", said)
        refused = run("plan", *self.SHAPE, "--kv-host-codec", "planes", "--kv-cache-dtype", "f32")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--kv-cache-dtype f16 or bf16", refused.stderr)

    def test_a_file_brings_its_shape_and_weights(self):
        rows = self.plan("--model", str(MODEL), "--users", "10", "--kv-device-size", "1G")
        self.assertEqual(rows["a token"], "22.5 KiB")
        self.assertEqual(rows["a user"], "180 MiB for 8,192 tokens")
        self.assertRegex(rows["weights"], r"^9\d\.\d MiB$")
        self.assertIn("room for 5 users", rows["device"])

    def test_windows_are_counted_as_what_they_keep(self):
        gemma = str(MODEL.parent / "gemma-3-270m-q4_k_m.gguf")
        rows = self.plan("--model", gemma, "--context", "32768")
        self.assertEqual(rows["a token"], "18.0 KiB, and 3.0 KiB once the window is full")
        self.assertEqual(rows["a user"], "104 MiB for 32,768 tokens")

    def test_what_makes_no_plan_is_refused_in_words(self):
        for arguments, part in ((("--layers", "32"), "--head-dim"),
                                (("--model", str(MODEL), *self.SHAPE), "not both"),
                                ((*self.SHAPE, "--kv-heads", "5"), "multiple"),
                                ((*self.SHAPE, "--kv-nvme-size", "1M"), "no room for a page"),
                                (("--model", "/nowhere.gguf"), "/nowhere.gguf")):
            result = run("plan", *arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""), arguments)
            self.assertIn(part, result.stderr)
        self.assertEqual(run("plan", *self.SHAPE, "--users", "0").returncode, 2)


class Doctor(unittest.TestCase):
    """On a real disk, beside the program; case S15 and the cage are in doctor_command_test.cc."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=pathlib.Path(BINARY).parent)
        self.addCleanup(self.folder.cleanup)

    def doctor(self, *arguments, **how):
        return subprocess.run([BINARY, "doctor", "--kv-nvme-dir", self.folder.name, *arguments],
                              capture_output=True, text=True, timeout=120, **how)

    def test_weighs_loading_against_computing_with_a_model(self):
        begin = time.monotonic()
        result = self.doctor("--model", str(MODEL))
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(result.returncode, 0, result.stderr)
        for pattern in (r"pages of 360 KiB: read \d", r"prefill at 0 +\d+ tokens/s",
                        r"prefill at 512 +\d+ tokens/s", r"decode at 512 +[\d.]+ tokens/s",
                        r"from host memory +(loading|computing) is quicker",
                        r"from NVMe +(loading|computing) is quicker",
                        r"--kv-device-size +\d+[MG]", r"--kv-host-size +0, the default",
                        r"--kv-nvme-size +", r"  GPU +\S", r"Refused here\n  "):
            self.assertRegex(result.stdout, pattern)
        self.assertEqual(os.listdir(self.folder.name), [])

    @unittest.skipUnless(os.geteuid() == 0, "only root becomes another user")
    def test_works_as_a_plain_user_with_little_lockable_memory(self):
        os.chown(self.folder.name, 65534, 65534)
        how = {"user": 65534, "group": 65534, "extra_groups": [],
               "env": {**os.environ, "SPILLWAY_CACHE": "/nowhere"},
               "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20,) * 2)}
        try:
            result = self.doctor(**how)
        except PermissionError:
            self.skipTest("another user cannot run the program here")
        self.assertEqual(result.returncode, 0, result.stderr)
        if "- io_uring: " not in result.stdout:
            self.assertRegex(result.stdout, r"- registered memory: .*8192 KiB")
        self.assertEqual(os.listdir(self.folder.name), [])
        os.chown(self.folder.name, 0, 0)
        os.chmod(self.folder.name, 0o755)
        result = self.doctor(**how)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(f"cannot measure in {self.folder.name}", result.stderr)
        self.assertIn("Permission denied", result.stderr)

    def test_a_wrong_model_or_flag_is_named(self):
        result = self.doctor("--model", "/nowhere.gguf")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("/nowhere.gguf", result.stderr)
        self.assertEqual(self.doctor("--threads", "0").returncode, 2)


class Tokenize(unittest.TestCase):
    """The ids of SmolLM2's vocabulary; <|im_start|> is 1."""

    def tokens(self, *arguments, text=None):
        result = run("tokenize", "--model", str(MODEL), *arguments, text=text)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_text_becomes_one_token_a_line(self):
        self.assertEqual(self.tokens("hi there"), '6004\t"hi"\n665\t" there"\n')

    def test_ids_are_a_json_list(self):
        self.assertEqual(json.loads(self.tokens("--ids", "hi there")), [6004, 665])

    def test_without_a_text_standard_input_is_read_whole(self):
        self.assertEqual(json.loads(self.tokens("--ids", text="hi there\n")), [6004, 665, 198])
        self.assertEqual(self.tokens("--ids", text=""), "[]\n")
        long = "the river " * 20_000
        self.assertGreater(len(json.loads(self.tokens("--ids", text=long))), 20_000)

    def test_control_tokens_are_text_unless_asked_for(self):
        self.assertEqual(json.loads(self.tokens("--ids", "--parse-special", "<|im_start|>")), [1])
        plain = json.loads(self.tokens("--ids", "<|im_start|>"))
        self.assertGreater(len(plain), 1)
        self.assertNotIn(1, plain)

    def test_text_of_any_bytes_is_taken(self):
        result = subprocess.run([BINARY, "tokenize", "--model", str(MODEL), "--ids"],
                                input=b"caf\xc3\xa9 \xff\xfe", capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(len(json.loads(result.stdout)), 2)

    def test_a_wrong_model_is_named(self):
        result = run("tokenize", "--model", "/nowhere/model.gguf", "x")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("/nowhere/model.gguf", result.stderr)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"no model at all")
            file.flush()
            result = run("tokenize", "--model", file.name, "x")
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(file.name, result.stderr)


class Chat(unittest.TestCase):
    """With the model in the chat's own process."""

    def flags(self):
        return ["--model", str(MODEL), "--kv-device-size", "128M"]

    def setUp(self):
        flags = self.flags()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(BINARY, [BINARY, "chat", "--temperature", "0", "--max-tokens", "600", *flags])
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


class ChatWithAServer(Chat):
    """The same conversation over HTTP."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "a-key", wait=False)
        cls.server.wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.assertEqual(cls(), cls.server.stop(), 0)

    def flags(self):
        return ["--url", self.server.url, "--api-key", "a-key"]


class ChatWithAServerRefused(unittest.TestCase):
    def test_what_is_wrong_is_said_and_the_chat_goes_on(self):
        with Server("--api-key", "a-key", wait=False) as server:
            server.wait_ready()
            url = server.url + "/v1/"
            out = run("chat", "--url", url, text="Hi\nHi again\n")
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertEqual(out.stdout.count("API key"), 2, out.stdout)
            out = run("chat", "--url", url, "--api-key", "a-key", "--max-tokens", "3",
                      text="Hi\n" + "word " * 10_000 + "\nHi\n")
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertEqual(out.stdout.count(" from cache"), 2, out.stdout)
            self.assertIn("8192", out.stdout)  # too long, with the model's limit
        out = run("chat", "--url", server.url, text="Hi\n")
        self.assertIn("cannot reach a server at 127.0.0.1", out.stdout)
        self.assertEqual(run("chat", "--url", "https://a.example").returncode, 1)


if __name__ == "__main__":
    unittest.main()
