#!/usr/bin/env python3
"""Writes small random models, one per architecture and feature, with the logits they must give.

Each file holds its own test: spillway.test.tokens, and spillway.test.logits (token, vocabulary) as
computed here by a plain NumPy forward pass in float64 over the file's weights as dequantised.
Needs the packages gguf and numpy (tests/requirements.txt). Run: make_tiny_models.py [FOLDER]
"""
import math
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

TOKENS = 45  # three pages of 16, the last one open; past the windows below


class Model:
    """The description that both the file and the forward pass are made from."""

    def __init__(self, name, arch, **options):
        self.name, self.arch = name, arch
        self.layers, self.width, self.mlp = 2, 64, 96
        self.heads, self.kv_heads, self.head_dim = 4, 2, 16
        self.vocabulary = 96
        self.type = Q.F32
        self.output = True  # a matrix of its own
        self.rope_base, self.linear, self.yarn = 10000.0, None, None
        self.rope_dims = None
        self.rope_factors = False
        self.window, self.pattern = 0, None
        self.attention_cap, self.final_cap = 0.0, 0.0
        self.fused = False
        self.write_pattern = True
        for key, value in options.items():
            assert hasattr(self, key), key
            setattr(self, key, value)
        self.rope_dims = self.rope_dims or self.head_dim
        self.gemma = arch == "gemma3"
        self.epsilon = 1e-5
        self.random = np.random.default_rng(sum(map(ord, name)))
        self.tensors = {}  # name -> what the file's bytes mean, float64

    def windowed(self, layer):
        return self.window and (self.pattern == 1 or layer % self.pattern != self.pattern - 1)


MODELS = [
    Model("llama_mha_linear", "llama", kv_heads=4, linear=4.0, width=48, mlp=80),
    Model("llama_mqa_llama3", "llama", kv_heads=1, rope_factors=True, rope_base=500000.0, type=Q.F16),
    Model("llama_partial_rope", "llama", rope_dims=8, output=False, fused=True),
    Model("mistral_window", "llama", head_dim=32, window=20, pattern=1, type=Q.BF16),
    Model("qwen2_bias_yarn", "qwen2", yarn=(4.0, 32), type=Q.F16, output=False),
    Model("qwen3_qk_norm", "qwen3", head_dim=32, rope_base=1e6, type=Q.BF16),
    Model("gemma3_soft_caps", "gemma3", layers=7, width=48, mlp=48, kv_heads=1, window=20, pattern=6,
          attention_cap=2.0, final_cap=5.0, output=False, rope_base=1e6, linear=8.0, type=Q.F16,
          write_pattern=False),
    # No size is a multiple of what vectors or blocks hold.
    Model("llama_odd_sizes", "llama", width=44, mlp=74, heads=9, kv_heads=3, head_dim=22,
          vocabulary=101, type=Q.F16),
    Model("qwen2_q8_0", "qwen2", type=Q.Q8_0, width=128, mlp=128),
    Model("llama_q4_1", "llama", type=Q.Q4_1, width=128, mlp=128, output=False),
    Model("llama_q5_0", "llama", type=Q.Q5_0, width=128, mlp=128),
]


def add_matrix(writer, model, name, outputs, inputs, scale=1.0, type_=None):
    values = model.random.normal(0, scale / math.sqrt(inputs), (outputs, inputs)).astype(np.float32)
    type_ = type_ or model.type
    raw = gguf.quants.quantize(values, type_)
    writer.add_tensor(name, raw, raw_dtype=type_)
    model.tensors[name] = gguf.quants.dequantize(raw, type_).astype(np.float64)


def add_vector(writer, model, name, size, mean, spread):
    values = model.random.normal(mean, spread, size).astype(np.float32)
    writer.add_tensor(name, values)
    model.tensors[name] = values.astype(np.float64)


def add_layer(writer, m, i):
    p, q, kv = f"blk.{i}.", m.heads * m.head_dim, m.kv_heads * m.head_dim
    add_vector(writer, m, p + "attn_norm.weight", m.width, 1, 0.2)
    if m.fused:
        add_matrix(writer, m, p + "attn_qkv.weight", q + 2 * kv, m.width, 1.5)
        whole = m.tensors.pop(p + "attn_qkv.weight")
        for part, rows in zip("qkv", np.split(whole, [q, q + kv])):
            m.tensors[p + f"attn_{part}.weight"] = rows
    else:
        for part, rows in (("q", q), ("k", kv), ("v", kv)):
            add_matrix(writer, m, p + f"attn_{part}.weight", rows, m.width, 1.5)
    if m.arch == "qwen2":
        for part, rows in (("q", q), ("k", kv), ("v", kv)):
            add_vector(writer, m, p + f"attn_{part}.bias", rows, 0, 0.5)
    if m.arch in ("qwen3", "gemma3"):
        for part in "qk":
            add_vector(writer, m, p + f"attn_{part}_norm.weight", m.head_dim, 1, 0.3)
    add_matrix(writer, m, p + "attn_output.weight", m.width, q)
    add_vector(writer, m, p + "ffn_norm.weight", m.width, 1, 0.2)
    for part in ("gate", "up"):
        add_matrix(writer, m, p + f"ffn_{part}.weight", m.mlp, m.width, 1.5)
    add_matrix(writer, m, p + "ffn_down.weight", m.width, m.mlp)
    if m.gemma:
        add_vector(writer, m, p + "post_attention_norm.weight", m.width, 1, 0.2)
        add_vector(writer, m, p + "post_ffw_norm.weight", m.width, 1, 0.2)


def add_metadata(w, m):
    w.add_context_length(512)
    w.add_embedding_length(m.width)
    w.add_block_count(m.layers)
    w.add_feed_forward_length(m.mlp)
    w.add_head_count(m.heads)
    w.add_head_count_kv(m.kv_heads)
    w.add_layer_norm_rms_eps(m.epsilon)
    w.add_rope_freq_base(m.rope_base)
    if m.head_dim * m.heads != m.width:
        w.add_key_length(m.head_dim)
        w.add_value_length(m.head_dim)
    if m.rope_dims != m.head_dim:
        w.add_rope_dimension_count(m.rope_dims)
    if m.linear:
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(m.linear)
    if m.yarn:
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(m.yarn[0])
        w.add_rope_scaling_orig_ctx_len(m.yarn[1])
    if m.window:
        w.add_sliding_window(m.window)
    if m.attention_cap:
        w.add_attn_logit_softcapping(m.attention_cap)
        w.add_final_logit_softcapping(m.final_cap)


# ---- the forward pass, plain ----

def rms(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def yarn_frequencies(m, frequencies):
    factor, context = m.yarn
    pair = lambda turns: (m.rope_dims * math.log(context / (turns * 2 * math.pi))
                          / (2 * math.log(m.rope_base)))
    low, high = max(0, math.floor(pair(32.0))), min(m.rope_dims - 1, math.ceil(pair(1.0)))
    ramp = np.clip((np.arange(len(frequencies)) - low) / max(0.001, high - low), 0, 1)
    return frequencies * (1 - ramp) + frequencies / factor * ramp, 0.1 * math.log(factor) + 1


def rotate(m, x, layer):  # x: (token, head, dim)
    local = m.gemma and m.windowed(layer)
    base = 10000.0 if local else m.rope_base
    frequencies = base ** (-np.arange(0, m.rope_dims, 2) / m.rope_dims)
    magnitude = 1.0
    if m.rope_factors:
        frequencies = frequencies / m.tensors["rope_freqs.weight"]
    if m.linear and not local:
        frequencies = frequencies / m.linear
    if m.yarn:
        frequencies, magnitude = yarn_frequencies(m, frequencies)
    angles = np.arange(len(x))[:, None] * frequencies
    cos, sin = np.cos(angles)[:, None] * magnitude, np.sin(angles)[:, None] * magnitude
    y = x.copy()
    if m.arch == "llama":
        a, b = x[..., 0:m.rope_dims:2], x[..., 1:m.rope_dims:2]
        y[..., 0:m.rope_dims:2], y[..., 1:m.rope_dims:2] = a * cos - b * sin, a * sin + b * cos
    else:
        half = m.rope_dims // 2
        a, b = x[..., :half], x[..., half:m.rope_dims]
        y[..., :half], y[..., half:m.rope_dims] = a * cos - b * sin, a * sin + b * cos
    return y


def attention(m, x, layer):
    p, t, n = f"blk.{layer}.", m.tensors, len(x)
    parts = {}
    for part, heads in (("q", m.heads), ("k", m.kv_heads), ("v", m.kv_heads)):
        y = x @ t[p + f"attn_{part}.weight"].T
        if m.arch == "qwen2":
            y = y + t[p + f"attn_{part}.bias"]
        y = y.reshape(n, heads, m.head_dim)
        if part != "v":
            if m.arch in ("qwen3", "gemma3"):
                y = rms(y, t[p + f"attn_{part}_norm.weight"], m.epsilon)
            y = rotate(m, y, layer)
        parts[part] = y
    group = m.heads // m.kv_heads
    k, v = np.repeat(parts["k"], group, 1), np.repeat(parts["v"], group, 1)
    scores = np.einsum("qhd,khd->hqk", parts["q"], k) / math.sqrt(m.head_dim)
    if m.attention_cap:
        scores = m.attention_cap * np.tanh(scores / m.attention_cap)
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = distance >= 0
    if m.windowed(layer):
        seen &= distance < m.window
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
    return out @ t[p + "attn_output.weight"].T


def mlp(m, x, layer):
    p, t = f"blk.{layer}.", m.tensors
    gate, up = x @ t[p + "ffn_gate.weight"].T, x @ t[p + "ffn_up.weight"].T
    if m.gemma:
        gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    else:
        gate = gate / (1 + np.exp(-gate))
    return (gate * up) @ t[p + "ffn_down.weight"].T


def forward(m, tokens):
    t = m.tensors
    x = t["token_embd.weight"][tokens] * (math.sqrt(m.width) if m.gemma else 1)
    for i in range(m.layers):
        p = f"blk.{i}."
        update = attention(m, rms(x, t[p + "attn_norm.weight"], m.epsilon), i)
        if m.gemma:
            update = rms(update, t[p + "post_attention_norm.weight"], m.epsilon)
        x = x + update
        update = mlp(m, rms(x, t[p + "ffn_norm.weight"], m.epsilon), i)
        if m.gemma:
            update = rms(update, t[p + "post_ffw_norm.weight"], m.epsilon)
        x = x + update
    x = rms(x, t["output_norm.weight"], m.epsilon)
    logits = x @ (t["output.weight"] if m.output else t["token_embd.weight"]).T
    return m.final_cap * np.tanh(logits / m.final_cap) if m.final_cap else logits


def write(m, folder):
    writer = gguf.GGUFWriter(folder / f"{m.name}.gguf", m.arch)
    add_metadata(writer, m)
    # Tied embeddings are output weights, too: large enough for logits that differ.
    add_matrix(writer, m, "token_embd.weight", m.vocabulary, m.width, 1.0 if m.gemma else 3.0)
    add_vector(writer, m, "output_norm.weight", m.width, 1, 0.2)
    if m.output:
        add_matrix(writer, m, "output.weight", m.vocabulary, m.width, 3.0)
    if m.rope_factors:
        factors = np.linspace(1, 8, m.rope_dims // 2).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", factors)
        m.tensors["rope_freqs.weight"] = factors.astype(np.float64)
    for i in range(m.layers):
        add_layer(writer, m, i)
    tokens = m.random.integers(0, m.vocabulary, TOKENS)
    writer.add_array("spillway.test.tokens", [int(t) for t in tokens])
    writer.add_array("spillway.test.logits", [float(v) for v in forward(m, tokens).ravel()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    here = pathlib.Path(__file__).parent / "tiny"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    folder.mkdir(exist_ok=True)
    for model in MODELS:
        write(model, folder)


if __name__ == "__main__":
    main()
