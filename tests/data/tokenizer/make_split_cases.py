#!/usr/bin/env python3
"""Writes split_cases.tsv: how the published pre-tokenizer patterns split odd texts, by the regex
package, an implementation of its own (Matthew Barnett).

    pip install regex unicodedata2==15.1.0
    make_split_cases.py CASES_PER_PATTERN [SEED] > split_cases.tsv

Each line: tokenizer.ggml.pre, the text in hexadecimal UTF-8, the words' lengths in bytes. The
patterns are those of the models' tokenizer.json files; \\s is spelled out because packages differ
on U+001C to U+001F. Only code points that Unicode 15.1 assigns occur, as tables differ by version.
"""

import random
import sys

import regex
import unicodedata2

CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def words(digits, word=r"\p{L}", symbols=r"\s\p{L}\p{N}", after=r"[\r\n]*"):
    return (rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[{word}]+|{digits}| ?[^{symbols}]+{after}"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def cased(digits, tail=""):
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{tail}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*"
            rf"{tail}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
EAST = "[一-龥ࠀ-一가-\ud7ff]+"
DEEPSEEK_LETTER_RANGES = (
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f "
    "386 388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd "
    "1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 "
    "1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 "
    "1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 "
    "2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 "
    "2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 "
    "a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 "
    "104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943")
DEEPSEEK_LETTERS = "".join(
    "-".join(chr(int(end, 16)) for end in part.split("-"))
    for part in DEEPSEEK_LETTER_RANGES.split())
STAGES = {
    "default": [PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "llama-bpe": [words(r"\p{N}{1,3}")],
    "qwen2": [words(r"\p{N}")],
    "qwen35": [words(r"\p{N}", r"\p{L}\p{M}", r"\s\p{L}\p{M}\p{N}")],
    "seed-coder": [words(r"\p{N}{1}", symbols=r"\s\p{L}\p{N}\r\n", after="")],
    "tekken": [cased(r"\p{N}")],
    "gpt-4o": [cased(r"\p{N}{1,3}", rf"(?i:{CONTRACTIONS})?")],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+\Z",
                     EAST, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST, r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
}


def compiled(pattern):
    spaced = pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}")
    return regex.compile(spaced, regex.V0)


def split(stages, text):
    parts = [text] if text else []
    for stage in stages:
        pieces = []
        for part in parts:
            at = 0
            for match in stage.finditer(part):
                if match.start() > at:
                    pieces.append(part[at:match.start()])
                if match.end() > match.start():
                    pieces.append(match.group())
                at = match.end()
            if at < len(part):
                pieces.append(part[at:])
        parts = pieces
    return parts


SNIPPETS = [
    "'s", "'S", "'ll", "'LL", "'lL", "'re", "'RE", "'ve", "'Ve", "'m", "'d", "'t", "'x", "'", "''",
    "’s", "'\u017f", "I'M", "don't", " ", "  ", "   ", "\n", "\r\n", "\r", "\n\n", "\t", " \n", "\n ",
    " \t ", "\x0b", "\x0c", "\x85", "\xa0", "\u2028", "\u2029", "\u3000", "\u200b", "\ufeff", "\u180e",
    "\u202f", "\x00", "\x1b", "\x1c", "\x7f", "0", "12", "345", "6789", "1234567", "٣", "४५", "Ⅷ", "½",
    "²", "𝟙𝟚", "a", "B", "word", "Word", "WORD", "camelCase", "XMLHttp", "Ǆa", "ǅ", "ǆ", "ʰ", "é", "e\u0301",
    "à\u0301\u0302", "\u0301", "ß", "İ", "ı", "ﬁ", "Привет", "ПРИВЕТ", "Ωμέγα", "שלום", "مرحبا", "नमस्ते",
    "สวัสดี", "你好", "世界", "こんにちは", "カタカナ", "한국어", "𐐀𐐨", "😀", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "🇯🇵",
    ".", ",", "!", "?", "...", "!!", "-", "--", "_", "/", "//", "\\", "\"", "(", ")", "[", "]", "{", "}", "<",
    ">", "<=", "=", "+", "$", "€", "^", "`", "~", "|", "#", "@", "%", "&", "*", ";", ":", "。", "，", "！", "「",
    "～", "‘", "”", "…", "@name", "#tag", "x=1", "f(x)", "a/b", "\ue000", "\U000f0000", "\ufffd", "ꙮ", "ª", "µ",
]


def random_text(rng):
    out = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 21])):
        if rng.random() < 0.75:
            out.append(rng.choice(SNIPPETS))
        else:
            code_point = rng.choice([rng.randrange(0x80), rng.randrange(0x3000),
                                     rng.randrange(0x10000), rng.randrange(0x20000)])
            char = chr(code_point)
            if unicodedata2.category(char) not in ("Cn", "Cs"):
                out.append(char)
        if rng.random() < 0.1:
            out.append(out[-1] * rng.randrange(2, 9) if out else "")
    return "".join(out)


def main():
    count = int(sys.argv[1])
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for name, patterns in STAGES.items():
        stages = [compiled(pattern) for pattern in patterns]
        for _ in range(count):
            text = random_text(rng)
            lengths = ",".join(str(len(piece.encode())) for piece in split(stages, text))
            print(f"{name}\t{text.encode().hex()}\t{lengths}")


if __name__ == "__main__":
    main()
