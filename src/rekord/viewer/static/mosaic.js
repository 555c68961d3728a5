// @ts-check
// The mosaic: up to 100,000 tiny tiles at once, that fill while they arrive and re-sort by class without a request.

import { ApiError, getBytes, getSession, recordSet, side, splitStatus, getStatus, onStatus, sideIndex } from "./api.js";
import { count, h, onceAFrame, plural, printable, show } from "./dom.js";
import { findColumn, imageColumn } from "./gallery.js";
import { classColour } from "./masks.js";
import { emptyState, errorPanel, makeOptions, makeTable } from "./parts.js";
import { onPreference } from "./preferences.js";
import { go, recordState, state } from "./state.js";
import { announce } from "./status.js";

const BATCH = 512;
const PARALLEL = 2;
const HEADER = 20;
const STATES = ["", "no image", "damaged", "too large", "not indexed yet"];

// Many tiles are small, so that all of them fit into memory: 77 MB at most.
const tileSize = (tiles) => tiles <= 2000 ? 48 : tiles <= 10_000 ? 32 : tiles <= 30_000 ? 24 : 16;

/** @type {Mount} */
export function mountMosaic(host, until) {
	const column = imageColumn();
	if (!column) {
		show(host, emptyState("No images", h("p", "A mosaic needs an image in every record.")));
		return null;
	}
	const image = column.name;
	const canvas = h("canvas.mosaic-canvas", { tabindex: "0", role: "application", "aria-label": "Mosaic of records. Arrow keys move, Enter opens, x selects." });
	const spacer = h("div.spacer");
	const scroller = h("div.scroller.mosaic", canvas, spacer);
	const words = h("output.reading");
	const progress = h("progress", { max: 1, "aria-label": "Tiles loaded" });
	const classes = side().columns.filter((one) => one.view === "class" && one.facet);
	const sorted = h("select", { onchange: () => remember() }, h("option", { value: "" }, "file order"), makeOptions(classes.map((one) => one.name)));
	sorted.value = state().more.by ?? "";
	const legend = h("details.mosaic-table", { hidden: true });
	show(host, h("div.mosaic-tools", h("label", "Sort by ", sorted), progress, words), scroller, legend);

	const ready = splitStatus();
	let px = tileSize(ready?.records ?? 1000);
	const { order: _, ...set } = recordSet();
	const batches = [];
	let lines = [];
	let total = 0;
	let loaded = 0;
	let columns = 1;
	let cursor = 0;
	let places = []; // tile numbers in the order shown
	let label = state().more.by || side().label || classes[0]?.name || null;
	let run = new AbortController();

	function remember() {
		const { by: __, ...more } = state().more;
		go({ more: sorted.value ? { ...more, by: sorted.value } : more }, { quiet: true });
		if (sorted.value && sorted.value !== label) {
			label = sorted.value;
			restart();
		} else arrange();
		announce(sorted.value ? `Sorted by ${sorted.value}` : "In file order");
	}

	const batchOf = (tile) => batches[Math.floor(tile / BATCH)];
	const entry = (tile) => HEADER + 12 * (tile - batchOf(tile).first);
	const recordOf = (tile) => batchOf(tile).view.getUint32(entry(tile), true);
	const codeOf = (tile) => batchOf(tile).view.getInt32(entry(tile) + 4, true);
	const splitOf = (tile) => side().splits[batchOf(tile).view.getUint8(entry(tile) + 8)]?.name ?? "";
	const stateOf = (tile) => batchOf(tile).view.getUint8(entry(tile) + 9);

	function restart() {
		run.abort();
		run = new AbortController();
		batches.length = 0;
		loaded = 0;
		void fill();
	}

	async function fill() {
		const signal = run.signal;
		let next = 0;
		const worker = async () => {
			while (!signal.aborted && !until.aborted && (next === 0 || next < Math.min(total, getSession().limits.tiles))) {
				const first = next;
				next += BATCH;
				if (!(await fetchBatch(first, signal))) return;
				if (first === 0) break;
			}
		};
		await worker(); // the first batch tells how many there are
		await Promise.all(Array.from({ length: PARALLEL }, worker));
		if (!signal.aborted && !until.aborted) {
			progress.hidden = true;
			announce(`${plural(loaded, "tile")} loaded`);
			drawTable();
		}
	}

	async function fetchBatch(first, signal) {
		try {
			const both = AbortSignal.any([signal, until]);
			const data = await getBytes("mosaic", { ...set, feature: image, label, px, first, count: BATCH }, both);
			const view = new DataView(data);
			const [size, start, tiles, all] = [4, 8, 12, 16].map((at) => view.getUint32(at, true));
			if (both.aborted) return false;
			total = all;
			if (tileSize(total) < px) {
				px = tileSize(total);
				restart();
				return false;
			}
			batches[Math.floor(start / BATCH)] = { px: size, first: start, count: tiles, view, pixels: new Uint8Array(data, HEADER + 12 * tiles) };
			loaded += tiles;
			progress.max = Math.max(Math.min(total, getSession().limits.tiles), 1);
			progress.value = loaded;
			if (total === 0) show(words, "No record matches.");
			arrange();
			return tiles > 0;
		} catch (error) {
			if (signal.aborted || until.aborted) return false;
			if (error instanceof ApiError && error.status === 503) {
				await new Promise((done) => setTimeout(done, 500));
				return fetchBatch(first, signal);
			}
			show(words, errorPanel(error));
			return false;
		}
	}

	// Lines of tiles; sorted by class, each class begins a line below its name.
	const arrange = onceAFrame(() => {
		columns = Math.max(Math.floor(scroller.clientWidth / px), 1);
		const present = listTiles();
		const groups = sorted.value ? groupByClass(present) : [{ code: -2, tiles: present }];
		lines = [];
		places = [];
		let top = 0;
		for (const { code, tiles } of groups) {
			if (code !== -2) {
				lines.push({ top, label: `${className(code)} (${count(tiles.length)})`, code, tiles: [] });
				top += 24;
			}
			for (let i = 0; i < tiles.length; i += columns) {
				lines.push({ top, label: null, code, tiles: tiles.slice(i, i + columns) });
				top += px;
			}
			places.push(...tiles);
		}
		spacer.style.height = `${Math.max(top - scroller.clientHeight, 0)}px`;
		draw();
	});

	const listTiles = () => batches.flatMap((one) => Array.from({ length: one.count }, (__, i) => one.first + i));

	function groupByClass(tiles) {
		const groups = new Map();
		for (const tile of tiles) {
			const code = codeOf(tile);
			const group = groups.get(code);
			if (group) group.push(tile);
			else groups.set(code, [tile]);
		}
		return [...groups].sort((a, b) => a[0] - b[0]).map(([code, members]) => ({ code, tiles: members }));
	}

	function className(code) {
		if (code < 0) return "no class";
		return printable((label && findColumn(label)?.classes?.[code]) || `class ${code}`, 60);
	}

	const draw = onceAFrame(() => {
		const [width, height] = [scroller.clientWidth, scroller.clientHeight];
		canvas.width = width;
		canvas.height = height;
		const context = canvas.getContext("2d");
		if (!context || !width || !height) return;
		const out = context.createImageData(width, height);
		const target = new Uint32Array(out.data.buffer);
		const top = scroller.scrollTop;
		const labels = [];
		for (const line of lines) {
			if (line.top + px < top) continue;
			if (line.top > top + height) break;
			if (line.label !== null) labels.push(line);
			line.tiles.forEach((tile, i) => paint(target, width, height, tile, i * px, Math.round(line.top - top)));
		}
		context.putImageData(out, 0, 0);
		const style = getComputedStyle(canvas);
		context.font = `600 13px ${style.fontFamily}`;
		for (const line of labels) {
			context.fillStyle = classColour(line.code + 1);
			context.fillRect(2, line.top - top + 7, 10, 10);
			context.fillStyle = style.color;
			context.fillText(line.label ?? "", 18, line.top - top + 17);
		}
		const spot = document.activeElement === canvas ? find(places[cursor]) : null;
		if (spot) {
			context.lineWidth = 2;
			context.strokeStyle = style.getPropertyValue("--accent");
			context.strokeRect(spot.x + 1, spot.y - top + 1, px - 2, px - 2);
		}
	});

	function paint(target, width, height, tile, left, top) {
		const batch = batchOf(tile);
		const from = (tile - batch.first) * px * px * 3;
		const rows = Math.min(px, height - top);
		for (let y = Math.max(0, -top); y < rows; y += 1) {
			let at = from + y * px * 3;
			let to = (top + y) * width + left;
			for (let x = 0; x < px; x += 1, at += 3, to += 1) {
				target[to] = 0xff000000 | (batch.pixels[at + 2] << 16) | (batch.pixels[at + 1] << 8) | batch.pixels[at];
			}
		}
	}

	function find(tile) {
		if (tile === undefined) return null;
		for (const line of lines) {
			const i = line.tiles.indexOf(tile);
			if (i >= 0) return { x: i * px, y: line.top };
		}
		return null;
	}

	function tileAt({ clientX, clientY }) {
		const box = canvas.getBoundingClientRect();
		const [x, y] = [clientX - box.left, clientY - box.top + scroller.scrollTop];
		const line = lines.find((one) => one.label === null && y >= one.top && y < one.top + px);
		return line?.tiles[Math.floor(x / px)];
	}

	function tell(tile) {
		if (tile === undefined) return show(words);
		const fault = STATES[stateOf(tile)];
		show(words, `Record ${count(recordOf(tile))}`, label ? `, ${className(codeOf(tile))}` : null, fault ? `, ${fault}` : null);
	}

	function open(tile) {
		if (tile !== undefined) go({ ...recordState(splitOf(tile), recordOf(tile)), more: state().more });
	}

	function drawTable() {
		if (!label) return;
		const groups = groupByClass(listTiles());
		legend.hidden = false;
		show(legend, h("summary", "Table"), makeTable("Classes of the mosaic", ["class", "tiles"], groups.map(({ code, tiles }) => [className(code), tiles.length]), "small-table"));
	}

	canvas.addEventListener("pointermove", (event) => tell(tileAt(event)));
	canvas.addEventListener("pointerleave", () => tell(undefined));
	canvas.addEventListener("click", (event) => open(tileAt(event)));
	canvas.addEventListener("focus", () => (draw(), tell(places[cursor])));
	canvas.addEventListener("blur", draw);
	canvas.addEventListener("keydown", (event) => {
		const moves = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -places.length, End: places.length });
		if (event.ctrlKey || event.metaKey || event.altKey) return;
		if (event.key in moves) {
			cursor = Math.max(0, Math.min(cursor + moves[event.key], places.length - 1));
			const spot = find(places[cursor]);
			if (spot) scroller.scrollTop = Math.max(Math.min(scroller.scrollTop, spot.y), spot.y + px - scroller.clientHeight);
			tell(places[cursor]);
			draw();
		} else if (event.key === "Enter") open(places[cursor]);
		else return;
		event.preventDefault();
	});
	scroller.addEventListener("scroll", draw, { passive: true });
	const observer = new ResizeObserver(() => arrange());
	observer.observe(scroller);
	until.addEventListener("abort", () => (observer.disconnect(), run.abort()));
	onPreference((changed) => changed === "theme" && draw(), until);
	// Records found after the first batch: begin again once, when all are known.
	onStatus(() => {
		const split = getStatus()?.sides[sideIndex()]?.splits.find((one) => one.name === splitStatus()?.name);
		if (split?.complete && split.records > total && loaded >= total && total > 0 && !state().filters.length && !state().where && !Object.keys(state().more).some((one) => ["finding", "cell", "tag"].includes(one))) {
			if (total < getSession().limits.tiles) restart();
		}
	}, until);
	void fill();

	return {
		focus: () => canvas.focus(),
		current: () => (places[cursor] === undefined ? null : { split: splitOf(places[cursor]), record: recordOf(places[cursor]) }),
		jump(index) {
			cursor = Math.max(0, Math.min(index, places.length - 1));
			scroller.scrollTop = find(places[cursor])?.y ?? 0;
			canvas.focus();
		},
		total: () => total,
	};
}
