"""KV pages that left the device come back from NVMe: the same answers, whatever the disk does.

A mix as of a RAG back end (questions over pairs of documents) and a chat, with a device pool of
about three requests. What it ought to answer is computed once, without any cache. SPILLWAY_KILLS:
how often the server is killed (10). SPILLWAY_MIX=full: 20 documents of about 2,500 tokens, 30
questions over random pairs and a chat of 50 turns, in place of a mix that is quick.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import unittest

import store_file
from harness import BINARY, Server

KILLS = int(os.environ.get("SPILLWAY_KILLS", "10"))
FULL = os.environ.get("SPILLWAY_MIX") == "full"
PAGE = 368640  # bytes
DEVICE_PAGES = 1000 if FULL else 45  # three questions, nearly
DEVICE = str(DEVICE_PAGES * PAGE)
STORE = "3G" if FULL else "128M"
FROM_NVME = 30_000 if FULL else 1500  # tokens that the mix takes from there, at least
WORDS = ("river stone lantern copper harbour signal orchard winter engine paper market violin "
         "bridge candle forest archive needle planet garden ladder thunder basket mirror castle "
         "window saddle pepper anchor meadow tunnel").split()


def document(seed, words):
    chosen = random.Random(seed)
    return f"Document {seed}: " + " ".join(chosen.choice(WORDS) for _ in range(words)) + "."


if FULL:
    DOCUMENTS = [document(seed, 1750 + 40 * seed) for seed in range(20)]
    PAIRS = [tuple(random.Random(seed).sample(range(20), 2)) for seed in range(30)]
    TURNS = 50
else:
    DOCUMENTS = [document(seed, 120) for seed in range(8)]
    PAIRS = [(0, 1), (2, 3), (0, 4), (5, 1), (6, 7), (2, 0), (4, 5), (3, 6), (7, 1)]
    TURNS = 4


def question(index):
    one, two = PAIRS[index]
    body = {"prompt": f"{DOCUMENTS[one]}\n{DOCUMENTS[two]}\nQuestion {index}: which words are in "
            "both documents?\nAnswer:", "max_tokens": 6, "logprobs": 3, "temperature": 0}
    if index % 2:
        body.update(temperature=0.8, seed=40 + index, top_p=0.95)
    return "/v1/completions", body


def turn(messages):
    return "/v1/chat/completions", {"messages": list(messages), "max_tokens": 8, "temperature": 0,
                                    "logprobs": True, "top_logprobs": 2}


def answer_of(reply):
    """All that is the model's: text, tokens and their logprobs, to the last bit."""
    return json.dumps(reply["choices"], sort_keys=True)


class Mix:
    """The requests of the mix with the answers of a server without a cache."""

    def __init__(self):
        with Server("--no-enable-prefix-caching") as server:
            self.steps = [(question(i), None) for i in range(len(PAIRS))]
            self.steps = [(step, self.ask(server, step)) for step, _ in self.steps]
            messages = [{"role": "system", "content": document(77, 100)}]
            for number in range(TURNS):
                text = f"Turn {number}: {document(number, 20)}"
                messages.append({"role": "user", "content": text})
                step = turn(messages)
                reply = self.ask(server, step)
                self.steps.append((step, reply))
                messages.append(reply["choices"][0]["message"])
        self.steps = [(step, answer_of(reply)) for step, reply in self.steps]

    @staticmethod
    def ask(server, step):
        status, reply = server.post(*step)
        if status != 200:
            raise AssertionError(f"{status}: {reply}")
        return reply

    def play(self, server, count=None, order=None):
        """Asks all, or the first `count`, or those in `order`; every answer is the one without a
        cache. Returns the receipts' sums."""
        sums = {"device": 0, "host": 0, "nvme": 0, "computed": 0}
        for index in order or range(count or len(self.steps)):
            step, expected = self.steps[index]
            reply = self.ask(server, step)
            if answer_of(reply) != expected:
                raise AssertionError(f"another answer: {answer_of(reply)}\nnot: {expected}")
            usage = reply["usage"]
            receipt = usage["spillway"]
            tokens = receipt["tokens"]
            cached = tokens["device"] + tokens["host"] + tokens["nvme"]
            if (cached + tokens["computed"] != usage["prompt_tokens"]
                    or cached != usage["prompt_tokens_details"]["cached_tokens"]
                    or not cached <= receipt["matched"] < usage["prompt_tokens"]):
                raise AssertionError(f"the receipt does not add up: {usage}")
            for tier, count in tokens.items():
                sums[tier] += count
        return sums


def settle(server, seconds=20):
    """Waits until all that is to be written is written; the NVMe tier's state."""
    end, before = time.monotonic() + seconds, None
    while True:
        state = server.wait_idle()["tiers"]
        if state["paths_waiting"] == 0 and state["loads"] == 0 and state == before:
            return state["nvme"]
        if time.monotonic() > end:
            raise AssertionError(f"it does not settle: {state}")
        before = state
        time.sleep(0.1)


class TierServer(Server):
    def __init__(self, directory, *arguments, size=STORE, device=DEVICE, prefix=(), **more):
        self.prefix = list(prefix)
        super().__init__("--kv-nvme-dir", str(directory), "--kv-nvme-size", size, *arguments,
                         device=device, **more)

    def command(self, *arguments):
        return [*self.prefix, BINARY, *arguments]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def nvme_line(self):
        return next(line for line in self.output().splitlines() if line.startswith("  nvme "))


class Streams:
    """Streams of prompts that nobody sent before; they end however the server ends."""

    def __init__(self, server, seed, count=2):
        self.deltas = threading.Semaphore(0)
        self.threads = [threading.Thread(target=self.read, args=(server, seed * 100 + i))
                        for i in range(count)]
        for thread in self.threads:
            thread.start()
        if not self.deltas.acquire(timeout=60):
            raise AssertionError("no stream began")

    def read(self, server, seed):
        connection = server.connect(60)
        with contextlib.suppress(OSError, http.client.HTTPException), \
                contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps({
                "prompt": document(1000 + seed, 100), "max_tokens": 200, "stream": True,
                "ignore_eos": True}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            while reply.read(64):
                self.deltas.release()

    def join(self):
        for thread in self.threads:
            thread.join(60)


def verify(directory):
    """`spillway store verify`: its exit code and what it says."""
    done = subprocess.run([BINARY, "store", "verify", "--kv-nvme-dir", str(directory)],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def refused(directory, *arguments, size=STORE):
    """What a server says that must not start with this store; its exit code is 1."""
    server = TierServer(directory, *arguments, size=size, wait=False)
    code = server.process.wait(60)
    said = server.output()
    server.log.close()
    if code != 1:
        raise AssertionError(f"it ended with {code}:\n{said}")
    return said


class Tiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="spillway-tiers-")
        cls.root = pathlib.Path(cls.folder.name)
        cls.mix = Mix()
        # A store that has met the whole mix, killed in mid-stream: each test begins with a copy.
        cls.filled = cls.root / "filled"
        server = TierServer(cls.filled)
        try:
            cls.first = cls.mix.play(server)
            cls.full = settle(server)
            cls.second = cls.mix.play(server)
            cls.warm = settle(server)
            cls.modes = {path.name: stat.S_IMODE(path.stat().st_mode)
                         for path in cls.filled.iterdir()}
            streams = Streams(server, 1)
        finally:
            server.kill()
        streams.join()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def copy(self, name):
        directory = self.root / name
        shutil.copytree(self.filled, directory)
        self.addCleanup(shutil.rmtree, directory)
        return directory

    def test_answers_with_a_small_device_are_those_without_a_cache(self):
        # play() compared them; here: that they really came from where they were meant to.
        self.assertGreater(self.full["writes"], 3 * DEVICE_PAGES, "the mix must not fit the device")
        self.assertGreater(self.second["nvme"], FROM_NVME, (self.first, self.second))
        self.assertGreater(self.second["nvme"], self.second["computed"])
        self.assertEqual(self.warm["hits"] * 16, self.first["nvme"] + self.second["nvme"])
        self.assertEqual((self.warm["errors"], self.warm["corrupt"]), (0, 0))
        self.assertEqual(self.modes, {"pages.kv": 0o600})  # case I4

    def test_answers_from_encoded_host_memory_are_those_without_a_cache(self):
        for more in ((), ("--kv-nvme-dir", str(self.root / "as it lies"), "--kv-nvme-size", STORE,
                          "--kv-nvme-codec", "planes")):
            with Server("--kv-host-size", "3G" if FULL else "128M", "--kv-host-codec", "planes",
                        *more, device=DEVICE) as server:
                self.mix.play(server)
                settle(server)
                sums = self.mix.play(server)
                settle(server)
                self.assertGreater(sums["host"], FROM_NVME / 3, sums)
                host = server.cache()["tiers"]["host"]
                self.assertEqual((host["errors"], host["corrupt"]), (0, 0))
                self.assertLess(host["used_bytes"], 0.9 * host["pages"] * PAGE)
                self.assertGreater(server.metric("spillway:codec_decoded_pages_total", tier="host"),
                                   0)

    def test_pages_survive_kill_9(self):
        with TierServer(self.copy("killed")) as server:
            found = server.cache()["tiers"]["nvme"]
            self.assertGreaterEqual(found["pages"], self.warm["pages"])
            self.assertEqual(found["used_bytes"], found["pages"] * PAGE)
            self.assertIn(f"{found['pages']} found", server.nvme_line())
            sums = self.mix.play(server)
            self.assertGreater(sums["nvme"], FROM_NVME, sums)
            self.assertEqual(settle(server)["corrupt"], 0)

    def test_clients_at_once_that_do_not_fit_together(self):
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", flush=True)
        chance, ends = random.Random(seed), []
        with TierServer(self.copy("together")) as server:
            def client(order):
                try:
                    ends.append(self.mix.play(server, order=order)["nvme"])
                except Exception as error:  # noqa: BLE001
                    ends.append(repr(error))
            orders = [chance.sample(range(len(self.mix.steps)), 5) for _ in range(5)]
            threads = [threading.Thread(target=client, args=(order,)) for order in orders]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            self.assertEqual([end for end in ends if isinstance(end, str)], [])
            self.assertEqual(len(ends), 5)
            self.assertGreater(sum(ends), 500)
            state = settle(server)
            self.assertEqual((state["errors"], state["corrupt"]), (0, 0))

    def test_the_store_verifies_after_each_of_many_kills(self):
        directory = self.copy("kills")
        seed = random.randrange(1 << 30)
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        for number in range(KILLS):
            server = TierServer(directory)
            try:
                self.assertGreater(server.cache()["tiers"]["nvme"]["pages"], 100)
                index = chance.randrange(len(self.mix.steps))
                step, expected = self.mix.steps[index]
                self.assertEqual(answer_of(Mix.ask(server, step)), expected, f"kill {number}")
                streams = Streams(server, seed + number)
                time.sleep(chance.random() * 0.5)
            finally:
                server.kill()
            streams.join()
            code, said = verify(directory)
            self.assertEqual(code, 0, said)
            self.assertIn("0 did not", said)

    def test_corrupt_pages_are_computed_again(self):  # case S1
        directory = self.copy("corrupt")
        path = directory / "pages.kv"
        pages = store_file.pages(path)
        self.assertGreaterEqual(len(pages), self.warm["pages"])
        chance = random.Random(5)
        for page in pages[::10]:
            store_file.flip(path, page, chance.randrange(page.bytes))
        with TierServer(directory, "--kv-nvme-scrub", "0") as server:
            sums = self.mix.play(server)
            corrupt = settle(server)["corrupt"]
            self.assertGreater(corrupt, 0)
            self.assertLessEqual(corrupt, len(pages[::10]))
            self.assertEqual(server.metric("spillway:tier_corrupt_total", tier="nvme"), corrupt)
            self.assertGreater(sums["nvme"], 1000, sums)
            self.assertFalse(server.cache()["tiers"]["nvme"]["set_aside"])
        # What was found out is gone; what nobody read is found out now.
        code, said = verify(directory)
        self.assertEqual(code, 1 if corrupt < len(pages[::10]) else 0, said)
        self.assertIn(f"; {len(pages[::10]) - corrupt} did not", said)

    def test_what_has_rotted_is_found_before_anybody_asks(self):  # case S1
        directory = self.copy("rotten")
        path = directory / "pages.kv"
        pages = store_file.pages(path)
        for page in pages[::10]:
            store_file.flip(path, page, page.bytes // 2)
        rotten = len(pages[::10])
        with TierServer(directory, "--kv-nvme-scrub", "0.001") as server:
            end = time.monotonic() + 60
            while (scrubbed := server.cache()["tiers"]["scrubbed_pages"]) < len(pages):
                self.assertLess(time.monotonic(), end, f"{scrubbed} of {len(pages)}")
                time.sleep(0.05)
            found = server.cache()["tiers"]
            self.assertEqual(scrubbed, len(pages))
            self.assertEqual(found["scrub_dropped_pages"], rotten)
            self.assertEqual(found["nvme"]["corrupt"], rotten)
            self.assertEqual(found["nvme"]["pages"], len(pages) - rotten)
            for name, count in (("scrubbed", scrubbed), ("scrub_dropped", rotten)):
                self.assertEqual(server.metric(f"spillway:tier_{name}_pages_total"), count)
            self.assertEqual(server.output().count("nvme_scrub dropped_slot="), 1)
            sums = self.mix.play(server)
            self.assertGreater(sums["nvme"], 1000, sums)
            state = settle(server)
            self.assertEqual((state["errors"], state["corrupt"]), (rotten, rotten))
        self.assertEqual(verify(directory)[0], 0)

    def test_an_idle_server_scrubs_and_uses_no_processor(self):
        with TierServer(self.copy("idle")) as server:
            def used():
                with open(f"/proc/{server.process.pid}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                return int(fields[11]) + int(fields[12])  # ticks of user and system time
            time.sleep(0.5)
            before = used()
            time.sleep(5)
            self.assertLessEqual(used() - before, 3)  # of 500
            self.assertGreaterEqual(server.cache()["tiers"]["scrubbed_pages"], 3)

    def test_the_directory_never_outgrows_its_size(self):
        directory = self.root / "small"
        limit, done = 16 << 20, threading.Event()
        sizes, blocks = [0], [0]

        def watch():
            while not done.wait(0.002):
                with contextlib.suppress(OSError):
                    held = [path.stat() for path in directory.iterdir()]
                    sizes.append(sum(s.st_size for s in held))
                    blocks.append(sum(s.st_blocks * 512 for s in held))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            with TierServer(directory, size="16M") as server:
                self.mix.play(server, 4)
                self.mix.play(server, 4)
                state = settle(server)
                self.assertGreater(state["skipped"] + state["evictions"], 0)
                self.assertLessEqual(state["used_bytes"], state["capacity_bytes"])
        finally:
            done.set()
            watcher.join()
        self.assertEqual(max(sizes), limit)
        # The file system counts its own list of the file's extents as the file's blocks.
        self.assertLessEqual(max(blocks), limit + 65536)
        self.assertGreaterEqual(blocks[-1], limit)  # reserved

    def test_a_second_server_is_refused(self):  # case S12
        directory = self.copy("second")
        server = TierServer(directory)
        try:
            said = refused(directory)
            self.assertIn(f"in use by process {server.process.pid}", said)
            self.assertIn(str(directory), said)
        finally:
            server.kill()
        with TierServer(directory) as server:
            self.assertGreater(self.mix.play(server, 1)["nvme"], 0)

    def test_threads_instead_of_io_uring(self):
        with TierServer(self.copy("threads"), "--io-backend", "threads") as server:
            self.assertIn("threads with pread and pwrite", server.nvme_line())
            self.assertGreater(self.mix.play(server, 3)["nvme"], 500)

    def test_io_uring_refused(self):  # case S15
        refuse = pathlib.Path(BINARY).with_name("refuse_io_uring")
        with TierServer(self.copy("seccomp"), prefix=[refuse, "EPERM"]) as server:
            self.assertIn("threads with pread and pwrite", server.nvme_line())
            self.assertIn("epoll", server.output())
            self.assertEqual(server.metric("spillway:io_info", backend="threads", mode="direct"), 1)
            self.assertGreater(self.mix.play(server, 3)["nvme"], 500)

    def test_other_pages_are_not_hit(self):  # case S13
        directory = self.copy("other")
        pages = len(store_file.pages(directory / "pages.kv"))
        for arguments in (("--kv-cache-dtype", "f32"), ("--block-size", "32")):
            with TierServer(directory, *arguments, device="64M") as server:
                reply = Mix.ask(server, question(0))
                self.assertEqual(reply["usage"]["spillway"]["matched"], 0, arguments)
                state = settle(server)
                self.assertEqual((state["errors"], state["corrupt"]), (0, 0), arguments)
                self.assertEqual(server.cache()["tiers"]["other_pages"] + state["pages"],
                                 pages + state["writes"], arguments)
                self.assertIn("other models or settings", server.output())
                pages += state["writes"]
        with TierServer(directory) as server:
            self.assertGreater(self.mix.play(server, 3)["nvme"], 500)

    def test_a_directory_in_memory(self):
        memory = pathlib.Path("/dev/shm")
        kind = subprocess.run(["stat", "-f", "-c", "%T", memory], capture_output=True, text=True,
                              check=False).stdout.strip()
        if kind != "tmpfs":
            self.skipTest(f"/dev/shm is no tmpfs but {kind or 'missing'}")
        with tempfile.TemporaryDirectory(prefix="spillway-", dir=memory) as directory:
            with TierServer(directory) as server:
                self.assertIn("buffered", server.nvme_line())
                self.assertEqual(server.metric("spillway:io_info", mode="buffered"), 1)
                self.mix.play(server, 4)
                settle(server)
                self.assertGreater(self.mix.play(server, 4)["nvme"], 500)


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A new ext4 of its own, mounted; skips the test where loop devices cannot be had."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("mounting needs root")
    image, at = folder / "disk", folder / "mounted"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, at]):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise unittest.SkipTest(f"no {command[0]} here") from error
        except subprocess.CalledProcessError as error:
            raise unittest.SkipTest(f"{command[0]}: {error.stderr.strip()}") from error
    try:
        yield at, image
    finally:
        # The kernel holds the file for a dead process's ring a moment longer.
        end = time.monotonic() + 20
        while subprocess.run(["umount", at], capture_output=True, check=False).returncode != 0:
            if time.monotonic() > end:
                raise AssertionError(f"{at} stays busy")
            time.sleep(0.05)


class FullDisk(unittest.TestCase):
    def test_a_full_disk(self):  # case S9
        with tempfile.TemporaryDirectory() as folder, \
                small_disk(pathlib.Path(folder), 96) as (disk, _):
            said = refused(disk / "kv", size="512M")
            self.assertIn("--kv-nvme-size", said)
            self.assertIn("free", said)
            with Server("--no-enable-prefix-caching") as server:
                expected = answer_of(Mix.ask(server, question(0)))
            with TierServer(disk / "kv", size="48M") as server:
                # Another process takes all that is left.
                with contextlib.suppress(OSError), (disk / "theirs").open("wb", 0) as file:
                    while file.write(bytes(65536)):
                        pass
                self.assertEqual(os.statvfs(disk).f_bavail, 0)
                for index in (0, 1, 4, 6, 7):
                    Mix.ask(server, question(index))
                state = settle(server)
                self.assertGreater(state["writes"], 30)  # its room was reserved
                self.assertEqual(state["errors"], 0)
                reply = Mix.ask(server, question(0))
                self.assertEqual(answer_of(reply), expected)
                self.assertGreater(reply["usage"]["spillway"]["tokens"]["nvme"], 0)


class FailingDisk(unittest.TestCase):
    def test_a_disk_that_loses_its_second_half_while_serving(self):  # case S6
        mix = Mix()
        with tempfile.TemporaryDirectory() as folder, \
                small_disk(pathlib.Path(folder), 4096 if FULL else 192) as (disk, image):
            with TierServer(disk / "kv", "--kv-nvme-scrub", "0") as server:
                mix.play(server)
                before = settle(server)
                self.assertEqual(before["errors"], 0)
                # Blocks behind the end of what the loop device stands on are read with EIO.
                os.truncate(image, pathlib.Path(image).stat().st_blocks * 512 // 2)
                mix.play(server)
                mix.play(server)
                after = settle(server)
                self.assertGreater(after["errors"], 0, after)
                self.assertEqual(server.metric("spillway:tier_errors_total", tier="nvme"),
                                 after["errors"])


if __name__ == "__main__":
    unittest.main()
