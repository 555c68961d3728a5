// Small parts that several views share: badges, notices, copying, links to records, and what a failure looks like.

import { ApiError, getSession } from "./api.js";
import { bdi, count, h, notify, part, plural, printable, show } from "./dom.js";
import { classColour } from "./images.js";
import { isSelected, select } from "./selection.js";
import { goMore, link, linkMore, recordState } from "./state.js";

/** @type {recordLink} */
export function recordLink(split, record, text = null, side = 0) {
	const isOnly = getSession().sides[side]?.splits.length === 1;
	const href = link({ ...recordState(split, record), more: sideMore(side), where: "", filters: [], sort: "" });
	return h("a", { href }, text ?? (isOnly ? count(record) : `${split} ${count(record)}`));
}

/** @type {sideMore} */
export const sideMore = (side) => (side ? { side: String(side) } : {});

/** @type {selectBox} */
export function selectBox(split, record, props = {}) {
	const box = h("input", { type: "checkbox", checked: isSelected(split, record), onchange: () => select(split, record, box.checked), ...props });
	return box;
}

const STATES = { damaged: "damaged", invalid: "does not match the schema", too_large: "too large", pending: "not indexed yet" };

/** @type {stateBadge} */
export function stateBadge(state) {
	const text = Reflect.get(STATES, state);
	return text ? h("span", { class: state === "pending" ? "pill" : "pill alert" }, text) : null;
}

/** @type {findingBadge} */
export const findingBadge = (findings) => (findings?.length ? h("span.pill.alert", plural(findings.length, "finding")) : null);

/** @type {classDot} */
export const classDot = (code) => h("i.dot", { "aria-hidden": "true", style: { background: classColour(Number(code) + 1) } });

/** @type {errorPanel} */
export function errorPanel(error, title = "This cannot be shown") {
	if (error instanceof ApiError) return faultPanel(error.told, title);
	return h("div.notice", { role: "alert" }, clone("no-answer"));
}

/** @type {faultPanel} */
export function faultPanel(told, title = "This cannot be shown") {
	const where = Object.entries(told.location ?? {}).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === "number" ? count(value) : value}`);
	return h("div.notice",
		{ role: "alert" },
		h("b", told.code ? `${told.code}: ` : `${title}: `),
		printable(told.what),
		listFacts({ where: where.join(", "), expected: told.expected, found: told.found, likely: told.likely }),
		doLine(told.do),
	);
}

/** @type {listFacts} */
export function listFacts(facts) {
	const known = Object.entries(facts).filter(([, value]) => value);
	return known.length ? h("dl", known.flatMap(([name, value]) => [h("dt", name), h("dd", printable(value))])) : null;
}

/** @type {doLine} */
export function doLine(text) {
	if (!text) return null;
	const isCommand = /^(rekord|pip|python|rm|rk\.|import) ?/.test(text); // else advice, which nobody pastes
	return h("p.do", h("span.soft", "do "), isCommand ? [h("code", printable(text)), " ", copyButton(text, "Copy what to do")] : printable(text));
}

/** @type {copyButton} */
export function copyButton(text, label = "Copy") {
	const onclick = async () => {
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			copyByCommand(text);
		}
		notify("Copied.");
	};
	return h("button.small-button", { label, onclick }, "Copy");
}

// Where the page is not allowed to use the clipboard, such as in a frame of a notebook.
function copyByCommand(value) {
	const area = h("textarea.hidden-visually", { value });
	document.body.append(area);
	area.select();
	document.execCommand("copy");
	area.remove();
}

/** @type {mountTitled} */
export function mountTitled(host, title, ...children) {
	const heading = h("h2.view-title", { tabindex: "-1" }, title);
	show(host, heading, ...children);
	return { focus: () => heading.focus(), current: () => null, jump() {}, total: () => null };
}

/** @type {showAnswer} */
export async function showAnswer(host, until, request, draw, title) {
	try {
		const answer = await request;
		if (!until.aborted) draw(answer);
	} catch (error) {
		if (!until.aborted) show(host, errorPanel(error, title));
	}
}

/** @type {makeScrollable} */
export const makeScrollable = (label, child, style = "") => h(`div.scroll-x${style}`, { tabindex: "0", role: "region", label }, child);

/** @type {clone} */
export const clone = (id) => /** @type {any} */ (part(id)).content.cloneNode(true);

/** @type {cloneForm} */
export function cloneForm(id, submit) {
	const form = clone(id).querySelector("form");
	form.onsubmit = (event) => (event.preventDefault(), submit());
	return [form, form.elements];
}

/** @type {makeOptions} */
export const makeOptions = (names) => names.map((name) => h("option", { value: name }, printable(name, 60)));

/** @type {makeSelect} */
export function makeSelect(names, value, onchange, props = {}) {
	const select = h("select", { onchange: () => onchange(select.value), ...props }, makeOptions(names));
	select.value = value;
	return select;
}

/** @type {makeRange} */
export function makeRange(label, min, max, step, value, props) {
	const slider = h("input", { type: "range", label, min, max, step, ...props });
	slider.value = String(value);
	return slider;
}

export const PAIRS = 100;

/** @type {makePairList} */
export function makePairList(items, chosen, first, total, twins) {
	const list = items.map((item, i) => h("li", h("a", { href: linkMore({ pair: String(i) }), "aria-current": i === chosen && "true" }, item)));
	return h("div.pair-columns", h("div", h("ul.pair-list", list), pager(first, PAIRS, total, { pair: "0" })), twins);
}

/** @type {makeSubtabs} */
export const makeSubtabs = (label, tabs) => h("nav.subtabs", { label }, tabs.map(([text, href, isOn]) => h("a", { href, "aria-current": isOn && "true" }, text)));

/** @type {emptyState} */
export const emptyState = (id, child = null) => h("div.empty", clone(id), child);

/** @type {makeTable} */
export function makeTable(caption, heads, rows, style = "") {
	const cell = (value, i) => (i === 0 ? h("th", { scope: "row" }, value) : value instanceof HTMLTableCellElement ? value : typeof value === "number" ? h("td.n", count(value)) : h("td", value));
	return h("table",
		{ class: style },
		h("caption.hidden-visually", caption),
		heads.length && h("thead", h("tr", heads.map((head) => h("th", { scope: "col" }, head)))),
		h("tbody", rows.map((row) => h("tr", row.map(cell)))),
	);
}

/** @type {foldedTable} */
export function foldedTable(caption, heads, rows) {
	const body = makeScrollable(caption, null, ".tall");
	return h("details", { ontoggle: () => body.childElementCount || show(body, makeTable(caption, heads, rows(), "small-table")) }, h("summary", "Table"), body);
}

/** @type {makeCaption} */
export const makeCaption = (name, words) => h("figcaption", bdi(name), " ", words.filter(Boolean).join(", "));

/** @type {makeFigure} */
export const makeFigure = (name, words, style, ...children) => h("figure", { class: style }, makeCaption(name, words), ...children);

/** @type {pager} */
export function pager(first, size, total, more = {}) {
	if (total <= size && first === 0) return null;
	const text = `${count(total ? first + 1 : 0)}–${count(Math.min(first + size, total))} of ${plural(total, "entry", "entries")}`;
	return makePager("Pages", first, first - size, first + size, total, text, (to) => goMore({ first: String(to), ...more }));
}

/** @type {makePager} */
export const makePager = (label, first, previous, next, total, text, turn) =>
	h("nav.pager",
		{ label },
		h("button", { disabled: first === 0, onclick: () => turn(Math.max(previous, 0)) }, "Previous"),
		h("span", text),
		h("button", { disabled: next >= total, onclick: () => turn(next) }, "Next"),
	);
