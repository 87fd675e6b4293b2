"""The program on a processor of 2008 without io_uring: qemu's Nehalem (case S15).

qemu's user mode runs what the program executes natively, so the epoll twin is started by hand to
have the arithmetic emulated too.
"""

import shutil
import subprocess
import unittest

from harness import BINARY, MODEL, Server, free_port

PROMPT = {"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0, "logprobs": 1}


class EmulatedServer(Server):
    def __init__(self, program):
        self.program = program
        super().__init__("--threads", "1", wait=False)

    def command(self, *arguments):
        return ["qemu-x86_64", "-cpu", "Nehalem", self.program, *arguments]


class OldMachine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("qemu-x86_64") is None:
            raise RuntimeError("no qemu-x86_64: run tools/setup --test")

    def test_without_io_uring_the_program_becomes_its_epoll_twin(self):
        port = free_port()
        process = subprocess.Popen(
            ["qemu-x86_64", "-cpu", "Nehalem", BINARY, "serve", "--port", str(port), "--model",
             str(MODEL), "--kv-device-size", "64M"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        try:
            line = ""
            while "network" not in line:
                line = process.stdout.readline()
                self.assertNotEqual(line, "", "the program ended")
            self.assertIn("epoll", line)
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()

    def test_an_emulated_nehalem_gives_the_baselines_answer(self):
        with Server("--threads", "1", env={"SPILLWAY_CPU": "baseline"}) as native:
            expected = native.post("/v1/completions", PROMPT)[1]["choices"][0]
        with EmulatedServer(BINARY + "-epoll") as emulated:
            emulated.wait_ready(240)
            got = emulated.post("/v1/completions", PROMPT)[1]["choices"][0]
        self.assertEqual(got["text"], expected["text"])
        self.assertEqual(got["logprobs"], expected["logprobs"])


if __name__ == "__main__":
    unittest.main()
