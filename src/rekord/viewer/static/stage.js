// @ts-check
// An image with its masks and boxes on top, zoomed by wheel, drag and keys; several stages can share one zoom.

import { clamp, h, hasModifier, onceAFrame, printable } from "./dom.js";
import { classColour, countIds, drawMask, pixelAt } from "./masks.js";
import { storedPixel, uprightBox, uprightMask, uprightSize } from "./orientation.js";
import { onPreference, prefer } from "./preferences.js";

const MAX_ZOOM = 64;

/** How far and where stages are zoomed in; x and y are the point at the centre, as fractions. */
export class Zoom {
	constructor() {
		this.scale = 1;
		this.x = 0.5;
		this.y = 0.5;
		/** @type {(() => void)[]} */
		this.listeners = [];
	}

	set(scale, x = this.x, y = this.y) {
		this.scale = clamp(scale, 1, MAX_ZOOM);
		const half = 0.5 / this.scale;
		this.x = clamp(x, half, 1 - half);
		this.y = clamp(y, half, 1 - half);
		for (const listener of this.listeners) listener();
	}
}

export class Stage {
	/** @param {StageOptions} options */
	constructor({ src, alt, width, height, orientation = 1, zoom = new Zoom(), onRead = () => {}, until }) {
		this.stored = { width, height, orientation };
		const upright = uprightSize(orientation, width, height);
		this.width = upright[0];
		this.height = upright[1];
		this.zoom = zoom;
		this.onRead = onRead;
		/** @type {Overlay[]} */
		this.masks = [];
		/** @type {Set<number>} */
		this.hiddenIds = new Set();
		/** @type {[number, number]} the pixel that the keyboard points at */
		this.cursor = [Math.floor(this.width / 2), Math.floor(this.height / 2)];
		this.image = h("img", { src, alt, draggable: "false", decoding: "async", onerror: () => this.element.classList.add("failed") });
		this.layers = h("div.layers");
		this.boxes = h("div.boxes");
		this.mark = h("i.cursor", { hidden: true });
		this.content = h("div.stage-content", this.image, this.layers, this.boxes, this.mark);
		const label = `${alt}. Arrow keys read pixels, + and − zoom, 0 fits.`;
		const style = { "aspect-ratio": `${this.width} / ${this.height}`, "--ratio": this.width / this.height };
		this.element = h("div.stage", { tabindex: "0", role: "application", label, style }, this.content);
		zoom.listeners.push(() => this.place());
		onPreference((changed) => changed === "patterns" && this.drawMasks(), until);
		this.listen();
	}

	listen() {
		const { element, zoom } = this;
		/** @type {PointerEvent | null} */
		let grabbed = null;
		const read = onceAFrame((point) => this.onRead(this.read(pixelAt(this.content, this.width, this.height, point))));
		const release = () => (grabbed = null);
		element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
		element.addEventListener("pointerdown", (event) => {
			grabbed = event;
			element.setPointerCapture(event.pointerId);
		});
		element.addEventListener("pointerup", release);
		element.addEventListener("pointercancel", release);
		element.addEventListener("pointermove", (event) => {
			if (grabbed && zoom.scale > 1) {
				const box = this.content.getBoundingClientRect();
				zoom.set(zoom.scale, zoom.x - (event.clientX - grabbed.clientX) / box.width, zoom.y - (event.clientY - grabbed.clientY) / box.height);
				grabbed = event;
			}
			read(event);
		});
		element.addEventListener("pointerleave", () => this.onRead(null));
		element.addEventListener("keydown", (event) => this.key(event));
		element.addEventListener("blur", () => (this.mark.hidden = true));
	}

	wheel(event) {
		const { zoom } = this;
		// Without a modifier the wheel scrolls the page, unless the image is zoomed already.
		if (!event.ctrlKey && !event.metaKey && zoom.scale === 1 && document.activeElement !== this.element) return;
		event.preventDefault();
		const box = this.content.getBoundingClientRect();
		const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
		const scale = clamp(zoom.scale * Math.exp(-event.deltaY / 400), 1, MAX_ZOOM);
		const kept = zoom.scale / scale; // the point below the pointer stays where it is
		zoom.set(scale, x + (zoom.x - x) * kept, y + (zoom.y - y) * kept);
	}

	key(event) {
		if (hasModifier(event)) return;
		const { zoom, cursor, width, height } = this;
		const step = event.shiftKey ? 10 : 1;
		const move = Reflect.get({ ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }, event.key);
		if (move) this.pointAt(cursor[0] + move[0], cursor[1] + move[1]);
		else if (event.key === "+" || event.key === "=") zoom.set(zoom.scale * 1.5, (cursor[0] + 0.5) / width, (cursor[1] + 0.5) / height);
		else if (event.key === "-") zoom.set(zoom.scale / 1.5);
		else if (event.key === "0") zoom.set(1);
		else return;
		event.preventDefault();
		event.stopPropagation();
	}

	pointAt(x, y) {
		this.cursor = [clamp(x, 0, this.width - 1), clamp(y, 0, this.height - 1)];
		this.mark.hidden = false;
		this.mark.style.left = `${(100 * (this.cursor[0] + 0.5)) / this.width}%`;
		this.mark.style.top = `${(100 * (this.cursor[1] + 0.5)) / this.height}%`;
		this.onRead(this.read(this.cursor));
	}

	/** What is at an upright pixel. @param {[number, number] | null} pixel @returns {Reading | null} */
	read(pixel) {
		if (!pixel) return null;
		const { width, height, orientation } = this.stored;
		const [x, y] = storedPixel(orientation, width, height, ...pixel);
		const ids = this.masks.map(({ feature, data, names, ignore }) => {
			const at = [Math.floor((pixel[0] * data.width) / this.width), Math.floor((pixel[1] * data.height) / this.height)];
			const id = data.ids[at[1] * data.width + at[0]];
			return { feature, id, name: id === ignore ? "ignored" : (names?.[id] ?? null) };
		});
		return { x, y, ids };
	}

	addMask(feature, stored, names, ignore) {
		// A mask that fits the upright image only was made for that one.
		const fitsUpright =
			this.stored.orientation >= 5 && stored.width === this.width && stored.height === this.height && this.width !== this.height;
		const data = fitsUpright ? stored : uprightMask(stored, this.stored.orientation);
		this.masks.push({ feature, data, counts: countIds(data), names, ignore });
		this.layers.append(h("canvas.mask", { "aria-hidden": "true" }));
		this.drawMasks();
	}

	drawMasks() {
		this.masks.forEach(({ data, ignore }, i) => {
			const canvas = /** @type {HTMLCanvasElement} */ (this.layers.children[i]);
			drawMask(canvas, data, { ignore, hidden: this.hiddenIds, patterns: prefer().patterns });
		});
	}

	toggleId(id) {
		if (!this.hiddenIds.delete(id)) this.hiddenIds.add(id);
		this.drawMasks();
	}

	addBoxes(boxes, classes) {
		this.boxes.append(...makeBoxes(boxes, this.stored.orientation, classes));
	}

	place() {
		const { scale, x, y } = this.zoom;
		this.content.style.transform = `scale(${scale}) translate(${100 * (0.5 / scale - x) }%, ${100 * (0.5 / scale - y)}%)`;
		this.content.style.setProperty("--zoom", String(scale));
		this.image.classList.toggle("pixelated", (this.element.clientWidth * scale) / this.width > 2);
	}
}

/** Boxes with the names of their classes, placed in fractions of the upright image. @type {makeBoxes} */
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
