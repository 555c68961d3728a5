// @ts-check
// What the page shows, all of it in the URL: a copied link shows the same, and Back works.

import { makeEvent } from "./dom.js";

const KNOWN = new Set(["view", "split", "record", "where", "sort", "at"]);

/** @type {parseState} */
export function parseState(search) {
	const query = new URLSearchParams(search);
	const filters = new Map();
	const more = {};
	for (const [name, value] of query) {
		if (name.startsWith("in.")) {
			const feature = name.slice(3);
			const filter = filters.get(feature) ?? { feature, values: [] };
			filters.set(feature, { feature, values: [...(filter.values ?? []), value] });
		} else if (name.startsWith("range.")) {
			const [low, high] = value.split("..").map(Number);
			if (!Number.isNaN(low) && !Number.isNaN(high)) filters.set(name.slice(6), { feature: name.slice(6), range: [low, high] });
		} else if (!KNOWN.has(name)) more[name] = value;
	}
	return {
		view: query.get("view") ?? "gallery",
		split: query.get("split"),
		record: wholeNumber(query.get("record")),
		where: query.get("where") ?? "",
		filters: [...filters.values()],
		sort: query.get("sort") ?? "",
		at: wholeNumber(query.get("at")) ?? 0,
		more,
	};
}

/** @param {State} state */
export function formatState(state) {
	const query = new URLSearchParams();
	if (state.view !== "gallery") query.set("view", state.view);
	if (state.split !== null) query.set("split", state.split);
	if (state.record !== null) query.set("record", String(state.record));
	if (state.where) query.set("where", state.where);
	for (const { feature, values, range } of state.filters) {
		for (const value of values ?? []) query.append(`in.${feature}`, value);
		if (range) query.set(`range.${feature}`, range.join(".."));
	}
	if (state.sort) query.set("sort", state.sort);
	if (state.at) query.set("at", String(state.at));
	for (const [name, value] of Object.entries(state.more)) query.set(name, value);
	const text = query.toString();
	return text ? `?${text}` : "?";
}

const wholeNumber = (text) => text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;

/** @type {State} */
let current = parseState(location.search);
let lastView = current.view === "record" ? "gallery" : current.view;
const changes = /** @type {AnEvent<[State, State]>} */ (makeEvent());
export const onState = changes.on;

export const state = () => current;

/** Show something else. A step that Back should return to is pushed; scrolling is not. @type {go} */
export function go(change, { replace = false, quiet = false } = {}) {
	const before = current;
	const next = { ...current, ...change };
	const url = formatState(next);
	if (url === formatState(before)) return;
	setCurrent(next);
	if (replace) history.replaceState(null, "", url);
	else history.pushState(null, "", url);
	if (!quiet) changes.emit(current, before);
}

function setCurrent(next) {
	current = next;
	if (next.view !== "record") lastView = next.view;
}

/** The state that leaves a record, for the view it was opened from. @type {leaveRecord} */
export const leaveRecord = (isNarrowed) => ({ view: lastView, record: null, at: isNarrowed ? current.at : current.record ?? 0 });

/** The link to a changed state. @type {link} */
export const link = (change) => formatState({ ...current, ...change });

/** The link to a change of what one view keeps for itself. @type {linkMore} */
export const linkMore = (change) => link({ more: { ...current.more, ...change } });

/** @type {goMore} */
export function goMore(change, how) {
	go({ more: { ...current.more, ...change } }, how);
}

/** The state that opens one record. @type {recordState} */
export const recordState = (split, record) => ({ view: "record", split, record, at: 0, more: {} });

addEventListener("popstate", () => {
	const before = current;
	setCurrent(parseState(location.search));
	changes.emit(current, before);
});

// Links within the page change the state without loading it again; with a modifier the browser opens a tab.
document.addEventListener("click", (event) => {
	const anchor = event.target instanceof Element ? event.target.closest("a[href^='?']") : null;
	if (!anchor || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
	event.preventDefault();
	go(parseState(/** @type {HTMLAnchorElement} */ (anchor).search));
});
