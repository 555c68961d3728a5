// @ts-check
// The bytes of a frame, with their positions in the file and the parts of the frame.

import { get } from "./api.js";
import { bytes, count, h, show } from "./dom.js";
import { makePager, showAnswer } from "./parts.js";

const PAGE = 1024;
const WIDTH = 16;

/** @type {mountHex} */
export function mountHex(query, until) {
	const body = h("div");
	const page = (first) => void showAnswer(body, until, get("hex", { ...query, first, count: PAGE }, until), draw);

	function draw({ offset, frame_bytes, first, hex, parts }) {
		const style = (at) => {
			const part = parts.find((one) => at >= one.first && at < one.first + one.bytes);
			return { class: `hex-byte ${part ? `hex-${part.name.replaceAll(" ", "-")}` : ""}` };
		};
		const pairs = hex.match(/../g) ?? [];
		const lines = Array.from({ length: Math.ceil(pairs.length / WIDTH) }, (_, i) => {
			const at = first + i * WIDTH;
			const line = pairs.slice(i * WIDTH, (i + 1) * WIDTH);
			const text = line.map((pair) => letter(parseInt(pair, 16))).join("");
			return h("div.hex-line", h("span.hex-offset", String(offset + at).padStart(10)), " ", line.map((pair, j) => h("span", style(at + j), `${pair} `)), h("span.hex-text", " ".repeat((WIDTH - line.length) * 3) + text));
		});
		const legend = parts.map((part) =>
			h("li", h("span", style(part.first), part.name), ` ${count(part.bytes)} bytes at ${count(offset + part.first)}`, part.ok === false ? h("span.pill.alert", "does not match") : part.ok ? h("span.pill", "ok") : null),
		);
		const end = first + pairs.length;
		show(
			body,
			h("p.soft.small", `Frame at byte ${count(offset)} of the file, ${bytes(frame_bytes)}. Left: the position in the file.`),
			h("ul.hex-parts", legend),
			h("pre.hex", { tabindex: "0", label: "Bytes in hexadecimal" }, lines),
			makePager("Bytes", first, first - PAGE, end, frame_bytes, `bytes ${count(first)}–${count(end)} of ${count(frame_bytes)}`, page),
		);
	}

	return h("section.panel", h("details", { ontoggle: () => body.childElementCount || page(0) }, h("summary", h("h3", "Bytes of the frame")), body));
}

const letter = (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·");
