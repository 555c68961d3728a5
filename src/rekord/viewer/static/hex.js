// @ts-check
// The bytes of a frame, with their positions in the file and the parts of the frame.

import { get } from "./api.js";
import { bytes, count, h, show } from "./dom.js";
import { showAnswer } from "./parts.js";

const PAGE = 1024;
const WIDTH = 16;

/** @type {mountHex} */
export function mountHex(host, query, until) {
	const body = h("div");
	const load = () => body.childElementCount || void page(0);
	show(host, h("details", { ontoggle: load }, h("summary", h("h3", "Bytes of the frame")), body));

	const page = (first) => void showAnswer(body, until, get("hex", { ...query, first, count: PAGE }, until), draw);

	function draw({ offset, frame_bytes, first, hex, parts }) {
		const lines = [];
		for (let at = 0; at < hex.length / 2; at += WIDTH) {
			const pairs = hex.slice(at * 2, (at + WIDTH) * 2).match(/../g) ?? [];
			const text = pairs.map((pair) => letter(parseInt(pair, 16))).join("");
			const inFrame = first + at;
			lines.push(
				h("div.hex-line", h("span.hex-offset", String(offset + inFrame).padStart(10)), " ", ...pairs.map((pair, i) => h("span", { class: `hex-byte ${className(inFrame + i, parts)}` }, `${pair} `)), h("span.hex-text", " ".repeat((WIDTH - pairs.length) * 3) + text)),
			);
		}
		const legend = parts.map((part) =>
			h("li", h("span", { class: `hex-byte ${className(part.first, parts)}` }, part.name), ` ${count(part.bytes)} bytes at ${count(offset + part.first)}`, part.ok === false ? h("span.pill.alert", "does not match") : part.ok ? h("span.pill", "ok") : null),
		);
		const end = first + hex.length / 2;
		show(
			body,
			h("p.soft.small", `Frame at byte ${count(offset)} of the file, ${bytes(frame_bytes)}. Left: the position in the file.`),
			h("ul.hex-parts", legend),
			h("pre.hex", { tabindex: "0", "aria-label": "Bytes in hexadecimal" }, lines),
			h("nav.pager", { "aria-label": "Bytes" }, h("button", { disabled: first === 0, onclick: () => page(Math.max(first - PAGE, 0)) }, "Previous"), h("span", `bytes ${count(first)}–${count(end)} of ${count(frame_bytes)}`), h("button", { disabled: end >= frame_bytes, onclick: () => page(end) }, "Next")),
		);
	}
}

const letter = (byte) => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·";

function className(at, parts) {
	const part = parts.find((one) => at >= one.first && at < one.first + one.bytes);
	return part ? `hex-${part.name.replaceAll(" ", "-")}` : "";
}
