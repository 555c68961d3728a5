"""What the page of the viewer does without a request, in a headless browser: `viewer_page.py ACTION URL REPEATS`.

Prints a list of seconds. The time of an action is that of its script, style and layout: a frame waits for the screen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys

from playwright.sync_api import expect, sync_playwright

_TIMEOUT_MS = 120_000
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

_ACTIONS = {
    # Switching all masks off and on, and hiding one class, which draws the mask again.
    "mask": ("?view=record&record=0", ".legend li", """(repeats) => Array.from({length: repeats}, () => {
        const begin = performance.now();
        document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "m", bubbles: true}));
        document.querySelector(".stage canvas.mask").getBoundingClientRect();
        return performance.now() - begin;
    })"""),
    "class": ("?view=record&record=0", ".legend li", """(repeats) => Array.from({length: repeats}, () => {
        const begin = performance.now();
        document.querySelector(".legend-button").click();
        document.body.getBoundingClientRect();
        return performance.now() - begin;
    })"""),
    "brush": ("?view=table", "[data-column=width] .brush", """async (repeats) => {
        const area = document.querySelector("[data-column=width] .brush");
        const box = area.getBoundingClientRect();
        const send = (name, share) => area.dispatchEvent(new PointerEvent(name, {
            pointerId: 1, bubbles: true, clientX: box.left + share * box.width, clientY: box.top + 5,
        }));
        area.setPointerCapture = () => {};
        send("pointerenter", 0.1);
        await new Promise((done) => setTimeout(done, 3000)); // the counts come once
        send("pointerdown", 0.1);
        const taken = [];
        for (let i = 1; i <= repeats; i += 1) {
            taken.push(await new Promise((done) => {
                let begin;
                requestAnimationFrame(() => (begin = performance.now()));
                send("pointermove", 0.1 + 0.8 * i / repeats);
                requestAnimationFrame(() => {
                    document.body.getBoundingClientRect();
                    done(performance.now() - begin);
                });
            }));
        }
        return taken;
    }"""),
}  # fmt: skip


def main() -> None:
    """Print the timings of one action."""
    action, url, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    query, shown, script = _ACTIONS[action]
    chromium = os.environ.get("REKORD_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if chromium is None:
        sys.exit("no Chromium found")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(url + query)
        expect(page.locator(shown).first).to_be_visible(timeout=_TIMEOUT_MS)
        taken = page.evaluate(script, repeats + 1)[1:]
        browser.close()
    print(json.dumps([milliseconds / 1000 for milliseconds in taken]))


if __name__ == "__main__":
    main()
