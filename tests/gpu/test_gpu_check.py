"""tools/gpu-check without a GPU: what it makes of nvidia-smi, of programs that pass, fail, hang or are
missing, and of figures; its exit codes; both reports. The programs are scripts that this writes.
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True
import gpu_report  # noqa: E402

H200 = "NVIDIA H200, 9.0, 570.86.15, 143771"


def load_tool():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "tools" / "gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


def figure(name, case, samples, **more):
    return {"name": name, "case": case, "samples": samples, **more}


def whole_bench(decode_seconds=1.0):
    """Figures of every goal, each well met while decode takes a second."""
    gb = 1e9
    return {"figures": [
        figure("device_copy", "1 GiB", [1.0, 1.1], bytes=4000 * gb, memory="device"),
        figure("pinned_up", "256 MiB", [1.0], bytes=50 * gb),
        figure("pinned_up", "of little", [1.0], bytes=10 * gb),
        figure("pinned_down", "256 MiB", [1.0], bytes=50 * gb),
        figure("swap_in", "pages", [1.0], bytes=48 * gb),
        figure("swap_out", "pages", [1.0], bytes=47 * gb),
        figure("decode_attention", "8k", [decode_seconds], bytes=3600 * gb, memory="device"),
        figure("prefill_attention", "8k", [1.0], operations=33.5e12, arithmetic="f32"),
        figure("restored_from_host", "8k", [1.1], copy_seconds=1.0, compute_seconds=0.5),
        figure("restored_from_nvme", "8k", [1.1], copy_seconds=0.2, compute_seconds=1.0),
    ], "skipped": []}


class Statistics(unittest.TestCase):
    def test_median_and_spread_do_not_hang_on_the_order(self):
        got = gpu_report.spread([5, 1, 4, 2, 3, 100, 6, 7, 8, 9, 10])
        self.assertEqual((got["median"], got["low"], got["high"], got["count"]), (6, 2, 10, 11))
        self.assertEqual(gpu_report.spread([1, 2])["median"], 1.5)
        self.assertEqual(gpu_report.spread([3])["low"], 3)
        with self.assertRaises(ValueError):
            gpu_report.spread([])

    def test_shares_are_of_what_the_same_run_measured(self):
        summary = gpu_report.summarise({"name": "NVIDIA H200"}, [], whole_bench())
        decode = next(f for f in summary["figures"] if f["name"] == "decode_attention")
        limit = 4000 / 1.05  # the copy's median
        self.assertAlmostEqual(decode["share"], 3600 / limit)
        self.assertEqual(decode["share_of"], "device_copy")
        self.assertAlmostEqual(decode["share_of_data_sheet"], 3600 / 4800)
        swap = next(f for f in summary["figures"] if f["name"] == "swap_in")
        self.assertAlmostEqual(swap["share"], 0.96)  # of the best copy
        prefill = next(f for f in summary["figures"] if f["name"] == "prefill_attention")
        self.assertAlmostEqual(prefill["share_of_data_sheet"], 0.5)
        host = next(f for f in summary["figures"] if f["name"] == "restored_from_host")
        self.assertAlmostEqual(host["ratio"], 1.1)
        self.assertEqual(summary["goals_missed"], [])
        self.assertEqual(summary["goals_not_measured"], [])

    def test_goals_are_missed_and_missing_ones_are_named(self):
        bench = whole_bench(decode_seconds=1.2)
        bench["figures"] = [f for f in bench["figures"] if f["name"] != "restored_from_nvme"]
        bench["figures"][-1]["samples"] = [1.16]
        summary = gpu_report.summarise({"name": "some GPU"}, [], bench)
        self.assertEqual(summary["goals_missed"], ["decode_attention 8k", "restored_from_host 8k"])
        self.assertEqual(summary["goals_not_measured"], ["restored_from_nvme"])
        self.assertNotIn("share_of_data_sheet", summary["figures"][0])
        everything = gpu_report.summarise({}, [], None)
        self.assertEqual(len(everything["goals_not_measured"]), 5)

    def test_a_goal_without_its_limit_is_not_measured(self):
        bench = whole_bench()
        bench["figures"] = [f for f in bench["figures"] if f["name"] != "pinned_up"]
        summary = gpu_report.summarise({}, [], bench)
        self.assertEqual(summary["goals_not_measured"], ["swap_in"])

    def test_a_data_sheet_is_that_of_the_whole_name(self):
        self.assertEqual(gpu_report.data_sheet("NVIDIA H100 80GB HBM3")["memory"], 3350)
        self.assertEqual(gpu_report.data_sheet("NVIDIA H100 PCIe")["memory"], 2000)
        self.assertIsNone(gpu_report.data_sheet("NVIDIA GH200 480GB"))


class Finding(unittest.TestCase):
    def test_lines_of_nvidia_smi(self):
        tool = load_tool()
        gpus = tool.parse_gpus(H200 + "\nNVIDIA A100-SXM4-80GB, 8.0, 570.1, [N/A]\nan error\n")
        self.assertEqual([g["sm"] for g in gpus], ["90", "80"])
        self.assertEqual(gpus[0], {"name": "NVIDIA H200", "sm": "90", "driver": "570.86.15",
                                   "memory_mib": 143771})
        self.assertIsNone(gpus[1]["memory_mib"])
        self.assertEqual(tool.parse_gpus("No devices were found\n"), [])


class Running(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "bin").mkdir()
        (self.path / "built").mkdir()

    def script(self, path, body):
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(0o755)

    def programs(self, kernels="exit 0", bench=None):
        built = self.path / "built"
        self.script(built / "real_cuda_device_test", "exit 0")
        self.script(built / "gpu_kernels_check", kernels)
        self.script(built / "gpu_model_check", "exit 0")
        (self.path / "figures.json").write_text(json.dumps(bench or whole_bench()))
        self.script(built / "gpu_bench", f'cp "{self.path}/figures.json" "$2"')

    def check(self, *arguments, smi=f"echo '{H200}'"):
        environment = dict(os.environ)
        # Without one of its own: not the machine's either.
        environment["PATH"] = str(self.path / "bin") + (":/usr/bin:/bin" if smi else "")
        smi_path = self.path / "bin" / "nvidia-smi"
        smi_path.unlink(missing_ok=True)
        if smi:
            self.script(smi_path, smi)
        return subprocess.run(
            [sys.executable, str(ROOT / "tools" / "gpu-check"), "--prebuilt",
             str(self.path / "built"), "--out", str(self.path / "out"), *arguments],
            capture_output=True, text=True, env=environment, timeout=120)

    def report(self):
        return json.loads((self.path / "out" / "gpu-check.json").read_text())

    def test_all_passed_and_all_goals_met(self):
        self.programs()
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(self.report()["passed"])
        self.assertEqual(self.report()["gpu"]["sm"], "90")
        text = (self.path / "out" / "gpu-check.txt").read_text()
        self.assertEqual(text, result.stdout)
        self.assertIn("GPU: NVIDIA H200, sm_90, driver 570.86.15", text)
        self.assertRegex(text, r"decode_attention 8k .* 3600.0 GB/s, 94.5% of device_copy, "
                               r"75.0% of the data sheet, goal at least 85%: met")
        self.assertIn("1.10 of the longer of copy 1 s and computation 500 ms", text)
        self.assertIn("All tests passed.", text)

    def test_without_a_gpu_it_says_what_to_do(self):
        self.programs()
        for smi, why in ((None, "there is no nvidia-smi"),
                         ("echo 'No devices were found'; exit 6", "No devices were found"),
                         ("exit 9", "nvidia-smi found none"),
                         ("echo 'Tesla V100, 7.0, 570.1, 16384'", "kernels need sm_80")):
            result = self.check(smi=smi)
            self.assertEqual(result.returncode, 3, why)
            self.assertIn(why, result.stderr)
            self.assertIn("--build-only", result.stderr)
        self.assertFalse((self.path / "out").exists())

    def test_a_failed_test_is_a_failure_whatever_was_measured(self):
        for body, why in (("exit 1", "exit code 1"), ("exit 77", "it found no GPU"),
                          ("kill -9 $$", "exit code -9")):
            self.programs(kernels=body)
            result = self.check()
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"FAILED: {why}", result.stdout)
            self.assertIn("decode_attention 8k", result.stdout)
            self.assertFalse(self.report()["passed"])

    def test_a_program_that_hangs_or_is_missing_is_a_failure(self):
        self.programs(kernels="exec sleep 60")
        result = self.check("--seconds", "2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED: it ran out of time", result.stdout)
        self.assertIn("FAILED: no time was left", result.stdout)
        self.programs()
        (self.path / "built" / "gpu_bench").unlink()
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not there", result.stdout)
        self.assertIn("none were taken", result.stdout)

    def test_figures_of_an_earlier_run_are_not_reported_again(self):
        self.programs()
        self.assertEqual(self.check().returncode, 0)
        self.script(self.path / "built" / "gpu_bench", "exit 1")
        self.assertEqual(self.check().returncode, 1)
        self.assertEqual(self.report()["figures"], [])

    def test_a_missed_goal_has_its_own_exit_code(self):
        self.programs(bench=whole_bench(decode_seconds=1.2))
        result = self.check()
        self.assertEqual(result.returncode, 5)
        self.assertIn("MISSED", result.stdout)
        self.assertIn("Goals missed: decode_attention 8k", result.stdout)
        self.assertIn("All tests passed.", result.stdout)

    def test_libraries_that_came_along_are_found(self):
        self.programs(kernels='case "$LD_LIBRARY_PATH" in */built/lib*) exit 0;; esac; exit 1')
        self.assertEqual(self.check().returncode, 1)
        (self.path / "built" / "lib").mkdir()
        self.assertEqual(self.check().returncode, 0)

    def test_wrong_arguments(self):
        self.assertEqual(self.check("--sm", "nine").returncode, 2)
        self.assertEqual(self.check("--frobnicate").returncode, 2)


class Measuring(unittest.TestCase):
    def setUp(self):
        self.program = os.environ["SPILLWAY_SIMULATED_GPU_BENCH"]

    def measure(self, case):
        """What a simulated GPU gives of one case, as the report has it, and its text."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "figures.json"
            result = subprocess.run([self.program, "--tiny", "--out", str(out), "--folder", folder,
                                     "--only", case], capture_output=True, text=True, timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            bench = json.loads(out.read_text())
            self.assertEqual(sorted(os.listdir(folder)), ["figures.json"])
        self.assertEqual(bench["skipped"], [])
        self.assertIn("simulated", bench["device"])
        for one in bench["figures"]:
            self.assertGreater(min(one["samples"]), 0, one["name"])
        summary = gpu_report.summarise({"name": "NVIDIA H200"}, [], bench)
        return summary, gpu_report.to_text(summary)

    def test_copies_measure_their_limits_and_goals(self):
        summary, text = self.measure("copies")
        self.assertNotIn("swap_in", summary["goals_not_measured"])
        self.assertNotIn("swap_out", summary["goals_not_measured"])
        self.assertRegex(text, r"device_copy 0 MiB .* GB/s, .* of the data sheet")
        self.assertRegex(text, r"swap_in pages of 4 KiB .* of pinned_up, goal at least 90%")
        self.assertRegex(text, r"swap_out pages of 8 KiB .* of pinned_down, goal at least 90%")

    def test_operators_are_measured(self):
        _, text = self.measure("decode_attention")
        self.assertRegex(text, r"decode_attention 16 x 6 .* GB/s, .* of the data sheet")
        self.assertRegex(text, r"decode_attention 48 x 2 .* GB/s")
        _, text = self.measure("prefill_attention")
        self.assertRegex(text, r"prefill_attention 20 .* tokens/s, .* TOP/s, .* of the data sheet")
        _, text = self.measure("matmul")
        self.assertRegex(text, r"matmul Q4_0, 1 rows .* GB/s")
        self.assertRegex(text, r"matmul Q4_K, 20 rows .* TOP/s, .* of the data sheet")

    def test_products_are_measured_by_our_kernels_and_by_the_library(self):
        _, text = self.measure("matmul_cublaslt")
        for rows in (1, 20):
            self.assertRegex(text, rf"matmul_cublaslt Q4_0, {rows} rows .* TOP/s, .* of the data sheet")
            self.assertRegex(text, rf"matmul_cublaslt BF16, {rows} rows .* TOP/s, .* of the data sheet")
            self.assertRegex(text, rf"matmul BF16, {rows} rows .* TOP/s, .* of the data sheet")

    def test_a_served_model_is_measured_with_prefixes_that_come_back(self):
        summary, text = self.measure("serving")
        self.assertNotIn("restored_from_host", summary["goals_not_measured"])
        self.assertNotIn("restored_from_nvme", summary["goals_not_measured"])
        self.assertRegex(text, r"decode 2 streams .* tokens/s")
        self.assertRegex(text, r"cold_prefill 80 tokens .* tokens/s")
        self.assertRegex(text, r"restored_from_host 64 tokens ")
        self.assertRegex(text, r"restored_from_nvme 64 tokens ")

    def test_arguments_of_the_benchmarks(self):
        for arguments in ([], ["--out"], ["--out", "x"], ["--frobnicate"]):
            self.assertEqual(subprocess.run([self.program, *arguments], capture_output=True).returncode,
                             2)


if __name__ == "__main__":
    unittest.main()
