"""Reads a store's file as docs/ON_DISK_FORMAT.md describes it: a second reader, to damage pages."""

import collections
import os
import struct

UNIT = 4096
Page = collections.namedtuple("Page", "offset bytes position tokens")


def _superblock(file):
    best = None
    for offset in (0, UNIT):
        file.seek(offset)
        sector = file.read(UNIT)
        sequence, = struct.unpack_from("<Q", sector, 24)
        if sector[:8] == b"SPILLKV\n" and (best is None or sequence > best[0]):
            best = (sequence, sector)
    return best[1]


def _records(file, superblock):
    """All records of the current snapshot and the journal behind it, in the order written."""
    snapshot, region = struct.unpack_from("<QI", superblock, 40)
    start = struct.unpack_from("<2Q", superblock, 88)[region]
    region_bytes, = struct.unpack_from("<Q", superblock, 104)
    file.seek(start)
    data = file.read(region_bytes)
    for at in range(0, region_bytes, UNIT):
        magic, bytes_, _, id_, _, index = struct.unpack_from("<4sIQQQQ", data, at)
        if magic != b"SPIX" or id_ != snapshot or index * UNIT != at:
            continue
        end, at = at + 64 + bytes_, at + 64
        while at < end:
            kind, length = struct.unpack_from("<HH", data, at)
            yield kind, data[at:at + length]
            at += length


def pages(path):
    """The pages that the store in the file at `path` holds, by their place. No process has it."""
    found = {}
    with open(path, "rb") as file:
        superblock = _superblock(file)
        area, = struct.unpack_from("<Q", superblock, 112)
        for kind, record in _records(file, superblock):
            if kind == 2:
                slot, = struct.unpack_from("<I", record, 8)
                position, = struct.unpack_from("<I", record, 56)
                stored, tokens = struct.unpack_from("<IH", record, 72)
                found[slot] = Page(area + slot * UNIT, stored, position, tokens)
            elif kind == 3:
                found.pop(struct.unpack_from("<I", record, 4)[0], None)
    return sorted(found.values())


def flip(path, page, at):
    """Flips one bit of byte `at` of the page."""
    with open(path, "r+b") as file:
        file.seek(page.offset + at)
        byte, = file.read(1)
        file.seek(page.offset + at)
        file.write(bytes([byte ^ 0x10]))
        file.flush()
        os.fsync(file.fileno())
