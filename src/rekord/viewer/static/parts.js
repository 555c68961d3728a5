// @ts-check
// Small parts that several views share: badges, notices, copying, links to records, and what a failure looks like.

import { ApiError, getSession } from "./api.js";
import { count, h, plural, printable, show } from "./dom.js";
import { goMore, link, linkMore, recordState } from "./state.js";
import { notify } from "./status.js";

/** The link to a record. @type {recordLink} */
export function recordLink(split, record, text = null, side = undefined) {
	const more = side ? { side: String(side) } : /** @type {Record<string, string>} */ ({});
	const isOnly = getSession().sides[side ?? 0]?.splits.length === 1;
	return h("a", { href: link({ ...recordState(split, record), more, where: "", filters: [], sort: "" }) }, text ?? (isOnly ? count(record) : `${split} ${count(record)}`));
}

/** The state of a record that is not simply fine. @param {string} state */
export function stateBadge(state) {
	const words = { damaged: "damaged", invalid: "does not match the schema", too_large: "too large", pending: "not indexed yet" };
	const text = Reflect.get(words, state);
	return text ? h("span", { class: state === "pending" ? "pill" : "pill alert" }, text) : null;
}

/** An error of the server: what happened, and what to do. @type {errorPanel} */
export function errorPanel(error, title = "This cannot be shown") {
	if (error instanceof ApiError) return faultPanel(error.told, title);
	return h("div.notice", { role: "alert" }, h("b", "No answer from the server."), h("p", "It may have been stopped. Run rekord view again."));
}

/** @type {faultPanel} */
export function faultPanel(told, title = "This cannot be shown") {
	const facts = [
		["where", told.location && Object.entries(told.location).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === "number" ? count(value) : value}`).join(", ")],
		["expected", told.expected],
		["found", told.found],
		["likely", told.likely],
	];
	return h(
		"div.notice",
		{ role: "alert" },
		h("b", told.code ? `${told.code}: ` : `${title}: `),
		printable(told.what),
		h("dl", facts.filter(([, value]) => value).map(([name, value]) => [h("dt", name), h("dd", printable(value))]).flat()),
		told.do ? doLine(told.do) : null,
	);
}

/** What to do, with a button that copies it. @param {string} text */
export function doLine(text) {
	const isCommand = /^(rekord|pip|python|rm|rk\.|import) ?/.test(text); // else advice, which nobody pastes
	return h("p.do", h("span.soft", "do "), isCommand ? [h("code", printable(text)), " ", copyButton(text, "Copy what to do")] : printable(text));
}

/** @type {copyButton} */
export function copyButton(text, label = "Copy") {
	return h(
		"button.small-button",
		{
			"aria-label": label,
			onclick: async () => {
				const value = typeof text === "string" ? text : text();
				try {
					await navigator.clipboard.writeText(value);
				} catch {
					copyByCommand(value);
				}
				notify("Copied.");
			},
		},
		"Copy",
	);
}

// Where the page is not allowed to use the clipboard, such as in a frame of a notebook.
function copyByCommand(text) {
	const area = h("textarea.hidden-visually", { value: text });
	document.body.append(area);
	area.select();
	document.execCommand("copy");
	area.remove();
}

/** A view below its heading. @type {mountTitled} */
export function mountTitled(host, title, ...children) {
	const heading = h("h2.view-title", { tabindex: "-1" }, title);
	show(host, heading, ...children);
	return { focus: () => heading.focus(), current: () => null, jump() {}, total: () => null };
}

/** What an answer becomes, or why there is none. @type {showAnswer} */
export async function showAnswer(host, until, request, draw, title) {
	try {
		const answer = await request;
		if (!until.aborted) draw(answer);
	} catch (error) {
		if (!until.aborted) show(host, errorPanel(error, title));
	}
}

/** A part that scrolls by itself, also by keyboard. @type {makeScrollable} */
export const makeScrollable = (label, child, style = "") => h(`div.scroll-x${style}`, { tabindex: "0", role: "region", "aria-label": label }, child);

/** The options of a select. @type {makeOptions} */
export const makeOptions = (names) => names.map((name) => h("option", { value: name }, printable(name, 60)));

export const PAIRS = 100;

/** Pairs of records, of which one is chosen. @type {makePairList} */
export function makePairList(items, chosen, first, total) {
	const list = items.map((item, i) => h("li", h("a", { href: linkMore({ pair: String(i) }), "aria-current": i === chosen ? "true" : null }, item)));
	return h("div", h("ul.pair-list", list), pager(first, PAIRS, total, (to) => goMore({ first: String(to), pair: "0" })));
}

/** Nothing is to be seen. @type {emptyState} */
export const emptyState = (title, ...children) => h("div.empty", h("h2", title), ...children);

/** A table of which the parts are given. @type {makeTable} */
export function makeTable(caption, heads, rows, style = "") {
	return h(
		"table",
		{ class: style },
		h("caption.hidden-visually", caption),
		h("thead", h("tr", heads.map((head) => h("th", { scope: "col" }, head)))),
		h("tbody", rows.map((row) => h("tr", row.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: typeof cell === "number" ? "n" : null }, typeof cell === "number" ? count(cell) : cell)))))),
	);
}

/** Buttons to earlier and later parts of a long list. @type {pager} */
export function pager(first, size, total, show) {
	if (total <= size && first === 0) return null;
	return h(
		"nav.pager",
		{ "aria-label": "Pages" },
		h("button", { disabled: first === 0, onclick: () => show(Math.max(first - size, 0)) }, "Previous"),
		h("span", `${count(total ? first + 1 : 0)}–${count(Math.min(first + size, total))} of ${plural(total, "entry", "entries")}`),
		h("button", { disabled: first + size >= total, onclick: () => show(first + size) }, "Next"),
	);
}
