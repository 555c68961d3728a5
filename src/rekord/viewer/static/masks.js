// @ts-check
// Class ids as colours: drawn on a canvas through a lookup table. The ids stay in memory; none is read from a canvas.

import { h } from "./dom.js";

// The colours of the reports (codec/preview.py); class 0 is usually the background and stays clear.
const COLOURS = [
	[230, 57, 70], [42, 157, 143], [244, 162, 97], [69, 123, 157], [233, 196, 106],
	[155, 93, 229], [0, 187, 249], [241, 91, 181], [106, 153, 78], [188, 108, 37],
];
const PATTERNS = ["solid", "diagonal lines", "horizontal lines", "dots", "vertical lines"];

/** The colour of a class id, for CSS. @param {number} id */
export const classColour = (id) => id > 0 ? `rgb(${COLOURS[(id - 1) % COLOURS.length].join(" ")})` : "transparent";

/** The name of the pattern of a class id. @param {number} id */
export const patternName = (id) => PATTERNS[patternOf(id)];

// Neighbouring ids differ in pattern, and ids of the same colour do too.
const patternOf = (id) => id > 0 ? (id - 1 + Math.floor((id - 1) / COLOURS.length)) % PATTERNS.length : 0;

function isGap(pattern, x, y) {
	if (pattern === 1) return ((x + y) & 7) < 3;
	if (pattern === 2) return (y & 7) < 3;
	if (pattern === 3) return (x & 7) < 4 || (y & 7) < 4;
	return pattern === 4 && (x & 7) < 3;
}

// A pixel of a canvas, as the machine orders its bytes.
const pack = (colour, alpha) => new Uint32Array(new Uint8Array([...colour, alpha]).buffer)[0];

const MAX_KEPT_PIXELS = 1 << 23;
/** @type {WeakMap<HTMLCanvasElement, ImageData>} what a canvas was drawn from: allocating it takes as long as filling it */
const kept = new WeakMap();

/** Draw the class ids of a mask. Opacity is a matter of CSS, so that changing it draws nothing again. @type {drawMask} */
export function drawMask(canvas, { ids, width, height }, { ignore = null, hidden = new Set(), patterns = false } = {}) {
	const context = canvas.getContext("2d");
	if (!context) return;
	const known = canvas.width === width && canvas.height === height ? kept.get(canvas) : undefined;
	if (!known) [canvas.width, canvas.height] = [width, height];
	const image = known ?? context.createImageData(width, height);
	if (width * height <= MAX_KEPT_PIXELS) kept.set(canvas, image);
	const pixels = new Uint32Array(image.data.buffer);
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

/** A swatch of a legend: the colour and the pattern of a class. @type {makeSwatch} */
export function makeSwatch(id, patterns, ignore = null) {
	const canvas = h("canvas.swatch", { "aria-hidden": "true" });
	drawMask(canvas, { ids: new Uint8Array(16 * 16).fill(Math.max(id, 0)), width: 16, height: 16 }, { patterns, ignore });
	return canvas;
}

/** The ids of a mask and their numbers of pixels, most first. @type {countIds} */
export function countIds({ ids }) {
	/** @type {Map<number, number>} */
	const counts = new Map();
	for (let i = 0, start = 0; i < ids.length; start = i) {
		while (i < ids.length && ids[i] === ids[start]) i += 1;
		counts.set(ids[start], (counts.get(ids[start]) ?? 0) + i - start);
	}
	return [...counts].sort((a, b) => b[1] - a[1]);
}

/** The pixel of an image below a point of an element that shows it with `object-fit: contain`. @type {pixelAt} */
export function pixelAt(element, width, height, { clientX, clientY }) {
	const box = element.getBoundingClientRect();
	const scale = Math.min(box.width / width, box.height / height);
	const x = Math.floor((clientX - box.left - (box.width - width * scale) / 2) / scale);
	const y = Math.floor((clientY - box.top - (box.height - height * scale) / 2) / scale);
	return x >= 0 && y >= 0 && x < width && y < height ? [x, y] : null;
}
