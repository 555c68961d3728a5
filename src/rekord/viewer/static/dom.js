// Elements of the page, and messages. Text from records only ever becomes a text node or an attribute that holds no code.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "tabIndex"]);

/** @type {MakeElement} */
export const h = (name, first, ...children) => {
	const [tag, ...classes] = name.split(".");
	const element = document.createElement(tag);
	if (tag === "button") element.setAttribute("type", "button");
	if (classes.length) element.className = classes.join(" ");
	const hasProps = first?.constructor === Object;
	return fill(element, hasProps ? first : {}, hasProps ? children : [first, ...children]);
};

/** @type {svg} */
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function fill(element, props, children) {
	for (const [name, value] of Object.entries(props)) {
		if (value === null || value === undefined) continue;
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, String(text));
		else if (PROPERTIES.has(name)) Reflect.set(element, name, value);
		else if (value !== false) element.setAttribute(name === "label" ? "aria-label" : name, value === true ? "" : String(value));
	}
	show(element, ...children);
	return element;
}

/** @type {show} */
export function show(element, ...children) {
	element.replaceChildren(.../** @type {(Node | string)[]} */ (children.flat().filter(Boolean)));
}

/** @type {printable} */
export function printable(text, limit = 400) {
	const all = String(text);
	const kept = all.length > limit ? `${all.slice(0, limit)}…` : all;
	return kept.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, spellOut);
}

/** @type {bdi} */
export const bdi = (text, limit, props = {}) => h("bdi", props, printable(text, limit));

/** @type {breakable} */
export const breakable = (name, title = null) => h("bdi", { title }, printable(name, 120).split(/(?<=[/_.-])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part])));

/** @type {printableLines} */
export const printableLines = (text) => text.replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu, spellOut);

function spellOut(letter) {
	const point = letter.codePointAt(0) ?? 0;
	const [prefix, digits] = point <= 0xff ? ["x", 2] : point <= 0xffff ? ["u", 4] : ["U", 8];
	return `\\${prefix}${point.toString(16).padStart(digits, "0")}`;
}

export const count = (value) => value.toLocaleString("en-US");

/** @type {plural} */
export const plural = (n, noun, several = `${noun}s`) => `${count(n)} ${n === 1 ? noun : several}`;

export function bytes(n) {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let unit = 0;
	for (; n >= 1000 && unit < units.length - 1; unit += 1) n /= 1000;
	return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function number(value) {
	if (value === null) return "none";
	if (!Number.isFinite(value)) return String(value);
	if (Number.isInteger(value) && Math.abs(value) < 1e15) return count(value);
	return String(Number(value.toPrecision(5)));
}

/** @type {clamp} */
export const clamp = (value, low, high) => Math.max(low, Math.min(value, high));

/** @type {makeEvent} */
export function makeEvent() {
	const listeners = new Set();
	return {
		on(listener, until) {
			listeners.add(listener);
			until?.addEventListener("abort", () => listeners.delete(listener));
		},
		emit(...args) {
			for (const listener of [...listeners]) listener(...args);
		},
	};
}

/** @type {onceAFrame} */
export function onceAFrame(run) {
	let next = null;
	return (...args) => {
		if (next === null) {
			requestAnimationFrame(() => {
				const last = next;
				next = null;
				run(...last);
			});
		}
		next = args;
	};
}

/** @type {onResize} */
export function onResize(element, run, until) {
	const observer = new ResizeObserver(() => run());
	observer.observe(element);
	until.addEventListener("abort", () => observer.disconnect());
}

/** @type {hasModifier} */
export const hasModifier = (event) => event.ctrlKey || event.metaKey || event.altKey;

/** @type {part} */
export const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

let timer = 0;

// Tells a screen reader.
export function announce(text) {
	part("spoken").textContent = text;
}

// Tells everybody.
export function notify(text) {
	const toast = part("toast");
	announce(text);
	toast.textContent = text;
	toast.hidden = false;
	clearTimeout(timer);
	timer = setTimeout(() => (toast.hidden = true), 5000);
}
