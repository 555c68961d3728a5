// One record: its image with overlays, every feature, its steps, and its bytes.

import { ApiError, findColumn, get, getMask, getSession, isNarrowed, mediaAddress, recordQuery, side, splitName } from "./api.js";
import { announce, bdi, breakable, bytes, count, h, number, plural, printable, printableLines, show } from "./dom.js";
import { imageColumn } from "./gallery.js";
import { makeStage, makeSwatch, patternName } from "./images.js";
import { mountAudio, mountHex, mountTensor, mountVideo } from "./media.js";
import { classDot, errorPanel, faultPanel, findingBadge, makeCaption, makeFigure, makeRange, makeScrollable, makeTable, selectBox, stateBadge } from "./parts.js";
import { onPreference, prefer, setPreference } from "./preferences.js";
import { isSelected, onSelection } from "./selection.js";
import { go, leaveRecord, link, recordState, state } from "./state.js";

const MOST_STEPS = 500;
const LONG_TEXT = 120;
const POINT = "Point at a pixel.";

/** @type {Mount} */
export function mountRecord(host, until) {
	const record = state().record ?? 0;
	const split = splitName();
	const query = recordQuery(split, record);
	let shown = /** @type {any} */ (null);
	let wantsFocus = false;
	show(host, h("p.soft", { role: "status" }, `Loading record ${count(record)}…`));

	get("record", query, until)
		.then((answer) => {
			shown = answer;
			draw(answer);
			if (wantsFocus) focus();
		})
		.catch((error) => until.aborted || show(host, navigation({}), errorPanel(error, `Record ${record} cannot be shown`)));

	function focus() {
		wantsFocus = !shown;
		/** @type {any} */ (host.querySelector(".stage") ?? host.querySelector(".record-title"))?.focus();
	}

	function navigation({ state: condition = "", file = null, file_record = 0, previous = null, next = null }) {
		const box = selectBox(split, record);
		onSelection(() => (box.checked = isSelected(split, record)), until);
		return h("div.record-head",
			h("h2.record-title", { tabindex: "-1" }, `Record ${count(record)}`, " ", stateBadge(condition)),
			h("span.soft.file", file !== null && bdi(`${file}, record ${count(file_record)}`)),
			h("nav.record-nav", { label: "Records" },
				h("label.check", box, "Select"),
				step("Previous", previous),
				step("Next", next),
				h("a.button", { href: link(leaveRecord(isNarrowed())) }, "All records")),
		);
	}

	function step(text, to) {
		return to === null ? h("span.button.disabled", { "aria-disabled": "true" }, text) : h("a.button", { href: link({ ...state(), record: to }) }, text);
	}

	function draw(answer) {
		const features = [...answer.features, ...(answer.undeclared ?? [])];
		const { record_bytes, decoded_bytes } = getSession().limits;
		const isTooLarge = answer.state === "too_large";
		show(host,
			navigation(answer),
			answer.error && faultPanel(answer.error),
			findingsOf(answer.findings ?? []),
			h("div.record-columns",
				drawMedia(features),
				h("div.record-facts",
					isTooLarge && h("div.notice", h("b", `The record has ${bytes(answer.bytes)}. `), `Records over ${bytes(record_bytes)}, or ${bytes(decoded_bytes)} once decoded, are shown by their first bytes.`),
					featureTable(features, answer),
					stepTable(answer.steps ?? []),
					mountHex(query, until)),
			),
		);
		announce(`Record ${count(record)} of ${split}`);
	}

	function findingsOf(findings) {
		const links = findings.slice(0, 10).flatMap((one) => [" ", h("a", { href: link({ view: "findings", record: null, more: { open: String(one.number) } }) }, `${one.code}: ${printable(one.title, 80)}`)]);
		return findings.length ? h("p.record-findings", findingBadge(findings), links) : null;
	}

	function drawMedia(features) {
		const { overlays } = side();
		const media = h("div.record-media");
		const shownMasks = new Set(overlays.flatMap((one) => one.masks));
		const output = h("output.reading", { "aria-live": "polite" }, POINT);
		const wanted = imageColumn()?.name;
		const images = features
			.filter((one) => one.view === "image" || (one.view === "mask" && !shownMasks.has(one.name)))
			.sort((a, b) => Number(b.name === wanted) - Number(a.name === wanted));
		media.append(...images.map((feature) => drawImage(feature, features, output)));
		if (media.querySelector(".stage")) {
			media.prepend(h("div.stage-tools", overlayTools(overlays, until), output));
		}
		for (const feature of features) {
			const { value, name } = feature;
			const one = { ...query, feature: name };
			if (feature.error || !value) continue;
			if (value.audio) media.append(mountAudio(one, feature, until));
			else if (value.video) media.append(mountVideo(one, feature, until));
			else if (value.tensor && feature.view === "tensor") media.append(mountTensor(one, feature, until));
			else if (value.string?.length > LONG_TEXT) {
				media.append(makeFigure(name, [], "panel", h("pre.text", { tabindex: "0", dir: "auto" }, printableLines(value.string)), value.truncated && h("p.soft.small", "The rest is not shown.")));
			}
		}
		media.hidden = media.childElementCount === 0;
		return media;
	}

	function drawImage(feature, features, output) {
		const { name, value, error } = feature;
		const facts = value?.image;
		if (error || !facts || facts.state !== "ok") {
			return makeFigure(name, [], "", error ? faultPanel(error) : h("p.gone", facts ? `${facts.width} × ${facts.height}: ${facts.state.replace("_", " ")}` : "no image"));
		}
		const stage = makeStage({ ...facts, src: mediaAddress("image", { ...query, feature: name }), alt: `${printable(name, 60)} of record ${record}`, until, onRead: (reading) => show(output, readingText(reading)) });
		const legend = h("ul.legend", { label: "Classes" });
		const related = side().overlays.find((one) => one.image === name);
		for (const mask of feature.view === "mask" ? [name] : (related?.masks ?? [])) {
			const column = findColumn(mask) ?? feature;
			getMask({ ...query, feature: mask }, until)
				.then((data) => {
					stage.addMask(mask, data, column.classes, column.ignore);
					drawLegend(legend, stage);
				})
				.catch((failure) => until.aborted || legend.append(h("li.soft", `${printable(mask)}: ${failure instanceof ApiError ? printable(failure.told.what) : "no answer"}`)));
		}
		for (const box of related?.boxes ?? []) {
			const boxes = features.find((one) => one.name === box)?.value?.boxes;
			if (boxes?.boxes?.length) stage.addBoxes(boxes, findColumn(box)?.classes ?? null);
		}
		onPreference((changed) => changed === "patterns" && drawLegend(legend, stage), until);
		const words = [`${facts.width} × ${facts.height} ${facts.format}`, facts.orientation > 1 && `EXIF orientation ${facts.orientation}`, bytes(facts.bytes ?? feature.bytes)];
		return h("figure.record-image", stage.element, makeCaption(name, words), legend);
	}

	function readingText(reading) {
		if (!reading) return [POINT];
		const where = `x ${reading.x}, y ${reading.y}`;
		if (!reading.ids.length) return [where];
		return reading.ids.flatMap(({ feature, id, name }) => [h("b.reading-class", name === null ? `class ${id}` : printable(name, 60)), ` ${where} `, h("span.soft", "id "), h("span.reading-id", String(id)), reading.ids.length > 1 ? ` (${printable(feature, 40)}) ` : ""]);
	}

	function drawLegend(legend, stage) {
		const { patterns } = prefer();
		const entry = ({ data, names, ignore }, [id, pixels]) => {
			const name = id === ignore ? "ignored" : (names?.[id] ?? `class ${id}`);
			const share = `${((100 * pixels) / data.ids.length).toFixed(1)} %`;
			const isShown = () => String(!stage.hiddenIds.has(id));
			const onclick = () => {
				stage.toggleId(id);
				button.setAttribute("aria-pressed", isShown());
			};
			const label = `${printable(name, 60)}, id ${id}, ${share}${patterns ? `, ${patternName(id)}` : ""}: show`;
			const button = h("button.legend-button", { "aria-pressed": isShown(), label, onclick }, makeSwatch(id, patterns, ignore), bdi(name, 40), h("span.soft", ` ${id} · ${share}`));
			return h("li", button);
		};
		show(legend, stage.masks.flatMap((mask) => mask.counts.slice(0, 60).map((one) => entry(mask, one))));
	}

	function featureTable(features, answer) {
		const rows = features.map((feature) => [
			breakable(feature.name, feature.summary ?? ""),
			valueOf(feature),
			h("span", printable(feature.type ?? feature.stored ?? "", 40), answer.undeclared?.includes(feature) && h("span.pill", "undeclared")),
			[feature.dtype ?? feature.stored, feature.shape?.length ? `[${feature.shape.map((size) => size ?? "?").join(", ")}]` : null].filter(Boolean).join(" "),
			h("span.n", bytes(feature.bytes)),
		]);
		const missing = (answer.missing ?? []).map((name) => [breakable(name), h("span.soft", "missing"), "", "", ""]);
		if (!rows.length && !missing.length) return null;
		const table = makeTable("Features", ["feature", "value", "kind", "dtype and shape", "bytes"], [...rows, ...missing], "features");
		return h("section.panel", h("h3", "Features"), makeScrollable("Features", table), answer.more_features && h("p.soft.small", `${count(answer.more_features)} more features are not shown.`));
	}

	function valueOf({ error, value, count: length }) {
		if (error) return h("span.alert", `${error.code ?? ""} ${printable(error.what, 120)}`);
		const { code, string, values, names, boxes, name, text = "" } = value ?? /** @type {any} */ ({});
		if (code !== undefined) return h("span", classDot(code), bdi(name ?? text, 80), h("span.soft", ` ${code}`));
		if (string !== undefined) return bdi(string, 160, { dir: "auto" });
		if (Array.isArray(values) && values.length) {
			const first = (names ?? values).slice(0, 8).map((one) => printable(one, 60)).join(", ");
			if (values.length <= 8) return h("code", first);
			return h("details", h("summary", h("code", `${first}, …`)), h("pre", { tabindex: "0" }, values.join(", "), length > values.length ? `, … (${count(length)} values)` : ""));
		}
		if (!boxes?.boxes) return bdi(text, 160);
		const rows = boxes.boxes.map((box, i) => [printable(boxes.names?.[i] ?? boxes.labels?.[i] ?? i, 60), ...box.map((edge) => number(Number(edge)))]);
		return h("details", h("summary", plural(boxes.count ?? rows.length, "box", "boxes")), makeTable("Boxes", ["class", "ymin", "xmin", "ymax", "xmax"], rows, "small-table"));
	}

	function stepTable(lists) {
		if (!lists.length) return null;
		const longest = Math.max(...lists.map((one) => one.values.length));
		const rows = Array.from({ length: Math.min(longest, MOST_STEPS) }, (_, i) => [String(i), ...lists.map((one) => (one.values[i] ? stepValue(one, one.values[i], i) : h("span.soft", "–")))]);
		const heads = ["step", ...lists.map((one) => bdi(`${printable(one.name, 60)} (${count(one.count)})`))];
		return h("section.panel", h("h3", "Steps"), makeScrollable("Steps", makeTable("Steps", heads, rows, "steps"), ".tall"));
	}

	function stepValue({ name }, value, step) {
		if (value.image?.state !== "ok") return bdi(value.name ?? value.string ?? value.text ?? "", 120);
		return h("img.step-image", { loading: "lazy", alt: `${printable(name, 40)}, step ${step}`, src: mediaAddress("thumb", { ...query, feature: name, step, px: 96 }) });
	}

	return {
		focus,
		current: () => ({ split, record }),
		jump: (index) => go({ ...recordState(split, index), more: state().more }),
		total: () => null,
		step(direction) {
			const to = direction > 0 ? shown?.next : shown?.previous;
			if (to !== null && to !== undefined) go({ ...state(), record: to });
		},
	};
}

/** @type {overlayTools} */
export function overlayTools(overlays, until) {
	const [hasMasks, hasBoxes] = ["masks", "boxes"].map((kind) => overlays.some((one) => one[kind].length));
	if (!hasMasks && !hasBoxes) return null;
	const element = h("div.overlay-tools", { role: "group", label: "Overlays" });
	const toggle = (name, text) => h("label.check", h("input", { type: "checkbox", checked: prefer()[name], onchange: (event) => setPreference(name, event.target.checked) }), text);
	function draw() {
		const opacity = makeRange("Opacity of masks", 0, 1, 0.05, prefer().opacity, { oninput: () => setPreference("opacity", Number(opacity.value)) });
		show(element, hasMasks && [toggle("masks", "Masks"), opacity, toggle("patterns", "Patterns")], hasBoxes && toggle("boxes", "Boxes"));
	}
	draw();
	onPreference((changed) => changed === "theme" || element.contains(document.activeElement) || draw(), until);
	return element;
}
