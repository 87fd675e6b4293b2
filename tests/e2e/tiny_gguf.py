"""Gives a model of tests/data/tiny, which has no tokenizer, one for text of printable ASCII."""

import pathlib
import struct

TINY = pathlib.Path(__file__).resolve().parents[1] / "data/tiny"
STRING, ARRAY, U32 = 8, 9, 4
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _string(key, text):
    return _text(key) + struct.pack("<I", STRING) + _text(text)


def _strings(key, texts):
    return (_text(key) + struct.pack("<IIQ", ARRAY, STRING, len(texts)) +
            b"".join(_text(text) for text in texts))


def _skip_value(data, at, kind):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != ARRAY:
        return at + SIZES[kind]
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _skip_value(data, at, element)
    return at


def _header_end(data, tensors, values):
    at = 24
    for _ in range(values):
        at = _skip_value(data, at, STRING)
        kind, = struct.unpack_from("<I", data, at)
        at = _skip_value(data, at + 4, kind)
    for _ in range(tensors):
        at = _skip_value(data, at, STRING)
        dims, = struct.unpack_from("<I", data, at)
        at += 4 + 8 * dims + 4 + 8
    return at


def write_with_tokenizer(name, path):
    """Byte-level BPE of 96 tokens: a space, the visible characters, and "ab"."""
    data = (TINY / f"{name}.gguf").read_bytes()
    tensors, values = struct.unpack_from("<QQ", data, 8)
    tokens = ["\u0120"] + [chr(code) for code in range(33, 127)] + ["ab"]
    added = (_string("tokenizer.ggml.model", "gpt2") + _string("tokenizer.ggml.pre", "gpt-2") +
             _strings("tokenizer.ggml.tokens", tokens) +
             _strings("tokenizer.ggml.merges", ["a b"]))
    end = _header_end(data, tensors, values)
    head = data[:8] + struct.pack("<QQ", tensors, values + 4) + added + data[24:end]
    align = lambda size: (size + 31) // 32 * 32
    path.write_bytes(head.ljust(align(len(head)), b"\0") + data[align(end):])
