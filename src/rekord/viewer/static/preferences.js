// What a reader prefers, kept in the browser: theme, overlays, opacity, patterns, and whether single keys are shortcuts.

import { makeEvent } from "./dom.js";

/** @type {Preferences} */
const DEFAULTS = {
	theme: "auto",
	masks: true,
	boxes: true,
	opacity: 0.55,
	patterns: matchMedia("(prefers-contrast: more)").matches,
	keys: true,
	tile: 180,
};
const KEY = "rekord.view";

/** @type {recall} */
export function recall(storage, key, otherwise) {
	try {
		return JSON.parse(storage().getItem(key) ?? "null") ?? otherwise;
	} catch {
		return otherwise; // it is blocked, or holds something else
	}
}

/** @type {keep} */
export function keep(storage, key, value) {
	try {
		storage().setItem(key, JSON.stringify(value));
	} catch {
		// It is blocked or full: the value holds for this page only.
	}
}

const kept = recall(() => localStorage, KEY, {});
/** @type {Preferences} */
const preferences = { ...DEFAULTS };
for (const [name, value] of Object.entries(DEFAULTS)) if (typeof kept[name] === typeof value) Reflect.set(preferences, name, kept[name]);
const changes = /** @type {AnEvent<[keyof Preferences]>} */ (makeEvent());
export const onPreference = changes.on;

/** @returns {Readonly<Preferences>} */
export const prefer = () => preferences;

/** @type {setPreference} */
export function setPreference(name, value) {
	preferences[name] = value;
	keep(() => localStorage, KEY, preferences);
	apply();
	changes.emit(name);
}

export function apply() {
	const { theme, masks, boxes, opacity } = preferences;
	const root = document.documentElement;
	if (theme === "auto") delete root.dataset.theme;
	else root.dataset.theme = theme;
	root.classList.toggle("no-masks", !masks);
	root.classList.toggle("no-boxes", !boxes);
	root.style.setProperty("--mask-opacity", String(opacity));
}

export function switchTheme() {
	const { theme } = preferences;
	const isDark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
	const other = isDark ? "light" : "dark";
	setPreference("theme", other);
	return other;
}
