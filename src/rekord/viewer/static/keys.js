// Shortcuts. Single keys can be switched off, for people who dictate or whose fingers slip.

import { isNarrowed } from "./api.js";
import { openDialog } from "./curation.js";
import { announce, clamp, h, hasModifier } from "./dom.js";
import { clone, cloneForm } from "./parts.js";
import { prefer, setPreference, switchTheme } from "./preferences.js";
import { select } from "./selection.js";
import { go, leaveRecord, state } from "./state.js";

/** @type {mountKeys} */
export function mountKeys(view, focusQuery, views) {
	/** @type {Record<string, () => unknown>} */
	const actions = {
		"/": focusQuery,
		"?": openHelp,
		g: () => openJump(view()),
		m: () => toggle("masks"),
		b: () => toggle("boxes"),
		"[": () => fade(-0.1),
		"]": () => fade(0.1),
		t: () => announce(`${switchTheme()} theme`),
		n: () => view()?.step?.(1),
		p: () => view()?.step?.(-1),
		x() {
			const record = view()?.current();
			if (record) announce(`Record ${record.record} ${select(record.split, record.record) ? "selected" : "not selected"}`);
		},
		...Object.fromEntries(views.map((name, i) => [String(i + 1), () => go({ view: name, record: null, at: 0 })])),
	};

	document.addEventListener("keydown", (event) => {
		const { key, target } = event;
		if (event.defaultPrevented || hasModifier(event) || document.querySelector("dialog[open]")) return;
		if (key === "Escape") {
			if (isTyping(target)) /** @type {HTMLElement} */ (target).blur();
			else if (state().view === "record") go(leaveRecord(isNarrowed()));
			return;
		}
		if (isTyping(target) || !prefer().keys) return;
		if (Object.hasOwn(actions, key)) actions[key]();
		else if (!key.startsWith("Arrow") || document.activeElement !== document.body || !enter(key)) return;
		event.preventDefault();
	});

	function enter(key) {
		const now = view();
		if (now?.step && (key === "ArrowLeft" || key === "ArrowRight")) now.step(key === "ArrowLeft" ? -1 : 1);
		else now?.focus();
		return now !== null;
	}

	function toggle(name) {
		setPreference(name, !prefer()[name]);
		announce(`${name} ${prefer()[name] ? "shown" : "hidden"}`);
	}

	function fade(by) {
		const opacity = Math.round(10 * clamp(prefer().opacity + by, 0, 1)) / 10;
		setPreference("opacity", opacity);
		announce(`opacity ${Math.round(100 * opacity)} %`);
	}
}

function isTyping(target) {
	if (target instanceof HTMLInputElement) return !["checkbox", "radio", "range", "button"].includes(target.type);
	return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** @type {openJump} */
export function openJump(view) {
	if (!view) return;
	const total = view.total();
	const [form, { to }] = cloneForm("jump-form", () => {
		dialog.close();
		view.jump(Number(to.value));
	});
	if (total) to.max = total - 1;
	const dialog = openDialog("Go to a record", form);
	to.focus();
}

export function openHelp() {
	const box = h("input", { type: "checkbox", checked: prefer().keys, onchange: () => setPreference("keys", box.checked) });
	openDialog("Keyboard", clone("help"), h("label.check", box, "Single keys are shortcuts"));
}
