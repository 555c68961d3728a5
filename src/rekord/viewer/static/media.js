// Sound, video, tensors and bytes of a record.

import { ApiError, get, mediaAddress } from "./api.js";
import { bytes, clamp, count, h, number, printable, show } from "./dom.js";
import { foldedTable, makeFigure, makePager, makeRange, showAnswer } from "./parts.js";

/** @type {mountAudio} */
export function mountAudio(query, { name, value }, until) {
	const { format, rate, channels, seconds } = value.audio;
	const player = h("audio", { controls: true, preload: "metadata", src: mediaAddress("audio", query), label: `Audio ${printable(name, 60)}` });
	const canvas = h("canvas.waveform", { width: 1000, height: 120, role: "img", label: "Waveform" });
	const head = h("i.playhead");
	const wave = h("div.wave", { hidden: true }, canvas, head);
	player.addEventListener("timeupdate", () => {
		if (player.duration) head.style.left = `${(100 * player.currentTime) / player.duration}%`;
	});
	wave.addEventListener("click", (event) => {
		const box = wave.getBoundingClientRect();
		if (player.duration) player.currentTime = (player.duration * (event.clientX - box.left)) / box.width;
	});
	get("peaks", { ...query, bins: 1000 }, until)
		.then(({ low, high, seconds: length }) => {
			wave.hidden = false;
			canvas.setAttribute("aria-label", `Waveform, ${number(length)} seconds, peak ${number(Math.max(...[...high, ...low].map(Math.abs)))}`);
			const draw = () => drawWave(canvas, low, high);
			draw();
			matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal: until });
		})
		.catch((error) => {
			const help = error instanceof ApiError && error.status === 424 ? error.told.do : null;
			wave.replaceWith(h("p.soft.small", "No waveform", help ? `: ${printable(help)}` : "."));
		});
	return makeFigure(name, [format, rate && `${count(rate)} Hz`, channels && `${channels} ch`, seconds && `${number(seconds)} s`], "panel audio", wave, player);
}

function drawWave(canvas, low, high) {
	const { width, height } = canvas;
	const context = canvas.getContext("2d");
	context.clearRect(0, 0, width, height);
	context.fillStyle = getComputedStyle(canvas).getPropertyValue("--accent");
	const step = width / high.length;
	high.forEach((top, i) => context.fillRect(i * step, ((1 - top) / 2) * height, Math.max(step - 0.3, 0.7), Math.max(((top - low[i]) / 2) * height, 1)));
}

/** @type {mountVideo} */
export function mountVideo(query, feature, until) {
	const { format, width, height, frames } = feature.value.video;
	const name = printable(feature.name, 60);
	const player = h("video", { controls: true, preload: "metadata", src: mediaAddress("video", query), label: `Video ${name}`, onerror: () => (player.hidden = true) });
	const frame = h("img.video-frame", { onerror: () => (stills.hidden = true) });
	const text = h("output.small");
	const showFrame = () => {
		frame.src = mediaAddress("frame", { ...query, frame: slider.value });
		frame.alt = `Frame ${slider.value} of ${name}`;
		text.textContent = `frame ${slider.value}`;
	};
	const slider = makeRange("Frame", 0, Math.max((frames ?? 1) - 1, 0), 1, 0, { onchange: showFrame });
	const stills = h("div.stills", { hidden: !frames }, frame, h("div.sliders", slider, text));
	if (frames) showFrame();
	until.addEventListener("abort", () => player.removeAttribute("src"));
	return makeFigure(feature.name, [format, width && `${width} × ${height}`, frames && `${count(frames)} frames`], "panel", player, stills);
}

const STEPS = 8;

/** @type {mountTensor} */
export function mountTensor(query, { name, value }, until) {
	const body = h("div");
	const slider = makeRange(`Slice of ${printable(name, 60)}`, 0, 0, 1, 0, { onchange: () => load(Number(slider.value)) });
	const text = h("output.small");
	const tools = h("div.sliders", { hidden: true }, slider, text);
	const load = (slice) =>
		void showAnswer(body, until, get("tensor", { ...query, slice, rows: 48, columns: 64 }, until), ({ grid, slices, slice: shown, mean, exact, ...range }) => {
			const [min, max] = [Number(range.min), Number(range.max)];
			tools.hidden = slices <= 1;
			slider.max = String(slices - 1);
			text.textContent = `slice ${shown} of ${slices}`;
			const steps = Array.from({ length: STEPS }, (_, i) => h("i", { style: { background: `rgb(${heat(i / (STEPS - 1)).join(" ")})` } }));
			const numbers = () => grid.slice(0, 48).map((row, i) => [String(i), ...row.slice(0, 16).map((one) => (typeof one === "number" ? number(one) : String(one)))]);
			show(body,
				drawHeat(grid, min, max),
				h("p.heat-scale.small", number(min), h("span.heat-bar", { "aria-hidden": "true" }, steps), number(max), h("span.soft", ` mean ${number(Number(mean))}${exact ? "" : "; a cell is the mean of a block"}`)),
				foldedTable("Numbers", ["row", ...(grid[0] ?? []).slice(0, 16).map((_, i) => String(i))], numbers),
			);
		});
	load(0);
	return makeFigure(name, [`${value.tensor.dtype} [${value.tensor.shape.join(", ")}]`], "panel tensor", tools, body);
}

function drawHeat(grid, min, max) {
	const [height, width] = [Math.max(grid.length, 1), Math.max(grid[0]?.length ?? 0, 1)];
	const canvas = h("canvas.heatmap.pixelated", { width, height, role: "img", label: `Heat map, from ${number(min)} to ${number(max)}`, style: { "aspect-ratio": `${width} / ${height}` } });
	const image = new ImageData(width, height);
	grid.flat().forEach((value, i) => {
		const isFinite = value !== null && Number.isFinite(Number(value));
		image.data.set([...(isFinite ? heat((Number(value) - min) / (max - min || 1)) : [230, 57, 70]), 255], 4 * i);
	});
	canvas.getContext("2d")?.putImageData(image, 0, 0);
	return canvas;
}

// From dark blue to yellow: even in lightness, so that it reads without colours too.
const HEAT = [[16, 24, 66], [24, 62, 110], [14, 104, 124], [42, 146, 114], [128, 184, 84], [246, 222, 96]];

function heat(share) {
	const at = clamp(share, 0, 1) * (HEAT.length - 1);
	const low = Math.min(Math.floor(at), HEAT.length - 2);
	return HEAT[low].map((value, i) => Math.round(value + (at - low) * (HEAT[low + 1][i] - value)));
}

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
		show(body,
			h("p.soft.small", `Frame at byte ${count(offset)} of the file, ${bytes(frame_bytes)}. Left: the position in the file.`),
			h("ul.hex-parts", legend),
			h("pre.hex", { tabindex: "0", label: "Bytes in hexadecimal" }, lines),
			makePager("Bytes", first, first - PAGE, end, frame_bytes, `bytes ${count(first)}–${count(end)} of ${count(frame_bytes)}`, page),
		);
	}

	return h("section.panel", h("details", { ontoggle: () => body.childElementCount || page(0) }, h("summary", h("h3", "Bytes of the frame")), body));
}

const letter = (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·");
