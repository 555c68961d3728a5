// @ts-check
// Requests to the server, always relative to the address of the page.

import { makeEvent } from "./dom.js";
import { state } from "./state.js";

export class ApiError extends Error {
	constructor(status, told) {
		super(told.what);
		this.status = status;
		this.told = told;
	}
}

/** @type {Session} */
let session = JSON.parse(document.getElementById("session")?.textContent ?? "{}");
/** @type {Status | null} */
let status = null;
let isGone = false;
const sessions = makeEvent();
const gone = /** @type {AnEvent<[boolean]>} */ (makeEvent());
const polled = /** @type {AnEvent<[Status | null]>} */ (makeEvent());

export const getSession = () => session;
export const getStatus = () => status;
export const onSession = sessions.on;
export const onGone = gone.on;
export const onStatus = polled.on;

/** @type {address} */
export function address(path, query = {}) {
	const search = new URLSearchParams();
	for (const [name, value] of Object.entries(query)) {
		if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
	}
	const text = search.toString();
	return `api/${path}${text ? `?${text}` : ""}`;
}

/** The address of a medium, which the browser may keep. @type {mediaAddress} */
export const mediaAddress = (path, query) => address(path, { ...query, v: session.stamp });

async function request(url, options) {
	let answer;
	try {
		answer = await fetch(url, options);
	} catch (failure) {
		if (!(failure instanceof DOMException && failure.name === "AbortError")) setGone(true);
		throw failure;
	}
	setGone(false);
	if (answer.ok) return answer;
	let told = { error: "Error", code: null, what: `the server answered ${answer.status}` };
	try {
		told = (await answer.json()).error ?? told;
	} catch {
		// Not from our server: the status is all there is.
	}
	throw new ApiError(answer.status, told);
}

function setGone(now) {
	if (now === isGone) return;
	isGone = now;
	gone.emit(now);
	if (now) schedule(1000);
}

/** @type {get} */
export const get = async (path, query, signal) => (await request(address(path, query), { signal })).json();

/** @type {post} */
export async function post(path, body, signal) {
	const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
	return (await request(`api/${path}`, options)).json();
}

/** @type {getBytes} */
export const getBytes = async (path, query, signal) => (await request(mediaAddress(path, query), { signal })).arrayBuffer();

/** The class ids of a mask. @type {getMask} */
export async function getMask(query, signal) {
	const data = await getBytes("mask", query, signal);
	const head = new DataView(data);
	const [width, height, size] = [4, 8, 12].map((at) => head.getUint32(at, true));
	const body = data.slice(16);
	const ids = size === 1 ? new Uint8Array(body) : size === 2 ? new Uint16Array(body) : new Int32Array(body);
	return { ids, width, height };
}

/** @returns {number} the side that the page shows */
export const sideIndex = () => Math.min(Number(state().more.side ?? 0) || 0, session.sides.length - 1);

export const side = () => session.sides[sideIndex()];

/** The split that the page shows. */
export function splitName() {
	const wanted = state().split;
	return side().splits.some((split) => split.name === wanted) ? /** @type {string} */ (wanted) : side().splits[0]?.name ?? "";
}

export const splitStatus = () => status?.sides[sideIndex()]?.splits.find((split) => split.name === splitName()) ?? null;

/** The records that the page shows: split, filters, SQL, order. @returns {Query} */
export function recordSet() {
	const now = state();
	const filter = {};
	for (const { feature, values, range } of now.filters) {
		if (range) filter[feature] = { range };
		else if (values?.length) {
			// Classes and numbers are filtered by code, texts by themselves: their codes change while records are counted.
			const isText = ["text", "bytes", "list"].includes(side().columns.find((one) => one.name === feature)?.view ?? "");
			filter[feature] = { in: isText ? values : values.map(Number) };
		}
	}
	return {
		side: sideIndex() || null,
		split: splitName(),
		filter: now.filters.length ? JSON.stringify(filter) : null,
		sql: now.where || null,
		finding: now.more.finding,
		cell: now.more.cell,
		tag: now.more.tag,
		order: now.sort || null,
	};
}

/** Whether the page shows a part of the split only. */
export function isNarrowed() {
	const now = state();
	return Boolean(now.filters.length || now.where || now.more.finding || now.more.cell || now.more.tag);
}

let timer = 0;

function schedule(milliseconds) {
	clearTimeout(timer);
	timer = setTimeout(poll, milliseconds);
}

async function poll() {
	try {
		const before = status;
		status = /** @type {Status} */ (await get("status"));
		const wasPending = before?.sides.some((one) => one.schema_pending) ?? session.schema_pending;
		if (wasPending && !status.sides.some((one) => one.schema_pending)) {
			session = await get("session");
			sessions.emit();
		}
		polled.emit(status);
		schedule(status.busy ? 500 : 10_000);
	} catch {
		schedule(isGone ? 1000 : 5000);
	}
}

export function watchStatus() {
	void poll();
}

/** Ask for the status now, because something has begun. */
export function pollSoon() {
	schedule(50);
}
