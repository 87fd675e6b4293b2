#!/usr/bin/env python3
"""Checks the CUDA objects of a build: that each kernel is there for each architecture, and that the
hot ones keep everything in registers, few enough of them.

    check_objects.py CUOBJDUMP OBJECT...
"""

import re
import subprocess
import sys

ARCHITECTURES = {"sm_80", "sm_90", "sm_100"}
# Kernel: the most registers with which the blocks that its sketch counts on fit an SM.
HOT = {
    "attention_split_kernel": 128,
    "attention_merge_kernel": 128,
    "matmul_kernel": 128,
    "matmul_floats_kernel": 128,
    "argmax_kernel": 64,
    "soft_cap_kernel": 64,
    "rms_norm_kernel": 128,
    "rope_kernel": 128,
    "gated_kernel": 64,
    "quantize_kernel": 64,
    "write_kv_kernel": 64,
    "embedding_kernel": 64,
}


def dump(cuobjdump, option, path):
    return subprocess.run([cuobjdump, option, path], capture_output=True, text=True,
                          check=True).stdout


def kernels_of(text):
    """(architecture, mangled name, {resource: count}) of each kernel."""
    architecture = name = None
    for line in text.splitlines():
        match = re.match(r"\s*arch = (sm_\w+)", line)
        if match:
            architecture = match.group(1)
        match = re.match(r"\s*Function (\S+):", line)
        if match:
            name = match.group(1)
        elif name is not None and "REG:" in line:
            yield architecture, name, {key: int(value)
                                       for key, value in re.findall(r"(\w+):(\d+)", line)}
            name = None


def main():
    cuobjdump, objects = sys.argv[1], sys.argv[2:]
    errors, seen = [], {}
    for path in objects:
        for architecture, name, used in kernels_of(dump(cuobjdump, "--dump-resource-usage", path)):
            kernel = next((k for k in HOT if k in name), None)
            if kernel is None:
                errors.append(f"{name}: no limit is set for it in HOT")
                continue
            seen.setdefault(name, set()).add(architecture)
            where = f"{name} for {architecture}"
            if used["STACK"] or used["LOCAL"]:
                errors.append(f"{where}: spills {used['STACK']} + {used['LOCAL']} bytes")
            if used["REG"] > HOT[kernel]:
                errors.append(f"{where}: {used['REG']} registers, over {HOT[kernel]}")
        if "sm_100" not in dump(cuobjdump, "--list-ptx", path):
            errors.append(f"{path}: no PTX for what comes after sm_100")
    for kernel in HOT:
        if not any(kernel in name for name in seen):
            errors.append(f"{kernel}: in no object")
    for name, architectures in seen.items():
        if architectures != ARCHITECTURES:
            errors.append(f"{name}: for {sorted(architectures)}, not {sorted(ARCHITECTURES)}")
    print("\n".join(errors) or f"{len(seen)} kernels for {len(ARCHITECTURES)} architectures")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
