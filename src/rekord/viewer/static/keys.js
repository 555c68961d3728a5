// @ts-check
// Shortcuts. Single keys can be switched off, for people who dictate or whose fingers slip.

import { isNarrowed } from "./api.js";
import { h, show } from "./dom.js";
import { openDialog } from "./curation.js";
import { prefer, setPreference, switchTheme } from "./preferences.js";
import { select } from "./selection.js";
import { go, leaveRecord, state } from "./state.js";
import { announce } from "./status.js";

const HELP = [
	["← → ↑ ↓", "move between records, or pixels of an image"],
	["Enter", "open the record"],
	["Esc", "back to the records, or close a dialog"],
	["n  p", "next and previous record"],
	["/", "query box"],
	["g", "go to a record by its number"],
	["x", "select the record"],
	["m  b", "masks and boxes on or off"],
	["[  ]", "opacity of masks"],
	["+  −  0", "zoom an image"],
	["t", "light or dark"],
	["1 – 8", "views"],
	["?", "this list"],
];

/** @type {mountKeys} */
export function mountKeys(view, focusQuery, views) {
	document.addEventListener("keydown", (event) => {
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
		const target = event.target;
		if (event.key === "Escape") {
			if (isTyping(target)) /** @type {HTMLElement} */ (target).blur();
			else if (state().view === "record") go(leaveRecord(isNarrowed()));
			return;
		}
		if (isTyping(target) || !prefer().keys) return;
		if (act(event.key)) event.preventDefault();
	});

	function act(key) {
		const now = view();
		switch (key) {
			case "/": focusQuery(); return true;
			case "?": openHelp(); return true;
			case "g": openJump(now); return true;
			case "m": toggle("masks"); return true;
			case "b": toggle("boxes"); return true;
			case "[": fade(-0.1); return true;
			case "]": fade(0.1); return true;
			case "t": announce(`${switchTheme()} theme`); return true;
			case "n": now?.step?.(1); return true;
			case "p": now?.step?.(-1); return true;
			case "x": {
				const record = now?.current();
				if (record) announce(`Record ${record.record} ${select(record.split, record.record) ? "selected" : "not selected"}`);
				return true;
			}
			case "ArrowLeft": case "ArrowRight": case "ArrowUp": case "ArrowDown":
				if (document.activeElement !== document.body || !now) return false;
				if (now.step && key === "ArrowLeft") now.step(-1);
				else if (now.step && key === "ArrowRight") now.step(1);
				else now.focus();
				return true;
			default: {
				const name = views[Number(key) - 1];
				if (name) go({ view: name, record: null, at: 0 });
				return Boolean(name);
			}
		}
	}

	function toggle(name) {
		setPreference(name, !prefer()[name]);
		announce(`${name} ${prefer()[name] ? "shown" : "hidden"}`);
	}

	function fade(by) {
		const opacity = Math.round(10 * Math.max(0, Math.min(prefer().opacity + by, 1))) / 10;
		setPreference("opacity", opacity);
		announce(`opacity ${Math.round(100 * opacity)} %`);
	}
}

function isTyping(target) {
	if (target instanceof HTMLInputElement) return !["checkbox", "radio", "range", "button"].includes(target.type);
	return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** @param {View | null} view */
export function openJump(view) {
	if (!view) return;
	const total = view.total();
	const input = h("input", { type: "number", min: 0, max: total ? total - 1 : null, id: "jump-to", required: true, inputmode: "numeric" });
	const form = h("form", { onsubmit: (event) => {
		event.preventDefault();
		dialog.close();
		view.jump(Number(input.value));
	} }, h("p.fields", h("label", { for: "jump-to" }, "Record number, from 0"), input), h("p.buttons", h("button.primary", { type: "submit" }, "Go")));
	const dialog = openDialog("Go to a record", form);
	input.focus();
}

export function openHelp() {
	const box = h("input", { type: "checkbox", checked: prefer().keys, onchange: () => setPreference("keys", box.checked) });
	const list = h("dl.keys");
	show(list, HELP.flatMap(([key, text]) => [h("dt", key.split(/\s+/).map((one) => (one === "–" ? one : h("kbd", one)))), h("dd", text)]));
	openDialog("Keyboard", list, h("label.check", box, "Single keys are shortcuts"));
}
