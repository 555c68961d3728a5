// What the page shows, all of it in the URL: a copied link shows the same, and Back works.

import { hasModifier, makeEvent } from "./dom.js";

const DEFAULTS = { view: "gallery", split: null, record: null, where: "", sort: "", at: 0 };

/** @type {parseState} */
function parseState(search) {
	const query = new URLSearchParams(search);
	/** @type {Map<string, Filter>} */
	const filters = new Map();
	/** @type {Record<string, string>} */
	const more = {};
	for (const [name, value] of query) {
		const feature = name.slice(name.indexOf(".") + 1);
		if (name.startsWith("in.")) {
			filters.set(feature, { feature, values: [...(filters.get(feature)?.values ?? []), value] });
		} else if (name.startsWith("range.")) {
			const [low, high] = value.split("..").map(Number);
			if (!Number.isNaN(low) && !Number.isNaN(high)) filters.set(feature, { feature, range: [low, high] });
		} else if (!Object.hasOwn(DEFAULTS, name)) more[name] = value;
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

const wholeNumber = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);

/** @param {State} state */
function formatState({ filters, more, ...plain }) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(DEFAULTS)) if (plain[name] !== value) query.set(name, plain[name]);
	for (const { feature, values, range } of filters) {
		for (const value of values ?? []) query.append(`in.${feature}`, value);
		if (range) query.set(`range.${feature}`, range.join(".."));
	}
	for (const [name, value] of Object.entries(more)) query.set(name, value);
	return `?${query}`;
}

/** @type {State} */
let current = parseState(location.search);
let lastView = current.view === "record" ? "gallery" : current.view;
const changes = /** @type {AnEvent<[State, State]>} */ (makeEvent());
export const onState = changes.on;

export const state = () => current;

/** @type {go} */
export function go(change, { replace = false, quiet = false } = {}) {
	const before = current;
	const url = link(change);
	if (url === formatState(before)) return;
	setCurrent({ ...current, ...change });
	if (replace) history.replaceState(null, "", url);
	else history.pushState(null, "", url);
	if (!quiet) changes.emit(current, before);
}

function setCurrent(next) {
	current = next;
	if (next.view !== "record") lastView = next.view;
}

/** @type {leaveRecord} */
export const leaveRecord = (isNarrowed) => ({ view: lastView, record: null, at: isNarrowed ? current.at : current.record ?? 0 });

/** @type {link} */
export const link = (change) => formatState({ ...current, ...change });

/** @type {linkMore} */
export const linkMore = (change) => link({ more: { ...current.more, ...change } });

/** @type {goMore} */
export const goMore = (change, how) => go({ more: { ...current.more, ...change } }, how);

/** @type {recordState} */
export const recordState = (split, record) => ({ view: "record", split, record, at: 0, more: {} });

/** @type {setState} */
export const setState = (more) => ({ view: "gallery", record: null, filters: [], where: "", at: 0, more });

addEventListener("popstate", () => {
	const before = current;
	setCurrent(parseState(location.search));
	changes.emit(current, before);
});

// Links within the page change the state without loading it again; with a modifier the browser opens a tab.
document.addEventListener("click", (event) => {
	const anchor = event.target instanceof Element ? event.target.closest("a[href^='?']") : null;
	if (!anchor || event.button !== 0 || hasModifier(event) || event.shiftKey) return;
	event.preventDefault();
	go(parseState(/** @type {HTMLAnchorElement} */ (anchor).search));
});
