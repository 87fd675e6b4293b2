"""What docs/ tells people to look at and to set is there: metrics, options, fields."""

import json
import re
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, ROOT, Server

METRIC = re.compile(r"\b(?:vllm|spillway):[a-z_]+")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory, \
                Server("--kv-nvme-dir", directory, "--kv-nvme-size", "64M", "--kv-host-size", "16M",
                       "--kv-nvme-codec", "planes", "--kv-host-codec", "planes",
                       device="64M") as server:
            status, cls.answer = server.post("/v1/completions", {
                "prompt": "One. " * 40, "max_tokens": 2})
            if status != 200:
                raise AssertionError(cls.answer)
            end = time.monotonic() + 30
            while min(server.metric("spillway:tier_written_pages_total", tier=tier)
                      for tier in ("host", "nvme")) == 0:
                if time.monotonic() > end:
                    raise AssertionError("nothing was written behind")
                time.sleep(0.05)
            cls.scrape = server.get("/metrics")[1]
            cls.cache = server.get("/debug/cache")[1]
        cls.metrics = set(re.findall(r"^([\w:]+)(?:\{| )", cls.scrape, re.MULTILINE))
        cls.families = set(re.findall(r"^# TYPE (\S+)", cls.scrape, re.MULTILINE))

    def test_the_dashboard_shows_metrics_that_exist(self):
        board = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
        shown, titles, places = set(), [], set()
        for panel in board["panels"]:
            titles.append(panel["title"])
            place = tuple(sorted(panel["gridPos"].items()))
            self.assertNotIn(place, places)
            places.add(place)
            for target in panel.get("targets", []):
                found = METRIC.findall(target["expr"])
                self.assertTrue(found, target)
                shown.update(found)
                self.assertEqual(target["expr"].count("("), target["expr"].count(")"))
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    self.assertRegex(self.scrape, rf'{found[0]}\{{[^}}]*{label}="')
        self.assertEqual(len(titles), len(set(titles)))
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))  # of panels with one id Grafana shows the last
        self.assertEqual(shown - self.metrics, set())
        # Each tier metric that there is can be seen.
        tiers = {name for name in self.families
                 if name.startswith(("spillway:tier_", "spillway:codec_"))}
        self.assertGreater(len(tiers), 10)
        unseen = {"spillway:tier_pages", "spillway:tier_other_pages",
                  "spillway:tier_read_pages_total", "spillway:tier_written_pages_total"}
        shown_whole = {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
        self.assertEqual(tiers - shown_whole, unseen)

    def test_histograms_add_up(self):
        buckets = {}
        for name, labels, value in re.findall(r"^([\w:]+)\{(.*)\} (\S+)$", self.scrape,
                                              re.MULTILINE):
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            bound = found.pop("le", None)
            buckets.setdefault((name, *sorted(found.items())), []).append((bound, float(value)))
        names = {key[0].removesuffix("_bucket") for key in buckets if key[0].endswith("_bucket")}
        self.assertLessEqual({"spillway:tier_read_seconds", "spillway:tier_write_seconds"}, names)
        written = 0
        for (name, *labels), values in buckets.items():
            if not name.endswith("_bucket"):
                continue
            whole = name.removesuffix("_bucket")
            bounds = [float(bound) for bound, _ in values]
            counts = [count for _, count in values]
            self.assertEqual(bounds, sorted(bounds), name)
            self.assertEqual(bounds[-1], float("inf"), name)
            self.assertEqual(counts, sorted(counts), name)
            self.assertEqual(buckets[(whole + "_count", *labels)], [(None, counts[-1])], name)
            self.assertIn((whole + "_sum", *labels), buckets)
            if whole == "spillway:tier_write_seconds":
                written += counts[-1]
        self.assertGreater(written, 0)

    def test_troubleshooting_names_what_exists(self):
        text = (ROOT / "docs/TROUBLESHOOTING.md").read_text()
        named = set(METRIC.findall(text))
        self.assertGreater(len(named), 20)
        self.assertEqual(named - self.metrics - self.families, set())
        helped = "".join(
            subprocess.run([BINARY, *words, "--help"], capture_output=True, text=True,
                           check=True).stdout for words in (["serve"], ["store", "verify"]))
        known = set(OPTION.findall(helped))
        self.assertEqual(set(OPTION.findall(text)) - known, set())
        for field in ("tokens", "wait_ms", "matched", "first_divergence"):
            self.assertIn(field, text)
            self.assertIn(field, self.answer["usage"]["spillway"])
        for field in ('"read_only"', '"prefix_caching"'):
            self.assertIn(field, text)
            self.assertIn(field, self.cache)


if __name__ == "__main__":
    unittest.main()
