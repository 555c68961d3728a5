// @ts-check
// The gallery: images as tiles, with masks and boxes on top; and the table. Both show any number of records.

import { getMask, getStatus, isNarrowed, mediaAddress, onStatus, side, sideIndex, splitStatus } from "./api.js";
import { bytes, count, h, plural, printable, show } from "./dom.js";
import { classColour, drawMask } from "./masks.js";
import { uprightMask, uprightSize } from "./orientation.js";
import { emptyState, errorPanel, stateBadge } from "./parts.js";
import { onPreference, prefer } from "./preferences.js";
import { Rows } from "./rows.js";
import { Scroller } from "./scroller.js";
import { isSelected, onSelection, select } from "./selection.js";
import { makeBoxes } from "./stage.js";
import { go, link, recordState, state } from "./state.js";
import { announce } from "./status.js";

const CAPTION = 46;
const ROW = 40;
const SETTLE_MS = 60; // a tile that is scrolled past is not requested

/** The image feature of the tiles. @returns {Column | null} */
export function imageColumn() {
	const columns = side().columns;
	const wanted = state().more.image;
	const isShown = (one) => ["image", "mask", "tensor", "video"].includes(one.view);
	return (
		columns.find((one) => one.name === wanted && isShown(one)) ??
		columns.find((one) => one.name === side().overlays[0]?.image) ??
		columns.find((one) => one.view === "image") ??
		columns.find((one) => one.view === "mask") ??
		null
	);
}

/** @param {string} name */
export const findColumn = (name) => side().columns.find((one) => one.name === name) ?? null;

/** A view over all records that are shown: as tiles or as rows of a table. @type {mountRecords} */
export function mountRecords(host, until, kind) {
	const isGallery = kind === "gallery";
	const scrollHost = h("div", { class: `scroller ${kind}` });
	const list = isGallery
		? h("ul.tiles", { "aria-label": "Records" })
		: h("div.table-body", { role: "rowgroup" });
	const headRow = h("div.table-row.table-head", { role: "row" });
	const table = h("div.records-table", { role: "table", "aria-label": "Records" });
	const notice = h("div.view-notice");
	show(host, notice, scrollHost);
	if (!isGallery) {
		table.append(h("div", { role: "rowgroup" }, headRow));
		scrollHost.append(table);
	}
	let active = state().at;
	let isPlaced = false;
	let wantsFocus = false;
	let hasFailed = false;
	let jumpTo = null; // a record that is not known yet

	const rows = new Rows(until, {
		onPage(first, end) {
			for (let i = first; i < end; i += 1) scroller.replace(i);
			growTotal();
			if (wantsFocus) focusActive();
		},
		onTotal() {
			layout();
			if (!isGallery) drawHead();
			if (!isPlaced && (rows.total > active || rows.complete)) {
				isPlaced = true;
				active = Math.max(Math.min(active, rows.total - 1), 0);
				scroller.scrollTo(active);
			}
			tell();
			if (jumpTo !== null && (jumpTo < rows.total || rows.complete)) moveTo(jumpTo);
		},
		onError(error) {
			hasFailed = true;
			show(notice, errorPanel(error));
		},
	});
	const scroller = new Scroller({
		host: isGallery ? scrollHost : table,
		list,
		render: (index) => (isGallery ? renderTile(index) : renderRow(index)),
		onRange: (start, end) => want(start, end),
	});

	let wanting = 0;
	function want(start, end) {
		clearTimeout(wanting);
		wanting = setTimeout(() => rows.want(start, Math.max(end, start + 1)), rows.isLoaded ? SETTLE_MS : 0);
		if (isPlaced) {
			const first = scroller.firstVisible();
			if (first !== state().at && Math.abs(first - active) > scroller.columns * scroller.visibleRows()) active = first;
			rememberPlace(first);
		}
	}

	let remembering = 0;
	function rememberPlace(first) {
		clearTimeout(remembering);
		remembering = setTimeout(() => !until.aborted && go({ at: first }, { replace: true, quiet: true }), 250);
	}

	// Without filters, the status tells how many records there are.
	function growTotal() {
		const split = splitStatus();
		if (!split || isNarrowed() || !rows.isLoaded) return false;
		rows.grow(split.records, split.complete);
		if (rows.total === 0) tell();
		return true;
	}

	function tell() {
		const split = splitStatus();
		if (hasFailed) return;
		if (rows.total > 0) return show(notice);
		if (!rows.isLoaded) return show(notice, emptyState("Loading…"));
		if (!rows.complete) return show(notice, emptyState("Indexing…", h("p", "The first records appear as soon as they are read.")));
		if (isNarrowed()) {
			const clear = h("button", { onclick: () => go({ filters: [], where: "", more: {}, at: 0 }) }, "Show all records");
			return show(notice, emptyState("No record matches", h("p", "The filters exclude every record."), clear));
		}
		const error = side().error ?? split?.error;
		show(notice, error ? errorPanel({ told: error }) : emptyState("No records", h("p", "The file is empty: it is valid, but nothing was written to it.")));
	}

	function layout() {
		const width = scrollHost.clientWidth;
		if (isGallery) {
			const columns = Math.max(Math.floor((width - 8) / prefer().tile), width < 480 ? 2 : 3);
			scroller.resize(rows.total, Math.round(Math.min(width / columns, 520)) + CAPTION, columns);
		} else scroller.resize(rows.total, ROW, 1);
	}

	const loaders = new Map();
	function renderTile(index) {
		const row = rows.at(index);
		const column = imageColumn();
		if (!row) return h("li.tile.pending", { "aria-hidden": "true" }, h("div.shot"));
		const picture = column && rows.cell(row, column.name);
		const shot = h("div.shot");
		if (row.state === "damaged" || row.state === "too_large") shot.append(h("span.gone", row.state === "damaged" ? "damaged" : bytes(row.bytes)));
		else if (column && picture && !picture.missing && (!picture.image || picture.image.state === "ok")) fillShot(shot, row, column, picture);
		else shot.append(h("span.gone", picture?.image ? `image ${picture.image.state.replace("_", " ")}` : picture?.missing ? "no image" : preview(row)));
		const anchor = h(
			"a.tile-link",
			{ href: link({ ...recordState(row.split, row.record), more: state().more, at: index }), tabIndex: index === active ? 0 : -1, "aria-label": describe(row), onfocus: () => (active = index) },
			shot,
		);
		const on = isSelected(row.split, row.record);
		const box = h("input.tile-check", { type: "checkbox", checked: on, tabIndex: -1, "aria-label": `Select record ${row.record}`, onchange: () => select(row.split, row.record, box.checked) });
		const label = side().label;
		const cell = label ? rows.cell(row, label) : null;
		return h(
			"li",
			{ class: on ? "tile selected" : "tile", "data-index": index, "aria-setsize": rows.complete ? rows.total : -1, "aria-posinset": index + 1 },
			anchor,
			box,
			h("p.tile-caption", h("b", count(row.record)), cell && !cell.missing ? h("bdi", { title: printable(cell.text) }, printable(cell.text, 60)) : null, stateBadge(row.state), row.findings.length ? h("span.pill.alert", { title: "findings" }, plural(row.findings.length, "finding")) : null),
		);
	}

	function fillShot(shot, row, column, picture) {
		const query = { side: sideIndex() || null, split: row.split, record: row.record };
		const px = devicePixelRatio > 1 ? 384 : 256;
		const image = h("img", { alt: "", decoding: "async", draggable: "false", src: mediaAddress("thumb", { ...query, feature: column.name, px }) });
		image.addEventListener("error", () => show(shot, h("span.gone", "image cannot be decoded")));
		const facts = picture.image ?? { width: 1, height: 1, orientation: 1 };
		if (Math.max(facts.width, facts.height) < 96) image.classList.add("pixelated");
		const [width, height] = uprightSize(facts.orientation, facts.width, facts.height);
		const frame = h("div.frame", image);
		frame.style.aspectRatio = `${width} / ${height}`;
		frame.style.setProperty("--ratio", String(width / height));
		shot.append(frame);
		const overlay = side().overlays.find((one) => one.image === column.name);
		if (!overlay) return;
		for (const name of overlay.boxes) {
			const cell = rows.cell(row, name);
			if (cell?.boxes) frame.append(h("div.boxes", makeBoxes({ boxes: cell.boxes, labels: cell.labels, names: cell.names }, facts.orientation, findColumn(name)?.classes ?? null)));
		}
		if (!prefer().masks) return;
		for (const name of overlay.masks) {
			const cell = rows.cell(row, name);
			if (cell?.missing || cell?.image?.state === "damaged") continue;
			const canvas = h("canvas.mask", { "aria-hidden": "true" });
			frame.append(canvas);
			const mask = findColumn(name);
			const key = `${row.split} ${row.record} ${name}`;
			const loading = loaders.get(key) ?? getMask({ ...query, feature: name, px: 256 }, until);
			loaders.set(key, loading);
			if (loaders.size > 400) loaders.delete(loaders.keys().next().value);
			loading
				.then((data) => drawMask(canvas, uprightMask(data, facts.orientation), { ignore: mask?.ignore ?? null, patterns: prefer().patterns }))
				.catch(() => {
					loaders.delete(key);
					canvas.remove();
				});
		}
	}

	// What a record is when no image shows it: its first values.
	const preview = (row) => row.cells.slice(0, 3).map((cell, i) => `${rows.columns[i]}: ${cell.missing ? "missing" : printable(cell.text, 40)}`).join("\n");

	function describe(row) {
		const label = side().label;
		const cell = label ? rows.cell(row, label) : null;
		const parts = [`Record ${count(row.record)}`, cell && !cell.missing ? printable(cell.text, 60) : null, row.state === "ok" ? null : row.state.replace("_", " "), row.findings.length ? plural(row.findings.length, "finding") : null];
		return parts.filter(Boolean).join(", ");
	}

	function drawHead() {
		const columns = rows.columns;
		// As wide as its name, within limits: names that begin alike can be told apart.
		const widths = columns.map((name) => Math.max(110, Math.min(8 * name.length + 24, 230)));
		table.style.setProperty("--template", widths.map((width) => `minmax(${width}px, 1fr)`).join(" "));
		table.style.setProperty("--width", `${widths.reduce((sum, one) => sum + one, 0)}px`);
		show(headRow, [h("span", { role: "columnheader" }, "record"), ...columns.map(makeHead)]);
		table.setAttribute("aria-rowcount", rows.complete ? String(rows.total + 1) : "-1");
	}

	function makeHead(name) {
		const column = findColumn(name);
		if (!column?.facet || column.view === "image") return h("span", { role: "columnheader" }, h("bdi", { title: column?.summary }, printable(name, 60)));
		const now = state().sort;
		const direction = now === name ? "ascending" : now === `-${name}` ? "descending" : "none";
		const next = now === name ? `-${name}` : now === `-${name}` ? "" : name;
		return h("span", { role: "columnheader", "aria-sort": direction }, h("button.head", { onclick: () => go({ sort: next, at: 0 }) }, h("bdi", { title: column.summary }, printable(name, 60)), h("i", { "aria-hidden": "true" }, direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : "")));
	}

	function renderRow(index) {
		const row = rows.at(index);
		if (!row) return h("div.table-row.pending", { role: "row" }, h("span", { role: "cell" }, "…"));
		const on = isSelected(row.split, row.record);
		const box = h("input", { type: "checkbox", tabIndex: -1, checked: on, "aria-label": `Select record ${row.record}`, onchange: () => select(row.split, row.record, box.checked) });
		const anchor = h("a", { href: link({ ...recordState(row.split, row.record), more: state().more, at: index }), tabIndex: index === active ? 0 : -1, onfocus: () => (active = index) }, count(row.record));
		return h(
			"div",
			{ role: "row", class: on ? "table-row selected" : "table-row", "aria-rowindex": index + 2, "data-index": index },
			h("span.record-cell", { role: "cell" }, box, anchor, stateBadge(row.state), row.findings.length ? h("span.pill.alert", plural(row.findings.length, "finding")) : null),
			...row.cells.map((cell, i) => h("span", { role: "cell", class: cell.missing ? "soft" : null }, ...renderCell(row, rows.columns[i], cell))),
		);
	}

	function renderCell(row, name, cell) {
		if (cell.missing) return ["missing"];
		const column = findColumn(name);
		const text = h("bdi", { title: printable(cell.text) }, printable(cell.text, 120));
		if (cell.image?.state === "ok" && column && row.state === "ok") {
			return [h("img.cell-image", { alt: "", src: mediaAddress("thumb", { side: sideIndex() || null, split: row.split, record: row.record, feature: name, px: 64 }) }), text];
		}
		if (cell.code !== undefined) {
			const dot = h("i.dot", { "aria-hidden": "true" });
			dot.style.background = classColour(Number(cell.code) + 1);
			return [dot, text];
		}
		return [text];
	}

	function focusActive() {
		const item = scroller.items.get(active);
		const anchor = item?.querySelector("a");
		wantsFocus = !anchor;
		if (!anchor) return;
		for (const one of list.querySelectorAll("a[tabindex='0']")) if (one !== anchor) one.setAttribute("tabindex", "-1");
		anchor.tabIndex = 0;
		anchor.focus({ preventScroll: true });
	}

	function moveTo(index) {
		jumpTo = index >= rows.total && !rows.complete ? index : null;
		active = Math.max(0, Math.min(index, rows.total - 1));
		scroller.reveal(active);
		focusActive();
	}

	scrollHost.addEventListener("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || !(event.target instanceof HTMLAnchorElement)) return;
		const page = scroller.columns * scroller.visibleRows();
		const moves = /** @type {Record<string, number>} */ ({
			ArrowLeft: -1, ArrowRight: 1, ArrowUp: -scroller.columns, ArrowDown: scroller.columns, PageUp: -page, PageDown: page, Home: -rows.total, End: rows.total,
		});
		if (!(event.key in moves)) return;
		event.preventDefault();
		moveTo(active + moves[event.key]);
	});

	onSelection(() => {
		for (const [index, item] of scroller.items) {
			const row = rows.at(index);
			if (!row) continue;
			const on = isSelected(row.split, row.record);
			item.classList.toggle("selected", on);
			const box = item.querySelector("input");
			if (box) box.checked = on;
		}
	}, until);
	onPreference((changed) => {
		if (changed === "tile") layout();
		if (isGallery && (changed === "patterns" || changed === "masks")) scroller.refresh();
	}, until);
	onStatus(() => {
		if (growTotal()) return;
		if (rows.isLoaded && !rows.complete) rows.loading.size || void rows.load(Math.floor(rows.total / 60));
		if (rows.total === 0) tell();
	}, until);
	// Rows that were fetched before the check was done do not have its findings.
	let checked = getStatus()?.check.findings ?? 0;
	onStatus((status) => {
		const found = status?.check.state === "done" ? status.check.findings : checked;
		if (found === checked) return;
		checked = found;
		rows.fetchAgain(scroller.start, scroller.end);
	}, until);
	const observer = new ResizeObserver(() => layout());
	observer.observe(scrollHost);
	until.addEventListener("abort", () => observer.disconnect());
	until.addEventListener("abort", () => (clearTimeout(remembering), clearTimeout(wanting)));
	tell();
	void rows.load(Math.floor(active / 60));

	return {
		focus: focusActive,
		/** The record that has the focus. */
		current: () => rows.at(active) ?? null,
		jump(index) {
			moveTo(index);
			announce(`Record ${index}`);
		},
		total: () => rows.total,
	};
}
