// The mosaic: up to 100,000 tiny tiles at once, that fill while they arrive and re-sort by class without a request.

import { findColumn, getBytes, getSession, isNarrowed, onStatus, recordSet, side, splitStatus } from "./api.js";
import { announce, clamp, count, h, hasModifier, onceAFrame, onResize, plural, printable, show } from "./dom.js";
import { imageColumn } from "./gallery.js";
import { classColour } from "./images.js";
import { clone, emptyState, errorPanel, makeOptions, makeTable } from "./parts.js";
import { onPreference } from "./preferences.js";
import { go, recordState, state } from "./state.js";

const BATCH = 512;
const PARALLEL = 2;
const HEADER = 20;
const ENTRY = 12;
const LABEL = 24;
const STATES = ["", "no image", "damaged", "too large", "not indexed yet"];
const FILE_ORDER = "file order";

// Many tiles are small, so that all of them fit into memory: 77 MB at most.
const tileSize = (tiles) => (tiles <= 2000 ? 48 : tiles <= 10_000 ? 32 : tiles <= 30_000 ? 24 : 16);

/** @type {Mount} */
export function mountMosaic(host, until) {
	const image = imageColumn()?.name;
	if (!image) {
		show(host, emptyState("no-images"));
		return null;
	}
	show(host, clone("mosaic"));
	const [sorted, progress, words, scroller, canvas, spacer, legend] = /** @type {NodeListOf<any>} */ (host.querySelectorAll("select, progress, output, .scroller, canvas, .spacer, details"));
	const classes = side().columns.filter((one) => one.view === "class" && one.facet).map((one) => one.name);
	let by = state().more.by ?? "";
	show(sorted, makeOptions([FILE_ORDER, ...classes]));
	sorted.value = by || FILE_ORDER;
	sorted.onchange = () => sortBy(sorted.value);

	const { order: _, ...set } = recordSet();
	const most = getSession().limits.tiles;
	let px = tileSize(splitStatus()?.records ?? 1000);
	const batches = [];
	let lines = [];
	let total = 0;
	let loaded = 0;
	let columns = 1;
	let cursor = 0;
	let places = []; // tile numbers in the order shown
	let label = by || side().label || classes[0] || null;
	let run = new AbortController();

	function sortBy(chosen) {
		by = chosen === FILE_ORDER ? "" : chosen;
		const { by: __, ...more } = state().more;
		go({ more: by ? { ...more, by } : more }, { quiet: true });
		if (by && by !== label) {
			label = by;
			restart();
		} else arrange();
		announce(by ? `Sorted by ${by}` : "In file order");
	}

	const batchOf = (tile) => batches[Math.floor(tile / BATCH)];
	const entryAt = (tile) => HEADER + ENTRY * (tile - batchOf(tile).first);
	const codeOf = (tile) => batchOf(tile).view.getInt32(entryAt(tile) + 4, true);
	function entryOf(tile) {
		const { view } = batchOf(tile);
		const at = entryAt(tile);
		return { record: view.getUint32(at, true), code: codeOf(tile), split: side().splits[view.getUint8(at + 8)]?.name ?? "", fault: STATES[view.getUint8(at + 9)] };
	}

	function restart() {
		run.abort();
		run = new AbortController();
		batches.length = 0;
		loaded = 0;
		void fill(AbortSignal.any([run.signal, until]));
	}

	async function fill(signal) {
		let next = 0;
		const fetchNext = async () => {
			next += BATCH;
			return fetchBatch(next - BATCH, signal);
		};
		const worker = async () => {
			while (!signal.aborted && next < Math.min(total, most) && (await fetchNext()));
		};
		await fetchNext(); // the first batch tells how many there are
		await Promise.all(Array.from({ length: PARALLEL }, worker));
		if (signal.aborted) return;
		progress.hidden = true;
		announce(`${plural(loaded, "tile")} loaded`);
		if (!label) return;
		legend.hidden = false;
		show(legend, h("summary", "Table"), makeTable("Classes of the mosaic", ["class", "tiles"], groupByClass(listTiles()).map(([code, tiles]) => [className(code), tiles.length]), "small-table"));
	}

	async function fetchBatch(wanted, signal) {
		try {
			const data = await getBytes("mosaic", { ...set, feature: image, label, px, first: wanted, count: BATCH }, signal);
			const view = new DataView(data);
			const [size, first, tiles, all] = [4, 8, 12, 16].map((at) => view.getUint32(at, true));
			if (signal.aborted) return false;
			total = all;
			if (tileSize(total) < px) {
				px = tileSize(total);
				restart();
				return false;
			}
			batches[Math.floor(first / BATCH)] = { px: size, first, count: tiles, view, pixels: new Uint8Array(data, HEADER + ENTRY * tiles) };
			loaded += tiles;
			progress.max = Math.max(Math.min(total, most), 1);
			progress.value = loaded;
			if (total === 0) show(words, "No record matches.");
			arrange();
			return tiles > 0;
		} catch (error) {
			if (!signal.aborted) show(words, errorPanel(error));
			return false;
		}
	}

	const arrange = onceAFrame(() => {
		columns = Math.max(Math.floor(scroller.clientWidth / px), 1);
		lines = [];
		places = [];
		let top = 0;
		for (const [code, tiles] of by ? groupByClass(listTiles()) : [[null, listTiles()]]) {
			if (code !== null) {
				lines.push({ top, label: `${className(code)} (${count(tiles.length)})`, code, tiles: [] });
				top += LABEL;
			}
			for (let i = 0; i < tiles.length; i += columns, top += px) lines.push({ top, label: null, code, tiles: tiles.slice(i, i + columns) });
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
			if (!groups.get(code)?.push(tile)) groups.set(code, [tile]);
		}
		return [...groups].sort((a, b) => a[0] - b[0]);
	}

	const className = (code) => (code < 0 ? "no class" : printable(findColumn(label)?.classes?.[code] || `class ${code}`, 60));

	const draw = onceAFrame(() => {
		const [width, height, top] = [scroller.clientWidth, scroller.clientHeight, scroller.scrollTop];
		canvas.width = width;
		canvas.height = height;
		const context = canvas.getContext("2d");
		if (!context || !width || !height) return;
		const image = context.createImageData(width, height);
		const target = new Uint32Array(image.data.buffer);
		const visible = lines.filter((line) => line.top + px >= top && line.top <= top + height);
		for (const line of visible) line.tiles.forEach((tile, i) => paint(target, width, height, tile, i * px, Math.round(line.top - top)));
		context.putImageData(image, 0, 0);
		const style = getComputedStyle(canvas);
		context.font = `600 13px ${style.fontFamily}`;
		for (const line of visible) {
			if (line.label === null) continue;
			context.fillStyle = classColour(Number(line.code) + 1);
			context.fillRect(2, line.top - top + 7, 10, 10);
			context.fillStyle = style.color;
			context.fillText(line.label, 18, line.top - top + 17);
		}
		const spot = document.activeElement === canvas ? find(places[cursor]) : null;
		if (spot) {
			context.lineWidth = 2;
			context.strokeStyle = style.getPropertyValue("--accent");
			context.strokeRect(spot.x + 1, spot.y - top + 1, px - 2, px - 2);
		}
	});

	function paint(target, width, height, tile, left, top) {
		const { first, pixels } = batchOf(tile);
		const rows = Math.min(px, height - top);
		for (let y = Math.max(0, -top); y < rows; y += 1) {
			let at = ((tile - first) * px + y) * px * 3;
			let to = (top + y) * width + left;
			for (let x = 0; x < px; x += 1, at += 3, to += 1) target[to] = 0xff000000 | (pixels[at + 2] << 16) | (pixels[at + 1] << 8) | pixels[at];
		}
	}

	function find(tile) {
		const line = lines.find((one) => one.tiles.includes(tile));
		return line ? { x: line.tiles.indexOf(tile) * px, y: line.top } : null;
	}

	function tileAt({ clientX, clientY }) {
		const box = canvas.getBoundingClientRect();
		const y = clientY - box.top + scroller.scrollTop;
		const line = lines.find((one) => one.label === null && y >= one.top && y < one.top + px);
		return line?.tiles[Math.floor((clientX - box.left) / px)];
	}

	/** @param {number} [tile] */
	function tell(tile) {
		if (tile === undefined) return show(words);
		const { record, code, fault } = entryOf(tile);
		show(words, [`Record ${count(record)}`, label && className(code), fault].filter(Boolean).join(", "));
	}

	function open(tile) {
		if (tile === undefined) return;
		const { split, record } = entryOf(tile);
		go({ ...recordState(split, record), more: state().more });
	}

	canvas.addEventListener("pointermove", (event) => tell(tileAt(event)));
	canvas.addEventListener("pointerleave", () => tell());
	canvas.addEventListener("click", (event) => open(tileAt(event)));
	canvas.addEventListener("focus", () => (draw(), tell(places[cursor])));
	canvas.addEventListener("blur", draw);
	canvas.addEventListener("keydown", (event) => {
		if (hasModifier(event)) return;
		const move = Reflect.get({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -places.length, End: places.length }, event.key);
		if (move !== undefined) {
			cursor = clamp(cursor + move, 0, places.length - 1);
			const spot = find(places[cursor]);
			if (spot) scroller.scrollTop = Math.max(Math.min(scroller.scrollTop, spot.y), spot.y + px - scroller.clientHeight);
			tell(places[cursor]);
			draw();
		} else if (event.key === "Enter") open(places[cursor]);
		else return;
		event.preventDefault();
	});
	scroller.addEventListener("scroll", draw, { passive: true });
	onResize(scroller, arrange, until);
	onPreference((changed) => changed === "theme" && draw(), until);
	// Records found after the first batch: begin again once, when all are known.
	onStatus(() => {
		const split = splitStatus();
		if (split?.complete && split.records > total && loaded >= total && total > 0 && total < most && !isNarrowed()) restart();
	}, until);
	restart();

	return {
		focus: () => canvas.focus(),
		current: () => (places[cursor] === undefined ? null : entryOf(places[cursor])),
		jump(index) {
			cursor = clamp(index, 0, places.length - 1);
			scroller.scrollTop = find(places[cursor])?.y ?? 0;
			canvas.focus();
		},
		total: () => total,
	};
}
