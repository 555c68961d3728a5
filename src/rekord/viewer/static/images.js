// Images with their masks and boxes. Class ids become colours on a canvas, through a lookup table; they stay in memory,
// and none is read from a canvas. Browsers show an image upright; boxes and masks count the pixels as they are stored.

import { clamp, h, hasModifier, onceAFrame, printable } from "./dom.js";
import { onPreference, prefer } from "./preferences.js";

// The colours of the reports (codec/preview.py); class 0 is usually the background and stays clear.
/** @type {[number, number, number][]} */
const COLOURS = [
	[230, 57, 70], [42, 157, 143], [244, 162, 97], [69, 123, 157], [233, 196, 106],
	[155, 93, 229], [0, 187, 249], [241, 91, 181], [106, 153, 78], [188, 108, 37],
];
const PATTERNS = ["solid", "diagonal lines", "horizontal lines", "dots", "vertical lines"];

/** @type {classColour} */
export const classColour = (id) => id > 0 ? `rgb(${COLOURS[(id - 1) % COLOURS.length].join(" ")})` : "transparent";

/** @type {patternName} */
export const patternName = (id) => PATTERNS[patternOf(id)];

// Neighbouring ids differ in pattern, and ids of the same colour do too.
const patternOf = (id) => id > 0 ? (id - 1 + Math.floor((id - 1) / COLOURS.length)) % PATTERNS.length : 0;

function isGap(pattern, x, y) {
	if (pattern === 1) return ((x + y) & 7) < 3;
	if (pattern === 2) return (y & 7) < 3;
	if (pattern === 3) return (x & 7) < 4 || (y & 7) < 4;
	return pattern === 4 && (x & 7) < 3;
}

const isLittleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

function pack([red, green, blue], alpha) {
	return isLittleEndian
		? ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0
		: ((red << 24) | (green << 16) | (blue << 8) | alpha) >>> 0;
}

const MAX_KEPT_PIXELS = 1 << 23;
/** @type {WeakMap<HTMLCanvasElement, ImageData>} what a canvas was drawn from: allocating it takes as long as filling it */
const kept = new WeakMap();

/** @type {drawMask} */
export function drawMask(canvas, { ids, width, height }, { ignore = null, hidden = new Set(), patterns = false } = {}) {
	const context = canvas.getContext("2d");
	if (!context) return;
	const known = canvas.width === width && canvas.height === height ? kept.get(canvas) : undefined;
	if (!known) [canvas.width, canvas.height] = [width, height];
	const image = known ?? context.createImageData(width, height);
	if (width * height <= MAX_KEPT_PIXELS) kept.set(canvas, image);
	const pixels = new Uint32Array(image.data.buffer);
	/** @returns {[number, number, number]} */
	const colourOf = (id) => (id === ignore ? [128, 128, 128] : COLOURS[(id - 1) % COLOURS.length]);
	const isClear = (id) => id <= 0 || hidden.has(id);
	if (!(ids instanceof Uint8Array)) {
		for (let i = 0; i < pixels.length; i += 1) pixels[i] = isClear(ids[i]) ? 0 : pack(colourOf(ids[i]), 255);
	} else if (!patterns) {
		const table = Uint32Array.from({ length: 256 }, (_, id) => (isClear(id) ? 0 : pack(colourOf(id), 255)));
		for (let i = 0; i < pixels.length; i += 1) pixels[i] = table[ids[i]];
	} else {
		// Patterns repeat after 8 pixels: the colour of each id in each of 64 places.
		const table = Uint32Array.from({ length: 256 * 64 }, (_, at) => {
			const id = at >> 6;
			return isClear(id) ? 0 : pack(colourOf(id), isGap(patternOf(id), at & 7, (at >> 3) & 7) ? 70 : 255);
		});
		for (let y = 0, i = 0; y < height; y += 1) {
			const line = (y & 7) << 3;
			for (let x = 0; x < width; x += 1, i += 1) pixels[i] = table[(ids[i] << 6) | line | (x & 7)];
		}
	}
	context.putImageData(image, 0, 0);
}

/** @type {makeSwatch} */
export function makeSwatch(id, patterns, ignore = null) {
	const canvas = h("canvas.swatch", { "aria-hidden": "true" });
	drawMask(canvas, { ids: new Uint8Array(16 * 16).fill(Math.max(id, 0)), width: 16, height: 16 }, { patterns, ignore });
	return canvas;
}

/** @type {countIds} */
export function countIds({ ids }) {
	/** @type {Map<number, number>} */
	const counts = new Map();
	for (let i = 0, start = 0; i < ids.length; start = i) {
		while (i < ids.length && ids[i] === ids[start]) i += 1;
		counts.set(ids[start], (counts.get(ids[start]) ?? 0) + i - start);
	}
	return [...counts].sort((a, b) => b[1] - a[1]);
}

/** @type {pixelAt} */
export function pixelAt(element, width, height, { clientX, clientY }) {
	const box = element.getBoundingClientRect();
	const scale = Math.min(box.width / width, box.height / height);
	const x = Math.floor((clientX - box.left - (box.width - width * scale) / 2) / scale);
	const y = Math.floor((clientY - box.top - (box.height - height * scale) / 2) / scale);
	return x >= 0 && y >= 0 && x < width && y < height ? [x, y] : null;
}

// Of the orientations 1 to 8: are the axes swapped, and is then x or y of the upright image mirrored?
const TURNS = [
	[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1],
];

const turn = (orientation) => TURNS[orientation] ?? TURNS[1];

/** @type {uprightSize} */
export const uprightSize = (orientation, width, height) => turn(orientation)[0] ? [height, width] : [width, height];

/** @type {storedPixel} */
export function storedPixel(orientation, width, height, x, y) {
	const [isSwapped, mirrorX, mirrorY] = turn(orientation);
	const [w, h] = uprightSize(orientation, width, height);
	const [a, b] = [mirrorX ? w - 1 - x : x, mirrorY ? h - 1 - y : y];
	return isSwapped ? [b, a] : [a, b];
}

/** @type {uprightBox} */
export function uprightBox(orientation, [ymin, xmin, ymax, xmax]) {
	const [a, b] = [uprightPoint(orientation, xmin, ymin), uprightPoint(orientation, xmax, ymax)];
	const [left, top] = [Math.min(a[0], b[0]), Math.min(a[1], b[1])];
	return { left, top, width: Math.abs(a[0] - b[0]), height: Math.abs(a[1] - b[1]) };
}

function uprightPoint(orientation, x, y) {
	const [isSwapped, mirrorX, mirrorY] = turn(orientation);
	const [a, b] = isSwapped ? [y, x] : [x, y];
	return [mirrorX ? 1 - a : a, mirrorY ? 1 - b : b];
}

/** @type {uprightMask} */
export function uprightMask(mask, orientation) {
	if (orientation <= 1 || orientation > 8) return mask;
	const [width, height] = uprightSize(orientation, mask.width, mask.height);
	const ids = mask.ids.slice();
	for (let y = 0, i = 0; y < height; y += 1) {
		for (let x = 0; x < width; x += 1, i += 1) {
			const [sx, sy] = storedPixel(orientation, mask.width, mask.height, x, y);
			ids[i] = mask.ids[sy * mask.width + sx];
		}
	}
	return { ids, width, height };
}

const MAX_ZOOM = 64;

/** @type {makeZoom} */
export function makeZoom() {
	/** @type {(() => void)[]} */
	const listeners = [];
	const zoom = { scale: 1, x: 0.5, y: 0.5, listeners, set };
	function set(scale, x = zoom.x, y = zoom.y) {
		zoom.scale = clamp(scale, 1, MAX_ZOOM);
		const half = 0.5 / zoom.scale;
		zoom.x = clamp(x, half, 1 - half);
		zoom.y = clamp(y, half, 1 - half);
		for (const listener of listeners) listener();
	}
	return zoom;
}

/** @type {makeStage} */
export function makeStage({ src, alt, width, height, orientation = 1, zoom = makeZoom(), onRead = () => {}, until }) {
	const [across, down] = uprightSize(orientation, width, height);
	/** @type {Overlay[]} */
	const masks = [];
	/** @type {Set<number>} */
	const hiddenIds = new Set();
	/** @type {[number, number]} the pixel that the keyboard points at */
	let cursor = [Math.floor(across / 2), Math.floor(down / 2)];
	const image = h("img", { src, alt, draggable: "false", decoding: "async", onerror: () => element.classList.add("failed") });
	const layers = h("div.layers");
	const boxLayer = h("div.boxes");
	const mark = h("i.cursor", { hidden: true });
	const content = h("div.stage-content", image, layers, boxLayer, mark);
	const label = `${alt}. Arrow keys read pixels, + and − zoom, 0 fits.`;
	const style = { "aspect-ratio": `${across} / ${down}`, "--ratio": across / down };
	/** @type {PointerEvent | null} */
	let grabbed = null;
	const release = () => (grabbed = null);
	const readAt = onceAFrame((point) => onRead(read(pixelAt(content, across, down, point))));
	const element = h("div.stage", {
		tabindex: "0", role: "application", label, style, onkeydown,
		onpointerup: release,
		onpointercancel: release,
		onpointerleave: () => onRead(null),
		onblur: () => (mark.hidden = true),
		onpointerdown(event) {
			grabbed = event;
			element.setPointerCapture(event.pointerId);
		},
		onpointermove(event) {
			if (grabbed && zoom.scale > 1) {
				const box = content.getBoundingClientRect();
				zoom.set(zoom.scale, zoom.x - (event.clientX - grabbed.clientX) / box.width, zoom.y - (event.clientY - grabbed.clientY) / box.height);
				grabbed = event;
			}
			readAt(event);
		},
	}, content);
	element.addEventListener("wheel", onwheel, { passive: false });
	zoom.listeners.push(place);
	onPreference((changed) => changed === "patterns" && drawMasks(), until);

	function onwheel(event) {
		// Without a modifier the wheel scrolls the page, unless the image is zoomed already.
		if (!event.ctrlKey && !event.metaKey && zoom.scale === 1 && document.activeElement !== element) return;
		event.preventDefault();
		const box = content.getBoundingClientRect();
		const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
		const scale = clamp(zoom.scale * Math.exp(-event.deltaY / 400), 1, MAX_ZOOM);
		const kept = zoom.scale / scale; // the point below the pointer stays where it is
		zoom.set(scale, x + (zoom.x - x) * kept, y + (zoom.y - y) * kept);
	}

	function onkeydown(event) {
		if (hasModifier(event)) return;
		const step = event.shiftKey ? 10 : 1;
		const move = Reflect.get({ ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }, event.key);
		if (move) pointAt(cursor[0] + move[0], cursor[1] + move[1]);
		else if (event.key === "+" || event.key === "=") zoom.set(zoom.scale * 1.5, (cursor[0] + 0.5) / across, (cursor[1] + 0.5) / down);
		else if (event.key === "-") zoom.set(zoom.scale / 1.5);
		else if (event.key === "0") zoom.set(1);
		else return;
		event.preventDefault();
		event.stopPropagation();
	}

	function pointAt(x, y) {
		cursor = [clamp(x, 0, across - 1), clamp(y, 0, down - 1)];
		mark.hidden = false;
		mark.style.left = `${(100 * (cursor[0] + 0.5)) / across}%`;
		mark.style.top = `${(100 * (cursor[1] + 0.5)) / down}%`;
		onRead(read(cursor));
	}

	/** @type {readPixel} */
	function read(pixel) {
		if (!pixel) return null;
		const [x, y] = storedPixel(orientation, width, height, ...pixel);
		const ids = masks.map(({ feature, data, names, ignore }) => {
			const at = [Math.floor((pixel[0] * data.width) / across), Math.floor((pixel[1] * data.height) / down)];
			const id = data.ids[at[1] * data.width + at[0]];
			return { feature, id, name: id === ignore ? "ignored" : (names?.[id] ?? null) };
		});
		return { x, y, ids };
	}

	function addMask(feature, stored, names, ignore) {
		// A mask that fits the upright image only was made for that one.
		const fitsUpright = orientation >= 5 && stored.width === across && stored.height === down && across !== down;
		const data = fitsUpright ? stored : uprightMask(stored, orientation);
		const canvas = h("canvas.mask", { "aria-hidden": "true" });
		layers.append(canvas);
		masks.push({ canvas, feature, data, counts: countIds(data), names, ignore });
		drawMasks();
	}

	function drawMasks() {
		for (const { canvas, data, ignore } of masks) drawMask(canvas, data, { ignore, hidden: hiddenIds, patterns: prefer().patterns });
	}

	function toggleId(id) {
		if (!hiddenIds.delete(id)) hiddenIds.add(id);
		drawMasks();
	}

	const addBoxes = (boxes, classes) => boxLayer.append(...makeBoxes(boxes, orientation, classes));

	function place() {
		const { scale, x, y } = zoom;
		content.style.transform = `scale(${scale}) translate(${100 * (0.5 / scale - x)}%, ${100 * (0.5 / scale - y)}%)`;
		content.style.setProperty("--zoom", String(scale));
		image.classList.toggle("pixelated", (element.clientWidth * scale) / across > 2);
	}

	return { element, masks, hiddenIds, addMask, addBoxes, toggleId };
}

/** @type {makeBoxes} */
export function makeBoxes({ boxes, labels, names }, orientation, classes) {
	return boxes.map((box, i) => {
		const { left, top, width, height } = uprightBox(orientation, box.map(Number));
		const id = labels?.[i] ?? null;
		const name = names?.[i] ?? (id === null ? null : classes?.[id] ?? String(id));
		const percent = (share) => `${100 * share}%`;
		const style = { left: percent(left), top: percent(top), width: percent(width), height: percent(height), "--colour": classColour(id || hash(name ?? "")) };
		return h("i.box", { style }, name === null ? null : h("b", printable(name, 60)));
	});
}

// A class id for a name without one.
function hash(name) {
	let sum = 0;
	for (const letter of name) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 1_000_003;
	return 1 + (sum % 10);
}
