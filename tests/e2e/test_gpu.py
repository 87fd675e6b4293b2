"""`spillway serve --device cuda`, whole, on a simulated GPU (on_emulator.cc): answers are those of
the processor, token for token, whichever tier a prefix came from."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import harness
from test_tiers import settle
from tiny_gguf import write_with_tokenizer

PROGRAM = os.environ["SPILLWAY_ON_EMULATOR"]
MIB = 1 << 20
SMALL = ("--max-model-len", "96", "--max-num-seqs", "2", "--max-num-batched-tokens", "16")


class GpuServer(harness.Server):
    def __init__(self, model, *arguments, gpu_bytes=128 * MIB, **how):
        self.model = str(model)
        super().__init__(*SMALL, *arguments,
                         env={"SPILLWAY_TEST_GPU_BYTES": str(gpu_bytes)}, **how)

    def command(self, *arguments):
        model, size = arguments.index("--model"), arguments.index("--kv-device-size")
        assert size == model + 2
        return [PROGRAM, *arguments[:model], "--model", self.model, *arguments[size + 2:]]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=60):
        code = super().stop(seconds)
        return 0 if code == -signal.SIGKILL else code

    def answer(self, prompt):
        """The token ids of a greedy answer, and its receipt."""
        status, reply = self.post("/v1/completions", {
            "prompt": prompt, "temperature": 0, "max_tokens": 4, "ignore_eos": True,
            "logprobs": 1})
        assert status == 200, reply
        logprobs = reply["choices"][0]["logprobs"]
        return (logprobs["tokens"], logprobs["token_logprobs"]), reply["usage"]["spillway"]["tokens"]


def prompt_of(conversation, tokens):
    return [(conversation * 31 + i * i * 7 + i) % 96 for i in range(tokens)]


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(dir=pathlib.Path(PROGRAM).parent)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = cls.path / "qwen2_q8_0.gguf"
        write_with_tokenizer("qwen2_q8_0", cls.model)
        with GpuServer(cls.model, "--device", "cpu", "--kv-device-size", "4M") as server:
            cls.expected = [server.answer(prompt_of(c, 50))[0] for c in range(5)]

    def test_answers_are_the_processors_and_come_back_from_host_memory(self):
        # 4 KiB a page: ten of them do not hold five conversations.
        with GpuServer(self.model, "--device", "cuda", "--kv-device-size", "40K",
                       "--kv-host-size", "1M", "--test-load-all") as server:
            self.assertRegex(server.output(), r"device +cuda simulated, sm_90")
            for c in range(5):
                answer, tokens = server.answer(prompt_of(c, 50))
                self.assertEqual(answer, self.expected[c])
                self.assertEqual(tokens["computed"], 50)
                server.wait_idle()
            from_host = 0
            for c in range(5):
                answer, tokens = server.answer(prompt_of(c, 50))
                self.assertEqual(answer, self.expected[c])
                from_host += tokens["host"]
                server.wait_idle()
            self.assertGreater(from_host, 0)
            self.assertGreater(server.metric("vllm:prompt_tokens_total"), 0)

    def test_a_killed_server_leaves_prefixes_on_nvme(self):
        flags = ("--device", "cuda", "--kv-nvme-dir", str(self.path / "kv"), "--kv-nvme-size",
                 "64M", "--kv-host-size", "0", "--test-load-all")
        with GpuServer(self.model, *flags) as server:
            self.assertEqual(server.answer(prompt_of(0, 50))[0], self.expected[0])
            self.assertGreater(settle(server)["pages"], 2)
            server.kill()
        with GpuServer(self.model, *flags) as server:
            answer, tokens = server.answer(prompt_of(0, 50))
            self.assertEqual(answer, self.expected[0])
            self.assertEqual((tokens["nvme"], tokens["computed"]), (48, 2))

    def test_kv_pages_get_what_the_gpu_has_left(self):
        with GpuServer(self.model, "--device", "auto", "--gpu-memory-utilization", "0.5",
                       "--kv-host-size", "0") as server:
            self.assertRegex(server.output(), r'device wanted=auto used=cuda:0 why="simulated')
            pools = server.cache()["pools"]
            bytes_ = sum(pool["capacity"] * pool["page_bytes"] for pool in pools)
            self.assertLess(bytes_, 64 * MIB)
            self.assertGreater(bytes_, 32 * MIB)

    def refused(self, *flags, gpu_bytes=128 * MIB):
        result = subprocess.run(
            [PROGRAM, "serve", "--port", "0", "--model", str(self.model), *SMALL, *flags],
            env={**os.environ, "SPILLWAY_TEST_GPU_BYTES": str(gpu_bytes)}, capture_output=True,
            text=True, timeout=60)
        self.assertEqual(result.returncode, 1, result.stderr)
        return result.stderr

    def test_a_gpu_too_small_says_what_to_do(self):
        said = self.refused("--device", "cuda", gpu_bytes=100_000)
        self.assertIn("the weights take", said)
        self.assertIn("--device cpu", said)
        said = self.refused("--device", "cuda", "--gpu-memory-utilization", "0.05",
                            gpu_bytes=64 * MIB)
        self.assertIn("no GPU memory is left for KV pages", said)
        self.assertIn("raise --gpu-memory-utilization", said)
        said = self.refused("--device", "cuda", "--kv-device-size", "1G")
        self.assertIn("the KV pool: cannot allocate", said)
        self.assertIn("--kv-device-size", said)

    def test_what_no_gpu_does_is_refused(self):
        self.assertIn("cuda:0", self.refused("--device", "cuda:3"))
        self.assertIn("divided over GPUs", self.refused("--device", "cuda", "--tp", "2"))

    def fingerprint_of(self, server):
        status, reply = server.post("/v1/completions", {"prompt": [1], "max_tokens": 1})
        self.assertEqual(status, 200, reply)
        return reply["system_fingerprint"]

    def test_products_by_a_library_are_a_gpus_and_keep_their_pages_apart(self):
        folder = self.path / "by_library"
        flags = ("--kv-device-size", "40K", "--kv-host-size", "0", "--kv-nvme-dir", str(folder),
                 "--kv-nvme-size", "64M")
        with GpuServer(self.model, "--device", "cuda", *flags) as server:
            server.answer(prompt_of(0, 50))
            self.assertGreater(settle(server)["pages"], 2)
            ours = self.fingerprint_of(server)
        with GpuServer(self.model, "--device", "cuda", "--no-batch-invariant", *flags) as server:
            # Fewer rows than the library is given: the answer is that of our kernels.
            answer, tokens = server.answer(prompt_of(0, 50))
            self.assertEqual(answer, self.expected[0])
            self.assertEqual((tokens["nvme"], tokens["computed"]), (0, 50))
            theirs = self.fingerprint_of(server)
        self.assertNotEqual(ours, theirs)
        said = self.refused("--device", "cpu", "--no-batch-invariant")
        self.assertIn("--no-batch-invariant: that is for a GPU", said)

    def test_plan_reckons_with_the_gpu(self):
        result = subprocess.run([PROGRAM, "plan", "--model", str(self.model)], text=True,
                                env={**os.environ, "SPILLWAY_TEST_GPU_BYTES": str(8 << 30)},
                                capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("about what serve finds left on GPU 0", result.stdout)
        self.assertRegex(result.stdout, r"device +6\.\d GiB")


if __name__ == "__main__":
    unittest.main()
