"""jinja2 set up as Hugging Face transformers sets it up for chat templates: what ours must equal."""
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 14, 5, 6, 789)


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: the body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


ENVIRONMENT = environment()


@functools.lru_cache(maxsize=4)
def compiled(source):
    return ENVIRONMENT.from_string(source)


def render(source, context):
    """Returns (True, text) or (False, message)."""
    try:
        text = compiled(source).render(**context)
        text.encode()  # a lone surrogate is no text
        return True, text
    except Exception as error:  # whatever the template provoked
        return False, f"{type(error).__name__}: {error}"
