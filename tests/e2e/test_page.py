"""The chat page in a real headless Chromium. Pictures go to $SPILLWAY_PICTURES, if set."""

import os
import pathlib
import tempfile
import unittest

from chromium import Browser
from harness import Server


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.kept = tempfile.TemporaryDirectory()
        cls.pictures = pathlib.Path(os.environ.get("SPILLWAY_PICTURES", cls.kept.name))

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()
        cls.server.wait_idle()
        cls.assertEqual(cls(), cls.server.stop(), 0)

    def ask(self, browser, text):
        answers = browser.run("document.querySelectorAll('.message.assistant').length")
        browser.run("document.getElementById('prompt').focus()")
        browser.type(text)
        browser.press("Enter")
        browser.wait(f"document.querySelectorAll('.message.assistant').length > {answers}")

    def wait_answered(self, browser):
        browser.wait("!document.querySelector('.message.streaming') && "
                     "document.querySelector('.message.assistant:last-of-type .strip b')", 120)

    def fast(self, browser):
        """Greedy and short, so that the test is quick and repeats."""
        browser.run("""localStorage.setItem('spillway.settings', JSON.stringify(
            {temperature: 0, max_output_tokens: 48}))""")

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
            numbers = browser.run("""[...document.querySelectorAll('.message.assistant')].map(
                m => [...m.querySelectorAll('.strip b')].map(
                    b => Number(b.textContent.replaceAll(',', ''))))""")
            first_cached, first_computed = numbers[0]
            second_cached, second_computed = numbers[1]
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


if __name__ == "__main__":
    unittest.main()
