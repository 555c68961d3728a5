// @ts-check
// One record: its image with overlays, every feature, its steps, and its bytes.

import { ApiError, get, getMask, getSession, isNarrowed, mediaAddress, side, sideIndex, splitName } from "./api.js";
import { breakable, bytes, count, h, number, plural, printable, printableLines, show } from "./dom.js";
import { findColumn, imageColumn } from "./gallery.js";
import { mountHex } from "./hex.js";
import { classColour, makeSwatch, patternName } from "./masks.js";
import { mountAudio, mountTensor, mountVideo } from "./media.js";
import { errorPanel, faultPanel, makeScrollable, makeTable, stateBadge } from "./parts.js";
import { onPreference, prefer, setPreference } from "./preferences.js";
import { isSelected, onSelection, select } from "./selection.js";
import { Stage } from "./stage.js";
import { go, leaveRecord, link, recordState, state } from "./state.js";
import { announce } from "./status.js";

/** @type {Mount} */
export function mountRecord(host, until) {
	const record = state().record ?? 0;
	const split = splitName();
	const query = { side: sideIndex() || null, split, record };
	let shown = null;
	let wantsFocus = false;
	show(host, h("p.soft", { role: "status" }, `Loading record ${count(record)}…`));

	get("record", query, until)
		.then((answer) => {
			shown = answer;
			draw(answer);
			if (wantsFocus) focus();
		})
		.catch((error) => until.aborted || show(host, navigation(null), errorPanel(error, `Record ${record} cannot be shown`)));

	function focus() {
		wantsFocus = !shown;
		const target = host.querySelector(".stage") ?? host.querySelector(".record-title");
		if (target instanceof HTMLElement) target.focus();
	}

	function navigation(answer) {
		const previous = answer?.previous ?? null;
		const next = answer?.next ?? null;
		const box = h("input", { type: "checkbox", checked: isSelected(split, record), onchange: () => select(split, record, box.checked) });
		onSelection(() => (box.checked = isSelected(split, record)), until);
		return h(
			"div.record-head",
			h("h2.record-title", { tabindex: "-1" }, `Record ${count(record)}`, " ", answer ? stateBadge(answer.state) : null),
			h("span.soft.file", answer?.file ? h("bdi", `${printable(answer.file)}, record ${count(answer.file_record)}`) : null),
			h("nav.record-nav", { "aria-label": "Records" },
				h("label.check", box, "Select"),
				step("Previous", previous),
				step("Next", next),
				h("a.button", { href: link(leaveRecord(isNarrowed())) }, "All records")),
		);
	}

	const step = (text, to) => to === null ? h("span.button.disabled", { "aria-disabled": "true" }, text) : h("a.button", { href: link({ ...state(), record: to }) }, text);

	function draw(answer) {
		const features = [...answer.features, ...(answer.undeclared ?? [])];
		const media = h("div.record-media");
		const facts = h("div.record-facts");
		show(host, navigation(answer), answer.error ? faultPanel(answer.error) : null, findingsOf(answer), h("div.record-columns", media, facts));
		if (answer.state === "too_large") {
			facts.append(h("div.notice", h("b", `The record has ${bytes(answer.bytes)}. `), `Records over ${bytes(getSession().limits.record_bytes)}, or ${bytes(getSession().limits.decoded_bytes)} once decoded, are shown by their first bytes.`));
		}
		drawMedia(media, answer, features);
		facts.append(featureTable(features, answer), ...extra(features, answer));
		const hexHost = h("section.panel");
		facts.append(hexHost);
		mountHex(hexHost, query, until);
		announce(`Record ${count(record)} of ${split}`);
	}

	function findingsOf(answer) {
		if (!answer.findings?.length) return null;
		const links = answer.findings.slice(0, 10).map((one) => h("a", { href: link({ view: "findings", record: null, more: { open: String(one.number) } }) }, `${one.code}: ${printable(one.title, 80)}`));
		return h("p.record-findings", h("span.pill.alert", plural(answer.findings.length, "finding")), " ", ...links.flatMap((one) => [one, " "]));
	}

	function drawMedia(media, answer, features) {
		const overlay = side().overlays;
		const shownMasks = new Set(overlay.flatMap((one) => one.masks));
		const output = h("output.reading", { "aria-live": "polite" }, "Point at a pixel.");
		let hasStage = false;
		const wanted = imageColumn()?.name;
		const images = features
			.filter((one) => one.view === "image" || (one.view === "mask" && !shownMasks.has(one.name)))
			.sort((a, b) => Number(b.name === wanted) - Number(a.name === wanted));
		for (const feature of images) {
			const facts = feature.value?.image;
			if (feature.error || !facts || facts.state !== "ok") {
				media.append(h("figure", h("figcaption", printable(feature.name)), feature.error ? faultPanel(feature.error) : h("p.gone", facts ? `${facts.width} × ${facts.height}: ${facts.state.replace("_", " ")}` : "no image")));
				continue;
			}
			hasStage = true;
			const stage = new Stage({
				src: mediaAddress("image", { ...query, feature: feature.name }),
				alt: `${printable(feature.name, 60)} of record ${record}`,
				width: facts.width,
				height: facts.height,
				orientation: facts.orientation,
				until,
				onRead: (reading) => show(output, ...readingText(reading)),
			});
			const legend = h("ul.legend", { "aria-label": "Classes" });
			media.append(h("figure.record-image", stage.element, h("figcaption", h("bdi", printable(feature.name)), ` ${facts.width} × ${facts.height} ${facts.format}`, facts.orientation > 1 ? `, EXIF orientation ${facts.orientation}` : "", `, ${bytes(facts.bytes ?? feature.bytes)}`), legend));
			const related = overlay.find((one) => one.image === feature.name);
			const masks = feature.view === "mask" ? [feature.name] : (related?.masks ?? []);
			for (const name of masks) {
				const column = findColumn(name) ?? feature;
				getMask({ ...query, feature: name }, until)
					.then((data) => {
						stage.addMask(name, data, column.classes, column.ignore);
						drawLegend(legend, stage);
					})
					.catch((error) => until.aborted || legend.append(h("li.soft", `${printable(name)}: ${error instanceof ApiError ? printable(error.told.what) : "no answer"}`)));
			}
			for (const name of related?.boxes ?? []) {
				const boxes = features.find((one) => one.name === name)?.value?.boxes;
				if (boxes?.boxes?.length) stage.addBoxes(boxes, findColumn(name)?.classes ?? null);
			}
			onPreference((changed) => changed === "patterns" && drawLegend(legend, stage), until);
		}
		if (hasStage) {
			const hasMask = overlay.some((one) => one.masks.length);
			const hasBoxes = overlay.some((one) => one.boxes.length);
			media.prepend(h("div.stage-tools", hasMask || hasBoxes ? overlayTools(hasMask, hasBoxes, until) : null, output));
		}
		for (const feature of features) {
			if (feature.error) continue;
			const one = { ...query, feature: feature.name };
			if (feature.value?.audio) mountAudio(media, one, feature, until);
			else if (feature.value?.video) mountVideo(media, one, feature, until);
			else if (feature.value?.tensor && feature.view === "tensor") mountTensor(media, one, feature, until);
			else if (feature.value?.string !== undefined && feature.value.string.length > 120) {
				media.append(h("figure.panel", h("figcaption", printable(feature.name)), h("pre.text", { tabindex: "0", dir: "auto" }, printableLines(feature.value.string)), feature.value.truncated ? h("p.soft.small", "The rest is not shown.") : null));
			}
		}
		media.hidden = media.childElementCount === 0;
	}

	function readingText(reading) {
		if (!reading) return ["Point at a pixel."];
		const where = `x ${reading.x}, y ${reading.y}`;
		return reading.ids.length === 0
			? [where]
			: reading.ids.flatMap(({ feature, id, name }) => [h("b.reading-class", name === null ? `class ${id}` : printable(name, 60)), ` ${where} `, h("span.soft", "id "), h("span.reading-id", String(id)), reading.ids.length > 1 ? ` (${printable(feature, 40)}) ` : ""]);
	}

	function drawLegend(legend, stage) {
		show(
			legend,
			stage.masks.flatMap(({ data, counts, names, ignore }) => {
				const total = data.ids.length;
				return counts.slice(0, 60).map(([id, pixels]) => {
					const name = id === ignore ? "ignored" : (names?.[id] ?? `class ${id}`);
					const share = `${((100 * pixels) / total).toFixed(1)} %`;
					return h("li", h("button.legend-button", { "aria-pressed": String(!stage.hiddenIds.has(id)), "aria-label": `${printable(name, 60)}, id ${id}, ${share}${prefer().patterns ? `, ${patternName(id)}` : ""}: show`, onclick: (event) => {
						stage.toggleId(id);
						/** @type {HTMLElement} */ (event.currentTarget).setAttribute("aria-pressed", String(!stage.hiddenIds.has(id)));
					} }, makeSwatch(id, prefer().patterns, ignore), h("bdi", printable(name, 40)), h("span.soft", ` ${id} · ${share}`)));
				});
			}),
		);
	}

	function featureTable(features, answer) {
		const rows = features.map((feature) => [
			h("bdi", { title: feature.summary ?? "" }, breakable(feature.name)),
			valueOf(feature),
			h("span", printable(feature.type ?? feature.stored ?? "", 40), answer.undeclared?.includes(feature) ? h("span.pill", "undeclared") : null),
			[feature.dtype ?? feature.stored, feature.shape?.length ? `[${feature.shape.map((size) => size ?? "?").join(", ")}]` : null].filter(Boolean).join(" "),
			h("span.n", bytes(feature.bytes)),
		]);
		const missing = (answer.missing ?? []).map((name) => [h("bdi", breakable(name)), h("span.soft", "missing"), "", "", ""]);
		if (!rows.length && !missing.length) return "";
		const table = makeTable("Features", ["feature", "value", "kind", "dtype and shape", "bytes"], [...rows, ...missing], "features");
		const more = answer.more_features ? h("p.soft.small", `${count(answer.more_features)} more features are not shown.`) : null;
		return h("section.panel", h("h3", "Features"), makeScrollable("Features", table), more);
	}

	function valueOf(feature) {
		if (feature.error) return h("span.alert", `${feature.error.code ?? ""} ${printable(feature.error.what, 120)}`);
		const value = feature.value ?? {};
		if (value.code !== undefined) {
			const dot = h("i.dot", { "aria-hidden": "true" });
			dot.style.background = classColour(Number(value.code) + 1);
			return h("span", dot, h("bdi", printable(value.name ?? value.text, 80)), h("span.soft", ` ${value.code}`));
		}
		if (value.string !== undefined) return h("bdi", { dir: "auto" }, printable(value.string, 160));
		if (Array.isArray(value.values) && value.values.length) {
			const text = (value.names ?? value.values).slice(0, 8).map((one) => printable(one, 60)).join(", ");
			if (value.values.length <= 8) return h("code", text);
			return h("details", h("summary", h("code", `${text}, …`)), h("pre", { tabindex: "0" }, value.values.join(", "), feature.count > value.values.length ? `, … (${count(feature.count)} values)` : ""));
		}
		if (value.boxes?.boxes) {
			return h("details", h("summary", plural(value.boxes.count ?? value.boxes.boxes.length, "box", "boxes")), makeTable("Boxes", ["class", "ymin", "xmin", "ymax", "xmax"], value.boxes.boxes.map((box, i) => [printable(value.boxes.names?.[i] ?? value.boxes.labels?.[i] ?? i, 60), ...box.map((side) => number(Number(side)))]), "small-table"));
		}
		return h("bdi", printable(value.text ?? "", 160));
	}

	function extra(features, answer) {
		if (!answer.steps) return [];
		const longest = Math.max(...answer.steps.map((one) => one.values.length), 0);
		const rows = Array.from({ length: Math.min(longest, 500) }, (_, i) => [String(i), ...answer.steps.map((one) => (one.values[i] ? stepValue(one, one.values[i], i) : h("span.soft", "–")))]);
		const heads = ["step", ...answer.steps.map((one) => h("bdi", `${printable(one.name, 60)} (${count(one.count)})`))];
		return [h("section.panel", h("h3", "Steps"), makeScrollable("Steps", makeTable("Steps", heads, rows, "steps"), ".tall"))];
	}

	function stepValue(list, value, step) {
		if (value.image?.state === "ok") {
			return h("img.step-image", { loading: "lazy", alt: `${printable(list.name, 40)}, step ${step}`, src: mediaAddress("thumb", { ...query, feature: list.name, step, px: 96 }) });
		}
		return h("bdi", printable(value.name ?? value.string ?? value.text ?? "", 120));
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

/** Switches of the overlays. @type {overlayTools} */
export function overlayTools(hasMask, hasBoxes, until) {
	const element = h("div.overlay-tools", { role: "group", "aria-label": "Overlays" });
	function draw() {
		const toggle = (name, text) => h("label.check", h("input", { type: "checkbox", checked: prefer()[name], onchange: (event) => setPreference(name, /** @type {HTMLInputElement} */ (event.target).checked) }), text);
		const opacity = h("input", { type: "range", min: 0, max: 1, step: 0.05, value: prefer().opacity, "aria-label": "Opacity of masks", oninput: () => setPreference("opacity", Number(opacity.value)) });
		show(element, hasMask ? toggle("masks", "Masks") : null, hasMask ? opacity : null, hasMask ? toggle("patterns", "Patterns") : null, hasBoxes ? toggle("boxes", "Boxes") : null);
	}
	draw();
	onPreference((changed) => {
		if (element.contains(document.activeElement)) return;
		if (changed !== "theme") draw();
	}, until);
	return element;
}
