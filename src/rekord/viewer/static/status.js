// @ts-check
// Messages: spoken to screen readers, and shown for a while.

import { h } from "./dom.js";

const spoken = h("div.hidden-visually", { role: "status", "aria-live": "polite" });
const shown = h("div.toast", { hidden: true });
let timer = 0;

export function mountStatus() {
	document.body.append(spoken, shown);
}

/** Tell a screen reader. @param {string} text */
export function announce(text) {
	spoken.textContent = text;
}

/** Tell everybody. @param {string} text */
export function notify(text) {
	announce(text);
	shown.textContent = text;
	shown.hidden = false;
	clearTimeout(timer);
	timer = setTimeout(() => (shown.hidden = true), 5000);
}
