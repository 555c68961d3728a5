// @ts-check
// The page: its head, the tabs, filters, and the view that the URL names.

import { getSession, getStatus, isNarrowed, onGone, onSession, onStatus, side, sideIndex, splitName, splitStatus, watchStatus } from "./api.js";
import { mountCompare } from "./compare.js";
import { mountConfusion } from "./confusion.js";
import { mountSelectionBar, selectAll } from "./curation.js";
import { bytes, count, h, plural, printable, show } from "./dom.js";
import { mountFacets } from "./facets.js";
import { mountFindings, mountPairs } from "./findings.js";
import { imageColumn, mountRecords } from "./gallery.js";
import { mountKeys, openHelp, openJump } from "./keys.js";
import { mountMosaic } from "./mosaic.js";
import { emptyState, faultPanel, makeOptions } from "./parts.js";
import { apply, onPreference, prefer, setPreference, switchTheme } from "./preferences.js";
import { mountQuery } from "./query.js";
import { mountRecord, overlayTools } from "./record.js";
import { go, link, onState, state } from "./state.js";
import { announce, mountStatus } from "./status.js";

/** @type {[string, string, Mount][]} */
const VIEWS = [
	["gallery", "Gallery", (host, until) => mountRecords(host, until, "gallery")],
	["table", "Table", (host, until) => mountRecords(host, until, "table")],
	["mosaic", "Mosaic", mountMosaic],
	["findings", "Findings", mountFindings],
	["pairs", "Duplicates", mountPairs],
	["compare", "Compare", mountCompare],
	["predictions", "Predictions", mountConfusion],
	["query", "SQL", mountQuery],
];
const WITH_FACETS = ["gallery", "table", "mosaic"];
const KEPT = ["side", "image"]; // what a change of the view keeps

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const banner = h("div.banner", { role: "alert", hidden: true });
const head = h("header.top");
const tabs = h("nav.tabs", { "aria-label": "Views" });
const bar = h("section.toolbar", { "aria-label": "Records shown" });
const facets = h("aside.facets", { "aria-label": "Filters" });
const view = h("main.view", { id: "view", tabindex: "-1" });
const body = h("div.body", facets, view);
const selection = h("section.selection-bar", { "aria-label": "Selection", hidden: true });
const queryBox = h("input.query", { type: "search", spellcheck: "false", autocomplete: "off", placeholder: "SQL condition, such as label = 3" });
/** @type {AbortController} */
let running = new AbortController();
/** @type {ReturnType<typeof mountFacets> | null} */
let facetPanel = null;
/** @type {View | null} */
let current = null;
let facetKey = "";
let wasKeyboard = false;
addEventListener("keydown", () => (wasKeyboard = true), true);
addEventListener("pointerdown", () => (wasKeyboard = false), true);

function viewName() {
	const name = state().view;
	if (name === "record" || VIEWS.some(([one]) => one === name)) return name === "gallery" && !imageColumn() ? "table" : name;
	return "gallery";
}

function drawHead() {
	const session = getSession();
	const shown = side();
	const status = splitStatus();
	const switchTo = (more, split) => go({ split, more, record: null, at: 0, filters: [], where: "", view: state().view === "record" ? "gallery" : state().view });
	const sides = h("select", { "aria-label": "Dataset", onchange: () => switchTo(sides.value === "0" ? {} : { side: sides.value }, null) }, session.sides.map((one, i) => h("option", { value: i }, `${"AB"[i]}: ${printable(one.name, 60)}`)));
	sides.value = String(sideIndex());
	const splits = h("select", { "aria-label": "Split", onchange: () => switchTo(sideIndex() ? { side: String(sideIndex()) } : {}, splits.value) }, makeOptions(shown.splits.map((one) => one.name)));
	splits.value = splitName();
	show(
		head,
		h("a.skip", { href: "#view" }, "Skip to the records"),
		h("h1", h("span.brand", "rekord"), " ", session.sides.length > 1 ? sides : h("bdi", { title: printable(shown.path) }, printable(shown.name, 80))),
		shown.splits.length > 1 ? splits : null,
		h("p.state", { role: "status" }, ...stateOf(status)),
		h("div.head-buttons",
			h("button.icon", { title: "Light or dark (t)", "aria-label": "Switch between light and dark", onclick: () => announce(`${switchTheme()} theme`) }, "◐"),
			h("button.icon", { title: "Keyboard (?)", "aria-label": "Keyboard shortcuts", onclick: openHelp }, "?")),
	);
}

function stateOf(status) {
	if (!status) return [];
	const parts = [h("b", count(status.records)), ` ${status.records === 1 ? "record" : "records"}`];
	const share = status.bytes ? Math.min(status.read_bytes / status.bytes, 1) : 0;
	if (!status.complete && ["front", "indexing"].includes(status.state)) {
		const meter = h("progress", { max: 1, value: share, "aria-label": "Indexing" });
		meter.value = share;
		parts.push(" so far ", meter, h("span.soft", ` indexing, ${bytes(status.read_bytes)} of ${bytes(status.bytes)}`));
	}
	if (status.state === "partial") parts.push(h("span.pill", { title: printable(status.note ?? "") }, "front only"));
	if (status.damaged > 0) parts.push(" ", h("a.pill.alert.damaged-badge", { href: link({ view: "findings", record: null, more: keep() }) }, `${count(status.damaged)} damaged`));
	const check = getStatus()?.check;
	if (check && check.errors + check.warnings > 0) parts.push(" ", h("a.pill.alert", { href: link({ view: "findings", record: null, more: keep() }) }, plural(check.findings, "finding")));
	return parts;
}

const keep = () => Object.fromEntries(Object.entries(state().more).filter(([name]) => KEPT.includes(name)));

function drawTabs() {
	const session = getSession();
	const now = viewName();
	const isThere = (name) => (name !== "compare" || session.sides.length > 1) && (name !== "predictions" || session.predictions) && (!["gallery", "mosaic"].includes(name) || imageColumn() !== null);
	show(tabs, VIEWS.filter(([name]) => isThere(name)).map(([name, text]) => {
		const keepsSet = WITH_FACETS.includes(name);
		const more = keepsSet ? { ...keep(), ...Object.fromEntries(Object.entries(state().more).filter(([key]) => ["finding", "cell", "tag"].includes(key))) } : keep();
		return h("a", { href: link({ view: name, record: null, at: 0, more }), "aria-current": now === name ? "page" : null }, text);
	}));
}

function drawBar() {
	const now = viewName();
	bar.hidden = !WITH_FACETS.includes(now);
	if (bar.hidden) return;
	queryBox.value = state().where;
	queryBox.setAttribute("aria-label", "SQL condition");
	const { finding, cell, tag } = state().more;
	const special = finding !== undefined ? `finding ${finding}` : cell !== undefined ? `truth and prediction ${cellName(cell)}` : tag !== undefined ? `tag ${tag}` : null;
	const without = Object.fromEntries(Object.entries(state().more).filter(([name]) => !["finding", "cell", "tag"].includes(name)));
	const overlays = side().overlays.find((one) => one.image === imageColumn()?.name);
	const tile = h("input", { type: "range", min: 96, max: 420, step: 12, "aria-label": "Tile size", value: prefer().tile, oninput: () => setPreference("tile", Number(tile.value)) });
	const filterButton = h("button.only-narrow", { "aria-expanded": String(document.body.classList.contains("show-facets")), onclick: () => {
		const on = document.body.classList.toggle("show-facets");
		filterButton.setAttribute("aria-expanded", String(on));
	} }, "Filters");
	show(
		bar,
		filterButton,
		getSession().sql ? h("form.query-form", { role: "search", onsubmit: (event) => (event.preventDefault(), go({ where: queryBox.value.trim(), at: 0 })) }, queryBox) : null,
		special ? h("a.chip", { href: link({ more: without, at: 0 }), "aria-label": `${printable(special, 80)}: show all` }, printable(special, 80), h("span", { "aria-hidden": "true" }, " ×")) : null,
		state().filters.map((filter) => h("a.chip", { href: link({ filters: state().filters.filter((one) => one !== filter), at: 0 }), "aria-label": `Filter on ${printable(filter.feature, 60)}: remove` }, printable(filter.feature, 40), h("span", { "aria-hidden": "true" }, " ×"))),
		isNarrowed() ? h("button.link", { onclick: () => void selectAll() }, "Select all") : null,
		h("span.spring"),
		now === "gallery" && overlays && (overlays.masks.length || overlays.boxes.length) ? overlayTools(overlays.masks.length > 0, overlays.boxes.length > 0, running.signal) : null,
		now === "gallery" ? h("label.check.tile-size", "Size", tile) : null,
		h("button", { onclick: () => openJump(current) }, "Go to…"),
	);
}

function cellName(cell) {
	const names = side().columns.find((one) => one.name === side().label)?.classes ?? [];
	return cell.split(",").map((one) => names[Number(one)] ?? one).join(" → ");
}

function drawFacets() {
	const isShown = WITH_FACETS.includes(viewName());
	facets.hidden = !isShown;
	body.classList.toggle("with-facets", isShown);
	if (!isShown) return;
	const now = state();
	const key = JSON.stringify([sideIndex(), splitName(), now.where, now.filters, now.more.finding, now.more.cell, now.more.tag]);
	if (key === facetKey) return;
	facetKey = key;
	if (facetPanel) return void facetPanel.reload();
	facetPanel = mountFacets(facets, new AbortController().signal);
}

function drawView() {
	running.abort();
	running = new AbortController();
	const name = viewName();
	const error = side()?.error;
	view.className = `view view-${name}`;
	if (error) {
		show(view, h("h2.view-title", { tabindex: "-1" }, "This cannot be opened"), faultPanel(error));
		current = null;
		return;
	}
	if (!side().splits.length) {
		show(view, emptyState("No records"));
		current = null;
		return;
	}
	const mount = name === "record" ? mountRecord : /** @type {Mount} */ (VIEWS.find(([one]) => one === name)?.[2]);
	show(view);
	current = mount(view, running.signal);
}

function title() {
	const name = viewName();
	const text = name === "record" ? `Record ${state().record ?? 0}` : VIEWS.find(([one]) => one === name)?.[1];
	document.title = `${text} – ${printable(side().name, 60)} – rekord`;
}

function keyOfView(now) {
	// Where the page is scrolled to is no reason to draw it again.
	return JSON.stringify({ ...now, at: 0 });
}

onState((now, before) => {
	const isSameView = now.view === before.view;
	const focusInFacets = facets.contains(document.activeElement);
	const hadFocusInView = view.contains(document.activeElement) || document.activeElement === document.body;
	drawHead();
	drawTabs();
	if (keyOfView(now) !== keyOfView(before)) drawView();
	else if (now.at !== before.at) current?.jump(now.at);
	if (!bar.contains(document.activeElement) || document.activeElement === queryBox) drawBar();
	else {
		drawBar();
		bar.querySelector("button")?.focus();
	}
	drawFacets();
	title();
	if (!isSameView || now.record !== before.record) announce(document.title);
	if (wasKeyboard && !focusInFacets && (hadFocusInView || !isSameView)) current?.focus();
});

onSession(() => {
	drawHead();
	drawTabs();
	drawBar();
	facetKey = "";
	drawFacets();
	drawView();
});
onStatus(drawHeadSoon);
onPreference((changed) => {
	if (changed === "patterns") drawBar();
});
onGone((isGone) => {
	banner.hidden = !isGone;
	show(banner, isGone ? "The server does not answer. It may have been stopped: run rekord view again. This page tries again by itself." : "");
	document.body.classList.toggle("server-gone", isGone);
	if (!isGone && view.querySelector(".notice, .empty")) drawView();
});

let lastHead = "";
function drawHeadSoon() {
	const key = JSON.stringify([splitStatus(), getStatus()?.check]);
	if (key === lastHead) return;
	lastHead = key;
	const line = head.querySelector(".state");
	if (line) show(line, ...stateOf(splitStatus()));
}

apply();
mountStatus();
app.append(banner, head, tabs, bar, body, selection);
mountSelectionBar(selection);
drawHead();
drawTabs();
drawView();
drawBar();
drawFacets();
title();
mountKeys(
	() => current,
	() => (bar.hidden ? go({ view: "query", record: null }) : queryBox.focus()),
	VIEWS.map(([name]) => name),
);
watchStatus();
