// The gallery: images as tiles, with masks and boxes on top; and the table. Both show any number of records.

import { findColumn, getMask, getStatus, isNarrowed, mediaAddress, onStatus, recordQuery, side, splitStatus } from "./api.js";
import { announce, bdi, bytes, clamp, count, h, hasModifier, onResize, plural, printable, show } from "./dom.js";
import { drawMask, makeBoxes, uprightMask, uprightSize } from "./images.js";
import { classDot, emptyState, errorPanel, faultPanel, findingBadge, selectBox, stateBadge } from "./parts.js";
import { onPreference, prefer } from "./preferences.js";
import { makeRows } from "./rows.js";
import { makeScroller } from "./scroller.js";
import { isSelected, onSelection } from "./selection.js";
import { go, link, recordState, state } from "./state.js";

const CAPTION = 46;
const ROW = 40;
const SETTLE_MS = 60; // a tile that is scrolled past is not requested
const MAX_KEPT_MASKS = 400;

/** @type {imageColumn} */
export function imageColumn() {
	const { columns, overlays } = side();
	const wanted = findColumn(state().more.image);
	if (wanted && ["image", "mask", "tensor", "video"].includes(wanted.view)) return wanted;
	return findColumn(overlays[0]?.image) ?? columns.find((one) => one.view === "image") ?? columns.find((one) => one.view === "mask") ?? null;
}

/** @type {mountRecords} */
export function mountRecords(host, until, kind) {
	const isGallery = kind === "gallery";
	const list = isGallery ? h("ul.tiles", { label: "Records" }) : h("div.table-body", { role: "rowgroup" });
	const headRow = h("div.table-row.table-head", { role: "row" });
	const table = h("div.records-table", { role: "table", label: "Records" }, h("div", { role: "rowgroup" }, headRow));
	const scrollHost = h(`div.scroller.${kind}`, isGallery ? null : table);
	const notice = h("div.view-notice");
	show(host, notice, scrollHost);
	let active = state().at;
	let isPlaced = false;
	let wantsFocus = false;
	let hasFailed = false;
	let jumpTo = null; // a record that is not known yet

	const rows = makeRows(until, {
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
				active = clamp(active, 0, Math.max(rows.total - 1, 0));
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
	const scroller = makeScroller({ host: isGallery ? scrollHost : table, list, render: isGallery ? renderTile : renderRow, onRange: want });

	let wanting = 0;
	function want(start, end) {
		clearTimeout(wanting);
		wanting = setTimeout(() => rows.want(start, Math.max(end, start + 1)), rows.isLoaded ? SETTLE_MS : 0);
		if (!isPlaced) return;
		const first = scroller.firstVisible();
		if (first !== state().at && Math.abs(first - active) > scroller.columns() * scroller.visibleRows()) active = first;
		clearTimeout(remembering);
		remembering = setTimeout(() => go({ at: first }, { replace: true, quiet: true }), 250);
	}
	let remembering = 0;

	// Without filters, the status tells how many records there are.
	function growTotal() {
		const split = splitStatus();
		if (!split || isNarrowed() || !rows.isLoaded) return false;
		rows.grow(split.records, split.complete);
		if (rows.total === 0) tell();
		return true;
	}

	function tell() {
		if (hasFailed) return;
		const error = side().error ?? splitStatus()?.error;
		show(notice, rows.total > 0 ? null
			: !rows.isLoaded ? emptyState("loading")
			: !rows.complete ? emptyState("indexing")
			: isNarrowed() ? emptyState("no-match", h("button", { onclick: () => go({ filters: [], where: "", more: {}, at: 0 }) }, "Show all records"))
			: error ? faultPanel(error)
			: emptyState("no-records"));
	}

	function layout() {
		if (!isGallery) return scroller.resize(rows.total, ROW, 1);
		const width = scrollHost.clientWidth;
		const columns = Math.max(Math.floor((width - 8) / prefer().tile), width < 480 ? 2 : 3);
		scroller.resize(rows.total, Math.round(Math.min(width / columns, 520)) + CAPTION, columns);
	}

	const recordAnchor = (row, index, props, child) =>
		h("a", { href: link({ ...recordState(row.split, row.record), more: state().more, at: index }), tabIndex: index === active ? 0 : -1, onfocus: () => (active = index), ...props }, child);
	const recordBox = (row, style = "") => selectBox(row.split, row.record, { class: style, tabIndex: -1, label: `Select record ${row.record}` });
	const labelCell = (row) => {
		const cell = side().label ? rows.cell(row, side().label) : null;
		return cell?.missing ? null : cell;
	};

	function renderTile(index) {
		const row = rows.at(index);
		if (!row) return h("li.tile.pending", { "aria-hidden": "true" }, h("div.shot"));
		const label = labelCell(row);
		const name = [`Record ${count(row.record)}`, label && printable(label.text, 60), row.state !== "ok" && row.state.replace("_", " "), row.findings.length && plural(row.findings.length, "finding")];
		return h("li",
			{ class: isSelected(row.split, row.record) ? "tile selected" : "tile", "data-index": index, "aria-setsize": rows.complete ? rows.total : -1, "aria-posinset": index + 1 },
			recordAnchor(row, index, { class: "tile-link", label: name.filter(Boolean).join(", ") }, renderShot(row)),
			recordBox(row, "tile-check"),
			h("p.tile-caption", h("b", count(row.record)), label && bdi(label.text, 60, { title: printable(label.text) }), stateBadge(row.state), findingBadge(row.findings)),
		);
	}

	function renderShot(row) {
		const column = imageColumn();
		const cell = column && rows.cell(row, column.name);
		if (row.state === "damaged") return noShot("damaged");
		if (row.state === "too_large") return noShot(bytes(row.bytes));
		if (cell?.image && cell.image.state !== "ok") return noShot(`image ${cell.image.state.replace("_", " ")}`);
		if (cell?.missing) return noShot("no image");
		// What a record is when no image shows it: its first values.
		if (!column || !cell) return noShot(row.cells.slice(0, 3).map((one, i) => `${rows.columns[i]}: ${one.missing ? "missing" : printable(one.text, 40)}`).join("\n"));
		return h("div.shot", renderFrame(row, column, cell.image ?? { width: 1, height: 1, orientation: 1 }));
	}

	const noShot = (text) => h("div.shot", h("span.gone", text));

	function renderFrame(row, column, { width, height, orientation }) {
		const query = recordQuery(row.split, row.record);
		const src = mediaAddress("thumb", { ...query, feature: column.name, px: devicePixelRatio > 1 ? 384 : 256 });
		const onerror = () => frame.replaceWith(h("span.gone", "image cannot be decoded"));
		const [w, tall] = uprightSize(orientation, width, height);
		const frame = h("div.frame",
			{ style: { "aspect-ratio": `${w} / ${tall}`, "--ratio": w / tall } },
			h("img", { alt: "", decoding: "async", draggable: "false", class: Math.max(width, height) < 96 && "pixelated", src, onerror }),
		);
		const overlay = side().overlays.find((one) => one.image === column.name);
		for (const name of overlay?.boxes ?? []) {
			const boxes = rows.cell(row, name);
			if (boxes?.boxes) frame.append(h("div.boxes", makeBoxes(/** @type {Boxes} */ (boxes), orientation, findColumn(name)?.classes ?? null)));
		}
		for (const name of (prefer().masks && overlay?.masks) || []) {
			const mask = rows.cell(row, name);
			if (!mask?.missing && mask?.image?.state !== "damaged") frame.append(renderMask(query, name, orientation));
		}
		return frame;
	}

	const masks = new Map();
	function renderMask(query, name, orientation) {
		const canvas = h("canvas.mask", { "aria-hidden": "true" });
		const key = `${query.split} ${query.record} ${name}`;
		const loading = masks.get(key) ?? getMask({ ...query, feature: name, px: 256 }, until);
		masks.set(key, loading);
		if (masks.size > MAX_KEPT_MASKS) masks.delete(masks.keys().next().value);
		loading
			.then((data) => drawMask(canvas, uprightMask(data, orientation), { ignore: findColumn(name)?.ignore, patterns: prefer().patterns }))
			.catch(() => {
				masks.delete(key);
				canvas.remove();
			});
		return canvas;
	}

	function drawHead() {
		// As wide as its name, within limits: names that begin alike can be told apart.
		const widths = rows.columns.map((name) => clamp(8 * name.length + 24, 110, 230));
		table.style.setProperty("--template", widths.map((width) => `minmax(${width}px, 1fr)`).join(" "));
		table.style.setProperty("--width", `${widths.reduce((sum, one) => sum + one, 0)}px`);
		show(headRow, h("span", { role: "columnheader" }, "record"), rows.columns.map(renderHead));
		table.setAttribute("aria-rowcount", rows.complete ? String(rows.total + 1) : "-1");
	}

	function renderHead(name) {
		const column = findColumn(name);
		const text = bdi(name, 60, { title: column?.summary });
		if (!column?.facet || column.view === "image") return h("span", { role: "columnheader" }, text);
		const now = state().sort;
		const [direction, arrow, sort] = now === name ? ["ascending", " ↑", `-${name}`] : now === `-${name}` ? ["descending", " ↓", ""] : ["none", "", name];
		return h("span", { role: "columnheader", "aria-sort": direction }, h("button.head", { onclick: () => go({ sort, at: 0 }) }, text, h("i", { "aria-hidden": "true" }, arrow)));
	}

	function renderRow(index) {
		const row = rows.at(index);
		if (!row) return h("div.table-row.pending", { role: "row" }, h("span", { role: "cell" }, "…"));
		return h("div",
			{ role: "row", class: isSelected(row.split, row.record) ? "table-row selected" : "table-row", "aria-rowindex": index + 2, "data-index": index },
			h("span.record-cell", { role: "cell" }, recordBox(row), recordAnchor(row, index, {}, count(row.record)), stateBadge(row.state), findingBadge(row.findings)),
			row.cells.map((cell, i) => h("span", { role: "cell", class: cell.missing && "soft" }, renderCell(row, rows.columns[i], cell))),
		);
	}

	function renderCell(row, feature, cell) {
		if (cell.missing) return ["missing"];
		const text = bdi(cell.text, 120, { title: printable(cell.text) });
		if (cell.code !== undefined) return [classDot(cell.code), text];
		if (cell.image?.state !== "ok" || !findColumn(feature) || row.state !== "ok") return [text];
		return [h("img.cell-image", { alt: "", src: mediaAddress("thumb", { ...recordQuery(row.split, row.record), feature, px: 64 }) }), text];
	}

	function focusActive() {
		const anchor = scroller.items.get(active)?.querySelector("a");
		wantsFocus = !anchor;
		if (!anchor) return;
		for (const one of list.querySelectorAll("a[tabindex='0']")) one.setAttribute("tabindex", "-1");
		anchor.tabIndex = 0;
		anchor.focus({ preventScroll: true });
	}

	function moveTo(index) {
		jumpTo = index >= rows.total && !rows.complete ? index : null;
		active = clamp(index, 0, Math.max(rows.total - 1, 0));
		scroller.reveal(active);
		focusActive();
	}

	scrollHost.addEventListener("keydown", (event) => {
		if (hasModifier(event) || !(event.target instanceof HTMLAnchorElement)) return;
		const columns = scroller.columns();
		const page = columns * scroller.visibleRows();
		const move = Reflect.get({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page, Home: -rows.total, End: rows.total }, event.key);
		if (move === undefined) return;
		event.preventDefault();
		moveTo(active + move);
	});

	onSelection(() => {
		for (const [index, item] of scroller.items) {
			const row = rows.at(index);
			const box = item.querySelector("input");
			if (row && box) item.classList.toggle("selected", (box.checked = isSelected(row.split, row.record)));
		}
	}, until);
	onPreference((changed) => {
		if (changed === "tile") layout();
		if (isGallery && (changed === "patterns" || changed === "masks")) scroller.refresh();
	}, until);
	// Rows that were fetched before the check was done do not have its findings.
	let checked = getStatus()?.check.findings ?? 0;
	onStatus((status) => {
		if (!growTotal()) {
			if (rows.isLoaded && !rows.complete && !rows.isLoading()) void rows.load(rows.total);
			if (rows.total === 0) tell();
		}
		const found = status?.check.state === "done" ? status.check.findings : checked;
		if (found === checked) return;
		checked = found;
		rows.fetchAgain(...scroller.shown());
	}, until);
	onResize(scrollHost, layout, until);
	until.addEventListener("abort", () => (clearTimeout(remembering), clearTimeout(wanting)));
	tell();
	void rows.load(active);

	return {
		focus: focusActive,
		current: () => rows.at(active) ?? null,
		jump(index) {
			moveTo(index);
			announce(`Record ${index}`);
		},
		total: () => rows.total,
	};
}
