// @ts-check
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

function load() {
	try {
		const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
		const known = Object.entries(DEFAULTS).map(([name, value]) => [name, typeof kept[name] === typeof value ? kept[name] : value]);
		return Object.fromEntries(known);
	} catch {
		return { ...DEFAULTS }; // storage is blocked, or holds something else
	}
}

const preferences = load();
const changes = /** @type {AnEvent<[keyof Preferences]>} */ (makeEvent());
export const onPreference = changes.on;

/** @returns {Readonly<Preferences>} */
export const prefer = () => preferences;

/**
 * @template {keyof Preferences} K
 * @param {K} name
 * @param {Preferences[K]} value
 */
export function setPreference(name, value) {
	preferences[name] = value;
	try {
		localStorage.setItem(KEY, JSON.stringify(preferences));
	} catch {
		// It holds for this page only.
	}
	apply();
	changes.emit(name);
}

export function apply() {
	const root = document.documentElement;
	if (preferences.theme === "auto") delete root.dataset.theme;
	else root.dataset.theme = preferences.theme;
	root.classList.toggle("no-masks", !preferences.masks);
	root.classList.toggle("no-boxes", !preferences.boxes);
	root.style.setProperty("--mask-opacity", String(preferences.opacity));
}

/** Light becomes dark, and dark light. */
export function switchTheme() {
	const isDark =
		preferences.theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : preferences.theme === "dark";
	setPreference("theme", isDark ? "light" : "dark");
	return isDark ? "light" : "dark";
}
