// @ts-check
// An image with its masks and boxes on top, zoomed by wheel, drag and keys; several stages can share one zoom.

import { h, onceAFrame, printable } from "./dom.js";
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
		this.scale = Math.max(1, Math.min(scale, MAX_ZOOM));
		const half = 0.5 / this.scale;
		this.x = Math.max(half, Math.min(x, 1 - half));
		this.y = Math.max(half, Math.min(y, 1 - half));
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
		this.image = h("img", { src, alt, draggable: "false", decoding: "async" });
		this.image.addEventListener("error", () => this.element.classList.add("failed"));
		this.layers = h("div.layers");
		this.boxes = h("div.boxes");
		this.mark = h("i.cursor", { hidden: true });
		this.content = h("div.stage-content", this.image, this.layers, this.boxes, this.mark);
		this.element = h(
			"div.stage",
			{
				tabindex: "0",
				role: "application",
				"aria-label": `${alt}. Arrow keys read pixels, + and − zoom, 0 fits.`,
			},
			this.content,
		);
		this.element.style.aspectRatio = `${this.width} / ${this.height}`;
		this.element.style.setProperty("--ratio", String(this.width / this.height));
		zoom.listeners.push(() => this.place());
		onPreference((changed) => changed === "patterns" && this.drawMasks(), until);
		this.listen();
	}

	listen() {
		const element = this.element;
		element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
		let grabbed = null;
		element.addEventListener("pointerdown", (event) => {
			grabbed = { x: event.clientX, y: event.clientY };
			element.setPointerCapture(event.pointerId);
		});
		element.addEventListener("pointerup", () => (grabbed = null));
		element.addEventListener("pointercancel", () => (grabbed = null));
		const read = onceAFrame((point) => {
			this.onRead(this.read(pixelAt(this.content, this.width, this.height, point)));
		});
		element.addEventListener("pointermove", (event) => {
			if (grabbed && this.zoom.scale > 1) {
				const box = this.content.getBoundingClientRect();
				const [dx, dy] = [event.clientX - grabbed.x, event.clientY - grabbed.y];
				grabbed = { x: event.clientX, y: event.clientY };
				this.zoom.set(this.zoom.scale, this.zoom.x - dx / box.width, this.zoom.y - dy / box.height);
			}
			read({ clientX: event.clientX, clientY: event.clientY });
		});
		element.addEventListener("pointerleave", () => this.onRead(null));
		element.addEventListener("keydown", (event) => this.key(event));
		element.addEventListener("blur", () => (this.mark.hidden = true));
	}

	wheel(event) {
		// Without a modifier the wheel scrolls the page, unless the image is zoomed already.
		if (!event.ctrlKey && !event.metaKey && this.zoom.scale === 1 && document.activeElement !== this.element) return;
		event.preventDefault();
		const box = this.content.getBoundingClientRect();
		const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
		const scale = Math.max(1, Math.min(this.zoom.scale * Math.exp(-event.deltaY / 400), MAX_ZOOM));
		const kept = this.zoom.scale / scale; // the point below the pointer stays where it is
		this.zoom.set(scale, x + (this.zoom.x - x) * kept, y + (this.zoom.y - y) * kept);
	}

	key(event) {
		if (event.ctrlKey || event.metaKey || event.altKey) return;
		const step = event.shiftKey ? 10 : 1;
		const moves = /** @type {Record<string, [number, number]>} */ ({
			ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step],
		});
		if (event.key in moves) {
			const [dx, dy] = moves[event.key];
			this.pointAt(this.cursor[0] + dx, this.cursor[1] + dy);
		} else if (event.key === "+" || event.key === "=") {
			this.zoom.set(this.zoom.scale * 1.5, (this.cursor[0] + 0.5) / this.width, (this.cursor[1] + 0.5) / this.height);
		} else if (event.key === "-") this.zoom.set(this.zoom.scale / 1.5);
		else if (event.key === "0") this.zoom.set(1);
		else return;
		event.preventDefault();
		event.stopPropagation();
	}

	pointAt(x, y) {
		this.cursor = [Math.max(0, Math.min(x, this.width - 1)), Math.max(0, Math.min(y, this.height - 1))];
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
		return { x, y, ids, marks: [] };
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
		const isEnlarged = (this.element.clientWidth * scale) / this.width > 2;
		this.image.classList.toggle("pixelated", isEnlarged);
	}
}

/** Boxes with the names of their classes, placed in fractions of the upright image. @type {makeBoxes} */
export function makeBoxes({ boxes, labels, names }, orientation, classes) {
	return boxes.map((box, i) => {
		const { left, top, width, height } = uprightBox(orientation, box.map(Number));
		const id = labels?.[i];
		const name = names?.[i] ?? (id === undefined || id === null ? null : classes?.[id] ?? String(id));
		const element = h("i.box", name === null ? null : h("b", printable(name, 60)));
		const colour = classColour(id === undefined || id === null || id === 0 ? hash(name ?? "") : id);
		element.style.left = `${100 * left}%`;
		element.style.top = `${100 * top}%`;
		element.style.width = `${100 * width}%`;
		element.style.height = `${100 * height}%`;
		element.style.setProperty("--colour", colour);
		return element;
	});
}

// A class id for a name without one.
function hash(name) {
	let sum = 0;
	for (const letter of name) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 1_000_003;
	return 1 + (sum % 10);
}
