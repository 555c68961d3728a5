// @ts-check
// Elements of the page. Text from records only ever becomes a text node or an attribute that holds no code.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "hidden", "tabIndex", "open"]);

/**
 * An HTML element: `h("p.soft", { title: "…" }, children)`; attributes, properties and listeners (`onclick`) are optional.
 * @type {MakeElement}
 */
export const h = (name, first, ...children) => {
	const [tag, ...classes] = name.split(".");
	const element = document.createElement(tag);
	if (tag === "button") element.setAttribute("type", "button");
	if (classes.length) element.className = classes.join(" ");
	const hasProps = first?.constructor === Object;
	return fill(element, hasProps ? first : {}, hasProps ? children : [first, ...children]);
};

/** An SVG element. @type {svg} */
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function fill(element, props, children) {
	for (const [name, value] of Object.entries(props)) {
		if (value === null || value === undefined) continue;
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (PROPERTIES.has(name)) Reflect.set(element, name, value);
		else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
	}
	show(element, ...children);
	return element;
}

/** The children of an element, replaced. @type {show} */
export function show(element, ...children) {
	const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
	element.replaceChildren(.../** @type {(Node | string)[]} */ (shown));
}

/** Text of a record as one line that cannot reorder or hide what is around it: unprintable characters as escapes. @type {printable} */
export function printable(text, limit = 400) {
	const all = String(text);
	const kept = all.length > limit ? `${all.slice(0, limit)}…` : all;
	return kept.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, spellOut);
}

/** A name that may break after its separators. @param {string} name */
export const breakable = (name) => printable(name, 120).split(/(?<=[/_.-])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

/** The same for text of several lines. @param {string} text */
export const printableLines = (text) => text.replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu, spellOut);

function spellOut(letter) {
	const point = letter.codePointAt(0) ?? 0;
	const digits = point.toString(16);
	if (point <= 0xff) return `\\x${digits.padStart(2, "0")}`;
	return point <= 0xffff ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** @param {number} value */
export const count = (value) => value.toLocaleString("en-US");

/** @type {plural} */
export const plural = (n, noun, several = `${noun}s`) => `${count(n)} ${n === 1 ? noun : several}`;

/** @param {number} n */
export function bytes(n) {
	const units = ["B", "kB", "MB", "GB", "TB"];
	let unit = 0;
	while (n >= 1000 && unit < units.length - 1) {
		n /= 1000;
		unit += 1;
	}
	return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** A number as short as it can be read. @param {number | null} value */
export function number(value) {
	if (value === null) return "none";
	if (!Number.isFinite(value)) return String(value);
	if (Number.isInteger(value) && Math.abs(value) < 1e15) return count(value);
	return String(Number(value.toPrecision(5)));
}

/** Those who want to know of something. @type {makeEvent} */
export function makeEvent() {
	const listeners = [];
	return {
		on(listener, until) {
			listeners.push(listener);
			until?.addEventListener("abort", () => listeners.splice(listeners.indexOf(listener), 1));
		},
		emit(...args) {
			for (const listener of [...listeners]) listener(...args);
		},
	};
}

/**
 * A function that runs once per frame at most, with its last arguments.
 * @template {any[]} A
 * @param {(...args: A) => void} run
 * @returns {(...args: A) => void}
 */
export function onceAFrame(run) {
	let next = null;
	return (...args) => {
		if (next === null) {
			requestAnimationFrame(() => {
				const last = /** @type {A} */ (next);
				next = null;
				run(...last);
			});
		}
		next = args;
	};
}
