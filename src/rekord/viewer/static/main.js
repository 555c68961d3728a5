// The page: its head, the tabs, filters, and the view that the URL names.

import { findColumn, getSession, getStatus, isNarrowed, onGone, onSession, onStatus, SETS, side, sideIndex, splitName, splitStatus, watchStatus } from "./api.js";
import { mountCompare } from "./compare.js";
import { mountConfusion } from "./confusion.js";
import { mountSelectionBar, selectAll } from "./curation.js";
import { announce, bdi, bytes, count, h, part, plural, printable, show } from "./dom.js";
import { mountFacets } from "./facets.js";
import { mountFindings, mountPairs } from "./findings.js";
import { imageColumn, mountRecords } from "./gallery.js";
import { mountKeys, openHelp, openJump } from "./keys.js";
import { mountMosaic } from "./mosaic.js";
import { cloneForm, emptyState, faultPanel, makeRange, makeSelect, sideMore } from "./parts.js";
import { apply, onPreference, prefer, setPreference, switchTheme } from "./preferences.js";
import { mountQuery } from "./query.js";
import { mountRecord, overlayTools } from "./record.js";
import { go, link, onState, state } from "./state.js";

/** @type {[string, string, Mount, (() => boolean)?][]} name, title, and when there is such a view */
const VIEWS = [
	["gallery", "Gallery", (host, until) => mountRecords(host, until, "gallery"), () => imageColumn() !== null],
	["table", "Table", (host, until) => mountRecords(host, until, "table")],
	["mosaic", "Mosaic", mountMosaic, () => imageColumn() !== null],
	["findings", "Findings", mountFindings],
	["pairs", "Duplicates", mountPairs],
	["compare", "Compare", mountCompare, () => getSession().sides.length > 1],
	["predictions", "Predictions", mountConfusion, () => getSession().predictions],
	["query", "SQL", mountQuery],
];
const WITH_FACETS = ["gallery", "table", "mosaic"];
const KEPT = ["side", "image"]; // what a change of the view keeps

const [banner, bar, facets, view, body] = ["banner", "toolbar", "facets", "view", "body"].map(part);
const [queryForm, { where: queryBox }] = cloneForm("query-form", () => go({ where: queryBox.value.trim(), at: 0 }));
let running = new AbortController();
/** @type {ReturnType<typeof mountFacets> | null} */
let facetPanel = null;
/** @type {View | null} */
let current = null;
let facetKey = "";
let headKey = "";
let wasKeyboard = false;
addEventListener("keydown", () => (wasKeyboard = true), true);
addEventListener("pointerdown", () => (wasKeyboard = false), true);

const findView = (name) => VIEWS.find(([one]) => one === name);

function viewName() {
	const name = state().view;
	if (name !== "record" && !findView(name)) return "gallery";
	return name === "gallery" && !imageColumn() ? "table" : name;
}

const keep = (names = KEPT) => Object.fromEntries(Object.entries(state().more).filter(([name]) => names.includes(name)));

function drawHead() {
	const { sides } = getSession();
	const { splits, path, name } = side();
	const switchTo = (index, split) => go({ split, more: sideMore(index), record: null, at: 0, filters: [], where: "", view: state().view === "record" ? "gallery" : state().view });
	const choices = sides.map((one, i) => `${"AB"[i]}: ${one.name}`);
	const names = splits.map((one) => one.name);
	const title = bdi(name, 80, { title: printable(path) });
	show(part("dataset"), sides.length > 1 ? makeSelect(choices, choices[sideIndex()], (chosen) => switchTo(choices.indexOf(chosen), null), { label: "Dataset" }) : title);
	show(part("splits"), names.length > 1 && makeSelect(names, splitName(), (split) => switchTo(sideIndex(), split), { label: "Split" }));
	drawState();
}

const drawState = () => show(part("state"), renderState(splitStatus()));

function renderState(status) {
	if (!status) return [];
	const { records, complete, read_bytes, bytes: all, note, damaged } = status;
	const check = getStatus()?.check;
	const badge = (style, text) => h(`a.pill.alert${style}`, { href: link({ view: "findings", record: null, more: keep() }) }, text);
	return [
		h("b", count(records)),
		` ${records === 1 ? "record" : "records"}`,
		!complete && ["front", "indexing"].includes(status.state) && [" so far ", h("progress", { max: 1, value: Math.min(read_bytes / (all || 1), 1), label: "Indexing" }), h("span.soft", ` indexing, ${bytes(read_bytes)} of ${bytes(all)}`)],
		status.state === "partial" && h("span.pill", { title: printable(note ?? "") }, "front only"),
		damaged > 0 && badge(".damaged-badge", `${count(damaged)} damaged`),
		check && check.errors + check.warnings > 0 && badge("", plural(check.findings, "finding")),
	].flat();
}

function drawTabs() {
	const now = viewName();
	show(part("tabs"), VIEWS.filter(([, , , isThere]) => !isThere || isThere()).map(([name, text]) => {
		const more = keep(WITH_FACETS.includes(name) ? [...KEPT, ...SETS] : KEPT);
		return h("a", { href: link({ view: name, record: null, at: 0, more }), "aria-current": now === name && "page" }, text);
	}));
}

function drawBar() {
	const now = viewName();
	const { where, filters, more } = state();
	bar.hidden = !WITH_FACETS.includes(now);
	if (bar.hidden) return;
	queryBox.value = where;
	const { finding, cell, tag } = more;
	const special = finding !== undefined ? `finding ${finding}` : cell !== undefined ? `truth and prediction ${cellName(cell)}` : tag !== undefined ? `tag ${tag}` : null;
	const without = keep(Object.keys(more).filter((name) => !SETS.includes(name)));
	const chip = (change, label, text) => h("a.chip", { href: link({ ...change, at: 0 }), label }, printable(text, 80), h("span", { "aria-hidden": "true" }, " ×"));
	const overlays = side().overlays.filter((one) => one.image === imageColumn()?.name);
	const tile = makeRange("Tile size", 96, 420, 12, prefer().tile, { oninput: () => setPreference("tile", Number(tile.value)) });
	const toggleFacets = () => filterButton.setAttribute("aria-expanded", String(document.body.classList.toggle("show-facets")));
	const filterButton = h("button.only-narrow", { "aria-expanded": String(document.body.classList.contains("show-facets")), onclick: toggleFacets }, "Filters");
	show(bar,
		filterButton,
		getSession().sql && queryForm,
		special && chip({ more: without }, `${printable(special, 80)}: show all`, special),
		filters.map((filter) => chip({ filters: filters.filter((one) => one !== filter) }, `Filter on ${printable(filter.feature, 60)}: remove`, filter.feature)),
		isNarrowed() && h("button.link", { onclick: selectAll }, "Select all"),
		h("span.spring"),
		now === "gallery" && overlayTools(overlays, running.signal),
		now === "gallery" && h("label.check.tile-size", "Size", tile),
		h("button", { onclick: () => openJump(current) }, "Go to…"),
	);
}

function cellName(cell) {
	const names = findColumn(side().label)?.classes ?? [];
	return cell.split(",").map((one) => names[Number(one)] ?? one).join(" → ");
}

function drawFacets() {
	facets.hidden = !WITH_FACETS.includes(viewName());
	body.classList.toggle("with-facets", !facets.hidden);
	if (facets.hidden) return;
	const { where, filters } = state();
	const key = JSON.stringify([sideIndex(), splitName(), where, filters, keep(SETS)]);
	if (key === facetKey) return;
	facetKey = key;
	if (facetPanel) void facetPanel.reload();
	else facetPanel = mountFacets(facets, new AbortController().signal);
}

function drawView() {
	running.abort();
	running = new AbortController();
	current = null;
	const name = viewName();
	const { error, splits } = side();
	view.className = `view view-${name}`;
	if (error) return show(view, h("h2.view-title", { tabindex: "-1" }, "This cannot be opened"), faultPanel(error));
	if (!splits.length) return show(view, emptyState("no-splits"));
	show(view);
	const mount = name === "record" ? mountRecord : findView(name)?.[2];
	current = mount?.(view, running.signal) ?? null;
}

function drawTitle() {
	const name = viewName();
	const text = name === "record" ? `Record ${state().record ?? 0}` : findView(name)?.[1];
	document.title = `${text} – ${printable(side().name, 60)} – rekord`;
}

function drawAll() {
	facetKey = "";
	drawHead();
	drawTabs();
	drawView();
	drawBar();
	drawFacets();
	drawTitle();
}

// Where the page is scrolled to is no reason to draw it again.
const keyOfView = (now) => JSON.stringify({ ...now, at: 0 });

onState((now, before) => {
	const isSameView = now.view === before.view;
	const focused = document.activeElement;
	const focusInFacets = facets.contains(focused);
	const hadFocusInView = view.contains(focused) || focused === document.body;
	const losesFocus = bar.contains(focused) && focused !== queryBox;
	drawHead();
	drawTabs();
	if (keyOfView(now) !== keyOfView(before)) drawView();
	else if (now.at !== before.at) current?.jump(now.at);
	drawBar();
	if (losesFocus) bar.querySelector("button")?.focus();
	drawFacets();
	drawTitle();
	if (!isSameView || now.record !== before.record) announce(document.title);
	if (wasKeyboard && !focusInFacets && (hadFocusInView || !isSameView)) current?.focus();
});

onSession(drawAll);
onStatus(() => {
	const key = JSON.stringify([splitStatus(), getStatus()?.check]);
	if (key !== headKey) drawState();
	headKey = key;
});
onPreference((changed) => {
	if (changed === "patterns") drawBar();
});
onGone((isGone) => {
	banner.hidden = !isGone;
	if (!isGone && view.querySelector(".notice, .empty")) drawView();
});

apply();
part("theme").onclick = () => announce(`${switchTheme()} theme`);
part("keys").onclick = openHelp;
mountSelectionBar(part("selection"));
drawAll();
mountKeys(
	() => current,
	() => (bar.hidden ? go({ view: "query", record: null }) : queryBox.focus()),
	VIEWS.map(([name]) => name),
);
void watchStatus();
