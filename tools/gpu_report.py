"""What tools/gpu-check makes of what it measured: medians with their spread, shares of what the
machine can do, goals, one JSON and one text. Knows nothing of GPUs but their data sheets.

A figure comes from gpu_bench as a dictionary: `name`, `case`, `samples` (seconds, one a repeat), and
what one repeat moved or computed: `bytes`, `operations` (of the kind `arithmetic`), `tokens`. A
restored prefix has `copy_seconds` and `compute_seconds` besides.
"""
import re

# GB/s of memory; tera-operations a second of f32 without tensor cores, and of dense bf16 and 8-bit
# integers on them, as their makers state them. To compare with; what counts is what the same run measured.
DATA_SHEETS = {name: dict(zip(("memory", "f32", "bf16", "int8"), numbers)) for name, numbers in {
    "A100-SXM4-80GB": (2039, 19.5, 312, 624),
    "A100-SXM4-40GB": (1555, 19.5, 312, 624),
    "A100 80GB PCIe": (1935, 19.5, 312, 624),
    "H100 80GB HBM3": (3350, 67, 989, 1979),
    "H100 PCIe": (2000, 51, 756, 1513),
    "H200": (4800, 67, 989, 1979),
    "B200": (8000, 80, 2250, 4500),
}.items()}

DECODE_GOAL = 0.85  # of the bandwidth that a copy on the device has
SWAP_GOAL = 0.90    # of one big copy from or to pinned memory
RESTORE_GOAL = 1.15  # of the longer of copy and computation

# Figure: (what it is measured against, at least this share)
GOALS = {
    "decode_attention": ("device_copy", DECODE_GOAL),
    "swap_in": ("pinned_up", SWAP_GOAL),
    "swap_out": ("pinned_down", SWAP_GOAL),
}


def data_sheet(gpu_name):
    """What the sheet of that GPU says, or None."""
    for name, sheet in DATA_SHEETS.items():
        if re.search(rf"\b{re.escape(name)}\b", gpu_name):
            return sheet
    return None


def spread(samples):
    """Median, and the samples that one in ten is below and above."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    return {"median": middle, "low": ordered[round(0.1 * last)], "high": ordered[round(0.9 * last)],
            "count": len(ordered)}


def rates(figure):
    """What a second holds of the figure, by its median."""
    seconds = spread(figure["samples"])["median"]
    out = {}
    if seconds <= 0:
        return out
    if "bytes" in figure:
        out["gb_per_second"] = figure["bytes"] / seconds / 1e9
    if "operations" in figure:
        out["tera_operations_per_second"] = figure["operations"] / seconds / 1e12
    if "tokens" in figure:
        out["tokens_per_second"] = figure["tokens"] / seconds
    return out


def limit_of(figures, name):
    """The best rate in GB/s of the figures of that name; None where it was not measured."""
    found = [rates(f).get("gb_per_second", 0) for f in figures if f["name"] == name]
    return max(found, default=0) or None


def judge(figure, figures, sheet):
    """The figure with its spread, rates, shares and, where it has a goal, whether it is met."""
    out = {key: value for key, value in figure.items() if key != "samples"}
    out["seconds"] = spread(figure["samples"])
    out.update(rates(figure))
    against = GOALS.get(figure["name"])
    limit = limit_of(figures, against[0]) if against else None
    if limit and "gb_per_second" in out:
        out["share"] = out["gb_per_second"] / limit
        out["share_of"] = against[0]
        out["goal"] = {"at_least": against[1], "met": out["share"] >= against[1]}
    longer = max(figure.get("copy_seconds", 0), figure.get("compute_seconds", 0))
    if longer > 0:
        out["ratio"] = out["seconds"]["median"] / longer
        out["goal"] = {"at_most": RESTORE_GOAL, "met": out["ratio"] <= RESTORE_GOAL}
    if sheet and figure.get("memory") == "device" and "gb_per_second" in out:
        out["share_of_data_sheet"] = out["gb_per_second"] / sheet["memory"]
    elif sheet and figure.get("arithmetic") in sheet and "tera_operations_per_second" in out:
        out["share_of_data_sheet"] = \
            out["tera_operations_per_second"] / sheet[figure["arithmetic"]]
    return out


def summarise(gpu, tests, bench):
    """All of the report as data. `bench` is what gpu_bench wrote, or None."""
    sheet = data_sheet(gpu.get("name", ""))
    figures = bench["figures"] if bench else []
    judged = [judge(figure, figures, sheet) for figure in figures]
    expected = {name for name, _ in GOALS.items()} | {"restored_from_host", "restored_from_nvme"}
    with_goal = {figure["name"] for figure in judged if "goal" in figure}
    return {
        "gpu": gpu,
        "tests": tests,
        "figures": judged,
        "skipped": bench.get("skipped", []) if bench else [],
        "passed": all(test["passed"] for test in tests),
        "goals_missed": [f"{f['name']} {f['case']}" for f in judged
                         if "goal" in f and not f["goal"]["met"]],
        "goals_not_measured": sorted(expected - with_goal),
    }


def duration(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def figure_line(figure):
    time = figure["seconds"]
    parts = [f"{duration(time['median'])} ({duration(time['low'])} to {duration(time['high'])})"]
    if "tokens_per_second" in figure:
        parts.append(f"{figure['tokens_per_second']:.1f} tokens/s")
    if "gb_per_second" in figure:
        parts.append(f"{figure['gb_per_second']:.1f} GB/s")
    if "tera_operations_per_second" in figure:
        parts.append(f"{figure['tera_operations_per_second']:.2f} TOP/s")
    if "share" in figure:
        parts.append(f"{figure['share']:.1%} of {figure['share_of']}")
    if "ratio" in figure:
        parts.append(f"{figure['ratio']:.2f} of the longer of copy "
                     f"{duration(figure['copy_seconds'])} and computation "
                     f"{duration(figure['compute_seconds'])}")
    if "share_of_data_sheet" in figure:
        parts.append(f"{figure['share_of_data_sheet']:.1%} of the data sheet")
    if "goal" in figure:
        goal = figure["goal"]
        bound = f"at least {goal['at_least']:.0%}" if "at_least" in goal else \
            f"at most {goal['at_most']}"
        parts.append(f"goal {bound}: {'met' if goal['met'] else 'MISSED'}")
    return f"  {figure['name'] + ' ' + figure['case']:<34} " + ", ".join(parts)


def to_text(summary):
    gpu = summary["gpu"]
    lines = [f"GPU: {gpu.get('name', 'unknown')}, sm_{gpu.get('sm', '?')}, driver "
             f"{gpu.get('driver', 'unknown')}", "", "Tests"]
    for test in summary["tests"]:
        verdict = "passed" if test["passed"] else "FAILED: " + test["why"]
        lines.append(f"  {test['name']:<34} {verdict} ({test['seconds']:.0f} s)")
    lines += ["", "Figures: median (one in ten below, one in ten above)"]
    lines += [figure_line(figure) for figure in summary["figures"]] or ["  none were taken"]
    for skipped in summary["skipped"]:
        lines.append(f"  {skipped['name']}: not measured: {skipped['why']}")
    lines.append("")
    if summary["goals_not_measured"]:
        lines.append("Goals that nothing was measured for: " +
                     ", ".join(summary["goals_not_measured"]))
    if summary["goals_missed"]:
        lines.append("Goals missed: " + ", ".join(summary["goals_missed"]))
    lines.append("All tests passed." if summary["passed"] else "TESTS FAILED.")
    return "\n".join(lines) + "\n"
