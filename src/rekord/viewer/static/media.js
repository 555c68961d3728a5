// @ts-check
// Sound, video and tensors of a record.

import { ApiError, get, mediaAddress } from "./api.js";
import { count, h, number, printable, show } from "./dom.js";
import { makeScrollable, makeTable, showAnswer } from "./parts.js";

/** A player and the waveform, which seeks. @type {mountAudio} */
export function mountAudio(host, query, feature, until) {
	const facts = feature.value.audio;
	const player = h("audio", { controls: true, preload: "metadata", src: mediaAddress("audio", query), "aria-label": `Audio ${printable(feature.name, 60)}` });
	const canvas = h("canvas.waveform", { width: 1000, height: 120, role: "img", "aria-label": "Waveform" });
	const head = h("i.playhead");
	const wave = h("div.wave", { hidden: true }, canvas, head);
	const words = [facts.format, facts.rate && `${count(facts.rate)} Hz`, facts.channels && `${facts.channels} ch`, facts.seconds && `${number(facts.seconds)} s`].filter(Boolean).join(", ");
	host.append(h("figure.panel.audio", h("figcaption", h("bdi", printable(feature.name)), ` ${words}`), wave, player));
	player.addEventListener("timeupdate", () => {
		if (player.duration) head.style.left = `${(100 * player.currentTime) / player.duration}%`;
	});
	wave.addEventListener("click", (event) => {
		const box = wave.getBoundingClientRect();
		if (player.duration) player.currentTime = (player.duration * (event.clientX - box.left)) / box.width;
	});
	get("peaks", { ...query, bins: 1000 }, until)
		.then(({ low, high, seconds }) => {
			wave.hidden = false;
			canvas.setAttribute("aria-label", `Waveform, ${number(seconds)} seconds, peak ${number(Math.max(...high.map(Math.abs), ...low.map(Math.abs)))}`);
			const draw = () => drawWave(canvas, low, high);
			draw();
			matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal: until });
		})
		.catch((error) => {
			if (until.aborted) return;
			const help = error instanceof ApiError && error.status === 424 ? error.told.do : null;
			wave.replaceWith(h("p.soft.small", "No waveform", help ? `: ${printable(help)}` : "."));
		});
}

function drawWave(canvas, low, high) {
	const context = canvas.getContext("2d");
	if (!context) return;
	const { width, height } = canvas;
	context.clearRect(0, 0, width, height);
	context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
	high.forEach((top, i) => {
		const x = (i * width) / high.length;
		const y = ((1 - top) / 2) * height;
		context.fillRect(x, y, Math.max(width / high.length - 0.3, 0.7), Math.max(((top - low[i]) / 2) * height, 1));
	});
}

/** The browser's player, or frames that the server decodes. @type {mountVideo} */
export function mountVideo(host, query, feature, until) {
	const facts = feature.value.video;
	const name = printable(feature.name, 60);
	const words = [facts.format, facts.width && `${facts.width} × ${facts.height}`, facts.frames && `${count(facts.frames)} frames`].filter(Boolean).join(", ");
	const player = h("video", { controls: true, preload: "metadata", src: mediaAddress("video", query), "aria-label": `Video ${name}` });
	const frame = h("img", { alt: `Frame 0 of ${name}`, class: "video-frame" });
	const slider = h("input", { type: "range", min: 0, max: Math.max((facts.frames ?? 1) - 1, 0), step: 1, "aria-label": "Frame" });
	slider.value = "0";
	const text = h("output.small", "frame 0");
	const stills = h("div.stills", { hidden: !facts.frames }, frame, h("div.sliders", slider, text));
	const showFrame = () => {
		frame.src = mediaAddress("frame", { ...query, frame: slider.value });
		frame.alt = `Frame ${slider.value} of ${name}`;
		text.textContent = `frame ${slider.value}`;
	};
	slider.addEventListener("change", showFrame);
	frame.addEventListener("error", () => (stills.hidden = true));
	player.addEventListener("error", () => (player.hidden = true));
	if (facts.frames) showFrame();
	host.append(h("figure.panel", h("figcaption", h("bdi", printable(feature.name)), ` ${words}`), player, stills));
	until.addEventListener("abort", () => player.removeAttribute("src"));
}

const STEPS = 8;

/** A slice of a tensor as a heat map, with its numbers behind. @type {mountTensor} */
export function mountTensor(host, query, feature, until) {
	const body = h("div");
	const facts = feature.value.tensor;
	const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": `Slice of ${printable(feature.name, 60)}`, onchange: () => load(Number(slider.value)) });
	slider.value = "0";
	const text = h("output.small");
	const tools = h("div.sliders", { hidden: true }, slider, text);
	host.append(h("figure.panel.tensor", h("figcaption", h("bdi", printable(feature.name)), ` ${facts.dtype} [${facts.shape.join(", ")}]`), tools, body));

	const load = (slice) =>
		void showAnswer(body, until, get("tensor", { ...query, slice, rows: 48, columns: 64 }, until), (answer) => {
			tools.hidden = answer.slices <= 1;
			slider.max = String(answer.slices - 1);
			text.textContent = `slice ${answer.slice} of ${answer.slices}`;
			show(body, drawHeat(answer), scale(answer), behind(answer));
		});
	load(0);
}

function drawHeat({ grid, min, max }) {
	const [rows, columns] = [grid.length, grid[0]?.length ?? 0];
	const canvas = h("canvas.heatmap.pixelated", { width: Math.max(columns, 1), height: Math.max(rows, 1), role: "img", "aria-label": `Heat map, from ${number(Number(min))} to ${number(Number(max))}` });
	canvas.style.aspectRatio = `${Math.max(columns, 1)} / ${Math.max(rows, 1)}`;
	const context = canvas.getContext("2d");
	const image = context?.createImageData(Math.max(columns, 1), Math.max(rows, 1));
	if (!context || !image) return canvas;
	const range = Number(max) - Number(min) || 1;
	grid.forEach((row, y) =>
		row.forEach((value, x) => {
			const at = 4 * (y * columns + x);
			if (value === null || !Number.isFinite(Number(value))) image.data.set([230, 57, 70, 255], at);
			else image.data.set([...heat((Number(value) - Number(min)) / range), 255], at);
		}),
	);
	context.putImageData(image, 0, 0);
	return canvas;
}

// From dark blue to yellow: even in lightness, so that it reads without colours too.
const HEAT = [[16, 24, 66], [24, 62, 110], [14, 104, 124], [42, 146, 114], [128, 184, 84], [246, 222, 96]];

function heat(share) {
	const at = Math.max(0, Math.min(share, 1)) * (HEAT.length - 1);
	const [low, part] = [Math.min(Math.floor(at), HEAT.length - 2), at - Math.min(Math.floor(at), HEAT.length - 2)];
	return HEAT[low].map((value, i) => Math.round(value + part * (HEAT[low + 1][i] - value)));
}

function scale({ min, max, mean, exact }) {
	const blocks = Array.from({ length: STEPS }, (_, i) => {
		const block = h("i");
		block.style.background = `rgb(${heat(i / (STEPS - 1)).join(" ")})`;
		return block;
	});
	return h("p.heat-scale.small", number(Number(min)), h("span.heat-bar", { "aria-hidden": "true" }, blocks), number(Number(max)), h("span.soft", ` mean ${number(Number(mean))}${exact ? "" : "; a cell is the mean of a block"}`));
}

function behind({ grid }) {
	const body = makeScrollable("Numbers", null, ".tall");
	const rows = () => grid.slice(0, 48).map((row, i) => [String(i), ...row.slice(0, 16).map((value) => (typeof value === "number" ? number(value) : String(value)))]);
	const heads = ["row", ...(grid[0] ?? []).slice(0, 16).map((_, i) => String(i))];
	return h("details", { ontoggle: () => body.childElementCount || show(body, makeTable("Numbers", heads, rows(), "small-table")) }, h("summary", "Table"), body);
}
