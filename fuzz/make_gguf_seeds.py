#!/usr/bin/env python3
"""Writes the seeds of gguf_fuzz: the models of tests/data/tiny made as small as their features allow
(a few KiB each), with a tokenizer, so that the fuzzer starts from files that give a whole model.

Needs the packages gguf and numpy (tests/requirements.txt). Run: make_gguf_seeds.py [FOLDER]
"""
import pathlib
import sys

import gguf

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/data"))
import make_tiny_models as tiny  # noqa: E402

BPE = [chr(c) for c in range(ord("a"), ord("p"))] + ["ab", "abc", "\u0120", "\u0120a", "\u010a",
                                                     "<s>", "</s>", "<|im_end|>"]
MERGES = ["a b", "ab c", "\u0120 a"]
SPM = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in (0x0A, 0x20, 0x61, 0xC3, 0xA9, 0xFF)] + [
    "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "\n\n", "<end_of_turn>"]
PRE = ["smollm", "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken", "default"]


def shrink(model, index):
    """Blocks of quantised types are 32 wide, and so are the rows here."""
    model.layers = min(model.layers, 1 if model.pattern is None else 2)
    model.width = model.mlp = 32
    model.heads, model.kv_heads = (3, 1) if model.name.endswith("odd_sizes") else (2, 1)
    if model.name.endswith("odd_sizes"):
        model.width, model.mlp, model.head_dim = 22, 14, 6
    else:
        model.head_dim = 16
    model.rope_dims = min(model.rope_dims, model.head_dim)
    model.spm = index % 3 == 0 or model.gemma
    model.pieces = SPM if model.spm else BPE
    model.vocabulary = len(model.pieces)


def add_tokenizer(writer, model, index):
    control = {"<s>", "</s>", "<|im_end|>", "<end_of_turn>"}
    types = [gguf.TokenType.CONTROL if piece in control
             else gguf.TokenType.UNKNOWN if piece == "<unk>"
             else gguf.TokenType.BYTE if piece.startswith("<0x")
             else gguf.TokenType.USER_DEFINED if piece == "\n\n"
             else gguf.TokenType.NORMAL for piece in model.pieces]
    writer.add_tokenizer_model("llama" if model.spm else "gpt2")
    if not model.spm:
        writer.add_tokenizer_pre(PRE[index % len(PRE)])
        writer.add_token_merges(MERGES)
    else:
        writer.add_token_scores([float(-i) for i in range(len(model.pieces))])
    writer.add_token_list(model.pieces)
    writer.add_token_types(types)
    writer.add_bos_token_id(model.pieces.index("<s>"))
    writer.add_eos_token_id(model.pieces.index("</s>"))
    writer.add_eot_token_id(len(model.pieces) - 1)
    writer.add_add_bos_token(index % 2 == 0)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")


def write(model, index, folder):
    shrink(model, index)
    writer = gguf.GGUFWriter(folder / f"{model.name}.gguf", model.arch)
    tiny.add_metadata(writer, model)
    add_tokenizer(writer, model, index)
    tiny.add_matrix(writer, model, "token_embd.weight", model.vocabulary, model.width)
    tiny.add_vector(writer, model, "output_norm.weight", model.width, 1, 0.2)
    if model.output:
        tiny.add_matrix(writer, model, "output.weight", model.vocabulary, model.width)
    if model.rope_factors:
        writer.add_tensor("rope_freqs.weight",
                          tiny.np.linspace(1, 8, model.rope_dims // 2).astype(tiny.np.float32))
    for layer in range(model.layers):
        tiny.add_layer(writer, model, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "corpus/gguf_fuzz"
    for index, model in enumerate(tiny.MODELS):
        write(model, index, folder)


if __name__ == "__main__":
    main()
