#!/usr/bin/env python3
"""Checks the CUDA objects of a build: that each kernel is there for each architecture, and that the
hot ones keep everything in registers, few enough of them.

    check_objects.py CUOBJDUMP ARCHITECTURES OBJECT...

ARCHITECTURES as CMake has them, by commas: 80-real,90-real,100 (of the last PTX too).
"""

import re
import subprocess
import sys

# Kernel: the most registers with which the blocks that its sketch counts on fit an SM.
HOT = {
    "attention_split_kernel": 64,  # four blocks of 256 threads
    "attention_tile_kernel": 128,  # two blocks of 256 threads
    "attention_merge_kernel": 128,
    "matmul_few_kernel": 128,
    "matmul_many_kernel": 128,  # two blocks of 256 threads
    "matmul_floats_kernel": 128,
    "argmax_kernel": 64,  # one block of 1,024 threads
    "soft_cap_kernel": 64,
    "rms_norm_kernel": 128,
    "rope_kernel": 128,
    "gated_kernel": 64,
    "quantize_kernel": 64,
    "unpack_kernel": 64,  # four blocks of 256 threads
    "narrow_kernel": 32,
    "write_kv_kernel": 64,
    "embedding_kernel": 64,
    "add_bias_kernel": 64,
    "gather_rows_kernel": 64,
    "block_maxima_kernel": 64,
    "block_sums_kernel": 64,
    "draw_kernel": 64,  # two blocks of 512 threads
    "sum_parts_kernel": 64,
    "page_copy_kernel": 32,  # eight blocks of 256 threads
    "checksum_kernel": 64,
    "split_planes_kernel": 32,
    "join_planes_kernel": 32,
}
# Instances, by mangled name and architecture, that make do with three blocks.
THREE_BLOCKS = {
    r"attention_split_kernel\w*ELj8E": 80,  # eight heads: so its sketch says
    r"attention_split_kernel\w*KvTypeE0ELj4E": 80,  # f32: twice the bytes under way
    r"attention_split_kernel\w*ELj4E\w* for sm_80": 80,  # less bandwidth an SM
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


def architectures_of(text):
    """The names of the architectures that there is machine code for, and of those with PTX."""
    real, virtual = set(), set()
    for item in text.split(","):
        match = re.fullmatch(r"(\d+[af]?)(-real|-virtual)?", item)
        if match is None:
            sys.exit(f"{item}: not an architecture by its number")
        if match.group(2) != "-virtual":
            real.add(f"sm_{match.group(1)}")
        if match.group(2) != "-real":
            virtual.add(f"sm_{match.group(1)}")
    return real, virtual


def main():
    cuobjdump, objects = sys.argv[1], sys.argv[3:]
    real, virtual = architectures_of(sys.argv[2])
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
            limit = next((limit for pattern, limit in THREE_BLOCKS.items()
                          if re.search(pattern, where)), HOT[kernel])
            if used["REG"] > limit:
                errors.append(f"{where}: {used['REG']} registers, over {limit}")
        ptx = set(re.findall(r"\bsm_\w+", dump(cuobjdump, "--list-ptx", path)))
        if not virtual <= ptx:
            errors.append(f"{path}: PTX for {sorted(ptx)}, not {sorted(virtual)}")
    for kernel in HOT:
        if not any(kernel in name for name in seen):
            errors.append(f"{kernel}: in no object")
    for name, architectures in seen.items():
        if architectures != real:
            errors.append(f"{name}: for {sorted(architectures)}, not {sorted(real)}")
    print("\n".join(errors) or f"{len(seen)} kernels for {len(real)} architectures")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
