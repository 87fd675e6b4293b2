"""The chat page in a real headless Chromium. Pictures go to $SPILLWAY_PICTURES, if set."""

import json
import os
import pathlib
import random
import tempfile
import time
import unittest

from chromium import Browser
from harness import Server


def receipts_shown(browser):
    """For each answer: where the tokens of its prompt came from, as its strip says."""
    return browser.run("""[...document.querySelectorAll('.message.assistant')].map(
        m => Object.fromEntries([...m.querySelectorAll('.strip .count')].map(
            c => [c.dataset.from,
                  Number(c.querySelector('b').textContent.replaceAll(',', ''))])))""")


class Driver(unittest.TestCase):
    """What the tests do to the page."""

    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.pictures = pathlib.Path(os.environ.get("SPILLWAY_PICTURES", cls.kept.name))

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def ask(self, browser, text):
        answers = browser.run("document.querySelectorAll('.message.assistant').length")
        browser.run("document.getElementById('prompt').focus()")
        browser.type(text)
        browser.press("Enter")
        browser.wait(f"document.querySelectorAll('.message.assistant').length > {answers}")

    def wait_answered(self, browser):
        browser.wait("!document.querySelector('.message.streaming') && "
                     "document.querySelector('.message.assistant:last-of-type .strip b')", 120)

    def fast(self, browser, tokens=48):
        """Greedy and short, so that the test is quick and repeats."""
        browser.run(f"""localStorage.setItem('spillway.settings', JSON.stringify(
            {{temperature: 0, max_output_tokens: {tokens}}}))""")


class Page(Driver):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.server.wait_idle()
        cls.assertEqual(cls(), cls.server.stop(), 0)

    def test_two_turns_show_that_the_first_ones_pages_were_reused(self):
        with Browser() as browser:
            browser.open(self.server.url + "/")
            self.fast(browser)
            browser.open(self.server.url + "/")
            browser.wait("document.getElementById('model').textContent.includes('SmolLM2')")
            browser.picture(self.pictures / "page-empty.png")
            self.ask(browser, "Write a Python function that reverses a list, with a short list "
                              "of two remarks.")
            self.wait_answered(browser)
            self.ask(browser, "What is a spillway?")
            self.wait_answered(browser)
            browser.picture(self.pictures / "page-light.png")
            first, second = receipts_shown(browser)
            self.assertEqual(set(first), {"device", "computed"})  # there is no other tier
            self.assertEqual(set(second), {"device", "computed"})
            first_cached, first_computed = first["device"], first["computed"]
            second_cached, second_computed = second["device"], second["computed"]
            self.assertGreater(second_cached, first_cached)
            self.assertGreaterEqual(second_cached, (first_cached + first_computed) // 16 * 16)
            self.assertGreater(second_computed, 0)
            self.assertIn("of 512 MiB", browser.run(
                "document.querySelector('.pool-text').textContent"))
            # The conversation is there after a reload.
            browser.open(self.server.url + "/")
            self.assertEqual(browser.run(
                "document.querySelectorAll('.message.assistant').length"), 2)
            self.assertEqual(browser.problems, [])

    def test_escape_stops_an_answer_and_frees_its_pages(self):
        with Browser() as browser:
            browser.open(self.server.url + "/")
            browser.run("""localStorage.setItem('spillway.settings', JSON.stringify(
                {temperature: 1, max_output_tokens: 3000, instructions: 'You never stop talking.'}))""")
            browser.open(self.server.url + "/")
            self.ask(browser, "Tell me everything about the sea, at great length.")
            browser.wait("(document.querySelector('.message.streaming .text')?.textContent ?? '')"
                         ".length > 20")
            self.assertEqual(browser.run("document.getElementById('send').ariaLabel"), "Stop")
            browser.press("Escape")
            browser.wait("!document.querySelector('.message.streaming')")
            self.server.wait_idle(10)
            text = browser.run("document.querySelector('.message.assistant .text').textContent")
            self.assertGreater(len(text), 20)
            # And it goes on after that.
            self.fast(browser)
            browser.open(self.server.url + "/")
            self.ask(browser, "Hello")
            self.wait_answered(browser)

    def test_two_tabs_keep_each_others_conversations(self):
        def titles(tab):
            return tab.run("[...document.querySelectorAll('.chat-item .name')]"
                           ".map(n => n.textContent)")

        def messages(tab):
            return tab.run("document.querySelectorAll('.message').length")
        with Browser() as first:
            first.open(self.server.url + "/")
            self.fast(first)
            first.open(self.server.url + "/")
            self.ask(first, "Name a river.")
            self.wait_answered(first)
            second = first.new_tab()
            second.open(self.server.url + "/")
            self.assertEqual(titles(second), ["Name a river."])
            second.run("document.getElementById('new-chat').click()")
            self.ask(second, "Name a tree.")
            self.wait_answered(second)
            # The first tab sees it without a reload, stays where it is, and goes on.
            first.wait("document.querySelectorAll('.chat-item').length === 2")
            self.assertEqual(first.run("document.getElementById('chat-title').textContent"),
                             "Name a river.")
            self.ask(first, "Name another river.")
            self.wait_answered(first)
            for tab in (first, second):
                tab.open(self.server.url + "/")
                self.assertEqual(titles(tab), ["Name a tree.", "Name a river."])
                tab.run("document.querySelectorAll('.chat-item .name')[1].click()")
                self.assertEqual(messages(tab), 4)
            # What one deletes does not come back with what the other keeps.
            second.run("document.querySelectorAll('.chat-item .remove')[0].click()")
            first.wait("document.querySelectorAll('.chat-item').length === 1")
            self.ask(first, "And one more river.")
            self.wait_answered(first)
            second.wait("document.querySelectorAll('.message').length === 6")
            first.open(self.server.url + "/")
            self.assertEqual(titles(first), ["Name a river."])
            self.assertEqual(first.problems + second.problems, [])

    def test_escape_and_cancel_leave_the_settings_as_they_were(self):
        kept = "JSON.parse(localStorage.getItem('spillway.settings')).temperature"
        change = """document.getElementById('open-settings').click();
            document.querySelector('#settings [name=temperature]').value = '0.5'"""
        is_closed = "!document.getElementById('settings').open"
        with Browser() as browser:
            browser.open(self.server.url + "/")
            self.fast(browser)
            browser.open(self.server.url + "/")
            browser.run(change)
            browser.press("Escape")
            browser.wait(is_closed)
            self.assertEqual(browser.run(kept), 0)
            browser.run(change)
            browser.picture(self.pictures / "page-settings.png")
            browser.run("document.getElementById('cancel-settings').click()")
            browser.wait(is_closed)
            self.assertEqual(browser.run(kept), 0)
            # Opened again it shows what holds, and Enter in a field means Done.
            browser.run("document.getElementById('open-settings').click()")
            self.assertEqual(browser.run(
                "document.querySelector('#settings [name=temperature]').value"), "0")
            browser.run("""document.querySelector('#settings [name=temperature]').value = '0.5';
                document.querySelector('#settings [name=temperature]').focus()""")
            browser.press("Enter")
            browser.wait(is_closed)
            self.assertEqual(browser.run(kept), 0.5)

    def test_phone_width_and_dark_theme(self):
        with Browser(width=390, height=780, dark=True, mobile=True) as browser:
            browser.open(self.server.url + "/")
            self.fast(browser)
            browser.open(self.server.url + "/")
            self.assertEqual(browser.run("document.documentElement.dataset.theme"), "dark")
            self.ask(browser, "What is a river?")
            self.wait_answered(browser)
            browser.picture(self.pictures / "page-phone.png")
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
            browser.run("document.getElementById('open-sidebar').click()")
            browser.wait("getComputedStyle(document.getElementById('sidebar')).visibility === "
                         "'visible'")
            browser.run("new Promise(done => setTimeout(done, 300))")
            browser.picture(self.pictures / "page-phone-menu.png")
            browser.press("Escape")
            browser.run("document.getElementById('open-settings').click()")
            browser.picture(self.pictures / "page-phone-settings.png")

    def test_markup_in_an_answer_stays_text(self):
        with Browser() as browser:
            browser.open(self.server.url + "/")
            rendered = browser.run("""(async () => {
                const {renderMarkdown} = await import('/markdown.js');
                const box = document.createElement('div');
                box.append(renderMarkdown(
                    '# T\\n<img src=x onerror=alert(1)> **b** `c<b>` [l](javascript:alert(1)) '
                    + '[ok](https://a.example)\\n\\n- one\\n- two\\n  - inner\\n\\n'
                    + '```py\\nprint("<b>")\\n```\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |'));
                return box.innerHTML;
            })()""")
            self.assertNotIn("<img", rendered)
            self.assertNotIn("javascript:", rendered.replace("(javascript:alert(1))", ""))
            for part in ("<h1>T</h1>", "<strong>b</strong>", "<code>c&lt;b&gt;</code>",
                         'href="https://a.example"', "<li>one</li>", "<li>inner</li>",
                         "<td>2</td>", 'print("&lt;b&gt;")'):
                self.assertIn(part, rendered)


# Keeps what each answer's `usage` says, beside the page's own use of it.
KEEP_USAGE = """window.usages = [];
    window.WebSocket = class extends WebSocket {
        constructor(...parts) {
            super(...parts);
            this.addEventListener('message', (event) => {
                const usage = JSON.parse(event.data).response?.usage;
                if (usage) usages.push(usage);
            });
        }
    };"""


SCROLL_TO_END = "document.getElementById('messages').scrollTop = 1e6"


def long_prompt(seed):
    chosen = random.Random(seed)
    words = "river stone lantern copper harbour signal orchard winter engine paper market violin"
    return (f"{seed.capitalize()} words: " +
            " ".join(chosen.choice(words.split()) for _ in range(1900)) + ". Which was first?")


class Tiers(Driver):
    def test_two_long_prompts_alternate_and_the_page_shows_what_comes_up_from_nvme(self):
        with tempfile.TemporaryDirectory() as store, Server(
                "--kv-nvme-dir", store, "--kv-nvme-size", "512M",
                device="64M") as server, Browser() as browser:
            self.start(browser, server)
            last = None
            for name in ("first", "second", "first", "second"):
                last = self.ask_anew(browser, server, name)
            self.assertGreater(last["nvme"], 500)
            self.ask_anew(browser, server, "third")
            # Hardly any of it is on the device, whose pages differ from it early: NVMe's do not.
            last = self.ask_anew(browser, server, "first")
            self.assertGreater(last["nvme"], 1500)
            self.check_picture(browser, server)
            self.take_pictures(browser)
            self.assertEqual(browser.problems, [])

    def start(self, browser, server):
        browser.run_first(KEEP_USAGE)
        browser.open(server.url + "/")
        self.fast(browser, tokens=16)
        browser.open(server.url + "/")
        browser.wait("!document.getElementById('tiers').hidden")
        # The most pages that the arrows have shown at once.
        browser.run("""window.seen = {up: 0, down: 0};
            new MutationObserver(() => {
                for (const way of ['up', 'down']) {
                    const shown = document.querySelector(`.tier .${way}`)?.dataset.pages;
                    seen[way] = Math.max(seen[way], Number(shown ?? 0));
                }
            }).observe(document.getElementById('tiers'), {childList: true, subtree: true})""")

    def ask_anew(self, browser, server, name):
        """In a new conversation. Returns where the prompt's tokens came from."""
        browser.run("document.getElementById('new-chat').click()")
        self.ask(browser, long_prompt(name))
        self.wait_answered(browser)
        tokens = self.check_receipt(browser)
        self.wait_written(server)
        return tokens

    def check_receipt(self, browser):
        """The last answer's strip says what its usage says."""
        receipt = browser.run("usages.at(-1)")["spillway"]
        shown = receipts_shown(browser)[-1]
        self.assertEqual({"host": 0, "nvme": 0, **shown}, receipt["tokens"])
        strip = browser.run("[...document.querySelectorAll('.strip')].at(-1).textContent")
        self.assertEqual("for pages" in strip, receipt["wait_ms"]["load"] > 0)
        divergence = receipt["first_divergence"]
        self.assertEqual("differs from what is cached" in strip, divergence is not None)
        if divergence is not None:
            self.assertIn(f"at token {divergence:,}", strip)
            self.assertGreaterEqual(divergence, receipt["matched"])
        return receipt["tokens"]

    def wait_written(self, server):
        """Until all that is kept went down: it is the next prompt's to push it off the device."""
        end = time.monotonic() + 30
        before = None
        while True:
            tiers = server.wait_idle()["tiers"]
            if tiers["paths_waiting"] == 0 and tiers["nvme"]["writes"] == before:
                return
            before = tiers["nvme"]["writes"]
            self.assertLess(time.monotonic(), end, tiers)
            time.sleep(0.2)

    def check_picture(self, browser, server):
        cell = "document.querySelector('#tiers [data-tier=nvme]')"
        nvme = server.cache()["tiers"]["nvme"]
        self.assertGreater(nvme["pages"], 150)
        self.assertGreater(nvme["reads"], 30)
        browser.wait(f"{cell}.querySelector('.tier-pages').textContent === "
                     f"'{nvme['pages']:,} pages'", 10)
        self.assertRegex(browser.run(f"{cell}.textContent"), "MiB of 51[012] MiB")
        self.assertGreater(browser.run("seen.up"), 30)
        self.assertGreater(browser.run("seen.down"), 30)
        self.assertEqual(browser.run("[...document.querySelectorAll('.tier')]"
                                     ".map(t => t.dataset.tier)"), ["device", "nvme"])
        self.assertRegex(browser.run("document.querySelector('.hit-share').textContent"),
                         r"^[1-9]\d?%$")
        self.assertEqual(browser.run("document.querySelector('.tier-warnings').textContent"), "")
        self.assertTrue(browser.run("fetch(document.querySelector('#tiers a').href.replace('=5', "
                                    "'=0.1')).then(r => r.json()).then(t => t.traceEvents.length)"))
        self.check_moves_and_warnings(browser)
        # The gauge opens and closes it, from the keyboard too, and that is remembered.
        browser.run("document.getElementById('pool').focus()")
        browser.press("Enter")
        browser.wait("document.getElementById('tiers').hidden")
        self.assertEqual(browser.run("document.getElementById('pool').ariaExpanded"), "false")
        browser.open(browser.run("location.href"))
        browser.wait("document.querySelector('.tier')")
        self.assertTrue(browser.run("document.getElementById('tiers').hidden"))
        browser.run("document.getElementById('pool').click()")
        browser.open(browser.run("location.href"))
        browser.wait("!document.getElementById('tiers').hidden")
        # It takes room, and the end of the conversation stays in view.
        browser.wait("""(({scrollHeight, scrollTop, clientHeight}) =>
            scrollHeight - scrollTop - clientHeight < 2)(document.getElementById('messages'))""", 5)

    def check_moves_and_warnings(self, browser):
        """A second view on the same page, given what a troubled server of three tiers would say."""
        seen = browser.run("""(async () => {
            const {TiersView} = await import('/tiers.js');
            const state = await (await fetch('/debug/cache')).json();
            const picture = document.getElementById('tiers').cloneNode(true);
            picture.querySelector('.tier-cells').replaceChildren();
            document.getElementById('tiers').after(picture);
            window.troubled = picture;
            const view = new TiersView(document.getElementById('pool').cloneNode(true), picture);
            state.tiers.host = {...state.tiers.nvme, capacity_bytes: 2 ** 27};
            const quiet = view.render(structuredClone(state));
            state.tiers.nvme.reads += 12;
            state.tiers.nvme.writes += 34;
            state.tiers.nvme.set_aside = state.tiers.nvme.read_only = true;
            const moved = view.render(structuredClone(state));
            return {quiet, moved, warnings: picture.querySelector('.tier-warnings').textContent,
                    tiers: [...picture.querySelectorAll('.tier')].map(t => t.dataset.tier),
                    arrows: [...picture.querySelectorAll('[data-pages]')].map(
                        a => Number(a.dataset.pages))};
        })()""")
        self.assertEqual(seen["tiers"], ["device", "host", "nvme"])
        self.assertEqual(seen["arrows"], [0, 0, 12, 34])
        self.assertEqual((seen["quiet"], seen["moved"]), (False, True))
        self.assertIn("NVMe is set aside", seen["warnings"])
        self.assertIn("NVMe is read-only", seen["warnings"])
        self.check_strip_of_all_tiers(browser)
        animation = "getComputedStyle(troubled.querySelector('.moving .sign')).animationName"
        self.assertEqual(browser.run(animation), "rise")
        browser.picture(self.pictures / "page-tiers-troubled.png")
        browser.show_as(dark=True, reduced_motion=True)
        browser.resize(390, 780, mobile=True)
        self.assertEqual(browser.run(animation), "none")
        browser.run(SCROLL_TO_END)
        browser.picture(self.pictures / "page-tiers-troubled-phone.png")
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
        browser.resize(1280, 860)
        browser.show_as(dark=False)
        browser.run("troubled.remove()")

    def check_strip_of_all_tiers(self, browser):
        shown = browser.run("""(async () => {
            const {renderStrip} = await import('/strip.js');
            const strip = [...document.querySelectorAll('.strip')].at(-1);
            renderStrip(strip, {prompt: 3000, cached: 2600, output: 1, ttftMs: 90, receipt: {
                tokens: {device: 800, host: 600, nvme: 1200, computed: 400},
                wait_ms: {queue: 0, load: 1234}, first_divergence: 2605}});
            const widths = [...strip.querySelectorAll('.bar i')].map(i => i.offsetWidth);
            const backgrounds = [...strip.querySelectorAll('.bar i')].map(i => {
                const {backgroundImage, backgroundColor} = getComputedStyle(i);
                return backgroundImage + backgroundColor;
            });
            document.getElementById('messages').scrollTop = 1e6;
            return {text: strip.textContent, widths, kinds: new Set(backgrounds).size};
        })()""")
        self.assertIn("800 from device600 from host1,200 from NVMe400 computed", shown["text"])
        self.assertIn("waited 1.2 s for pages", shown["text"])
        self.assertIn("differs from what is cached at token 2,605", shown["text"])
        self.assertEqual(shown["kinds"], 4)  # told apart by pattern, not by colour alone
        device, host, nvme, computed = shown["widths"]
        self.assertTrue(nvme > device > host > computed, shown["widths"])

    def take_pictures(self, browser):
        settle = "new Promise(done => setTimeout(done, 500))"
        browser.run(settle)
        browser.picture(self.pictures / "page-tiers-light.png")
        browser.show_as(dark=True)
        browser.run(settle)
        browser.picture(self.pictures / "page-tiers-dark.png")
        browser.resize(390, 780, mobile=True)
        browser.run(settle)
        browser.run(SCROLL_TO_END)
        browser.picture(self.pictures / "page-tiers-phone.png")
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
        self.assertLessEqual(browser.run("document.getElementById('tiers').scrollWidth"), 390)



class LockedPage(Driver):
    """A server with an API key: the browser asks for it, and so does the page for what it sends."""

    def test_the_page_works_with_its_key_and_says_so_without(self):
        with Server("--api-key", "sesame", wait=False) as server, Browser() as browser:
            server.wait_ready()
            self.assertEqual(server.get("/")[0], 401)
            browser.sign_in("sesame")
            browser.open(server.url + "/")
            settings = "localStorage.setItem('spillway.settings', JSON.stringify({}))"
            for key, says in (("wrong", "asks for an API key"), ("sesame", "SmolLM2")):
                browser.run(settings.replace(
                    "{}", f"{{temperature: 0, max_output_tokens: 8, api_key: '{key}'}}"))
                browser.open(server.url + "/")
                browser.wait(f"document.getElementById('model').textContent.includes('{says}')")
            self.ask(browser, "Hello")
            self.wait_answered(browser)
            self.assertEqual(browser.run("document.querySelectorAll('.message .note').length"), 0)
            self.assertGreater(receipts_shown(browser)[0]["computed"], 0)


class WaitingPage(Driver):
    def test_the_page_says_what_an_answer_waits_for(self):
        with Server("--max-num-seqs", "1") as server, Browser() as browser:
            browser.open(server.url + "/")
            # Somebody else has the only place, for as long as it takes.
            other = server.connect()
            other.request("POST", "/v1/completions", json.dumps(
                {"prompt": "The sea", "max_tokens": 7000, "ignore_eos": True, "stream": True}),
                {"content-type": "application/json"})
            stream = other.getresponse()
            stream.read(20)
            self.ask(browser, "And what about rivers?")
            browser.wait("document.querySelector('.strip .waiting')?.dataset.state === 'queued'", 10)
            self.assertEqual(browser.run("document.querySelector('.strip .waiting').textContent"),
                             "waiting: next in the queue")
            browser.picture(self.pictures / "page-waiting.png")
            said = browser.run("""(async () => {
                const {renderStrip} = await import('/strip.js');
                const strip = document.createElement('div');
                return [{state: 'queued', before: 3},
                        {state: 'loading', loading: {nvme: 1024, host: 0}},
                        {state: 'computing', prompt_tokens: 2000, loading: {nvme: 0, host: 0},
                         tokens: {device: 16, host: 0, nvme: 64, computed: 1000}}].map(waiting => {
                    renderStrip(strip, {waiting});
                    return strip.textContent;
                });
            })()""")
            self.assertEqual(said, ["waiting: 3 before it", "loading 1,024 tokens from NVMe",
                                    "computing: 1,080 of 2,000 prompt tokens"])
            browser.press("Escape")
            stream.close()
            other.close()
            server.wait_idle(10)
            self.assertEqual(browser.problems, [])


if __name__ == "__main__":
    unittest.main()
