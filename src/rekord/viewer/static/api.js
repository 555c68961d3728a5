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
	const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
	const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
	return `api/${path}${text && `?${text}`}`;
}

/** @type {mediaAddress} */
export const mediaAddress = (path, query) => address(path, { ...query, v: session.stamp });

/** @returns {Promise<Response>} */
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
	if (answer.headers.has("retry-after")) {
		// What is asked for is not indexed yet.
		await new Promise((done) => setTimeout(done, 500));
		return request(url, options);
	}
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

/** @type {getMask} */
export async function getMask(query, signal) {
	const data = await getBytes("mask", query, signal);
	const head = new DataView(data);
	const [width, height, size] = [4, 8, 12].map((at) => head.getUint32(at, true));
	const Numbers = size === 1 ? Uint8Array : size === 2 ? Uint16Array : Int32Array;
	return { ids: new Numbers(data.slice(16)), width, height };
}

export const sideIndex = () => Math.min(Number(state().more.side ?? 0) || 0, session.sides.length - 1);

export const side = () => session.sides[sideIndex()];

/** @type {findColumn} */
export const findColumn = (name) => side().columns.find((one) => one.name === name) ?? null;

export function splitName() {
	const names = side().splits.map((split) => split.name);
	const wanted = state().split ?? "";
	return names.includes(wanted) ? wanted : names[0] ?? "";
}

export const splitStatus = () => status?.sides[sideIndex()]?.splits.find((split) => split.name === splitName()) ?? null;

/** @type {recordQuery} */
export const recordQuery = (split, record) => ({ side: sideIndex(), split, record });

/** @type {recordSet} */
export function recordSet() {
	const { filters, where, sort, more } = state();
	/** @type {Record<string, object>} */
	const filter = {};
	for (const { feature, values, range } of filters) {
		if (range) filter[feature] = { range };
		else if (values?.length) {
			// Classes and numbers are filtered by code, texts by themselves: their codes change while records are counted.
			const isText = ["text", "bytes", "list"].includes(findColumn(feature)?.view ?? "");
			filter[feature] = { in: isText ? values : values.map(Number) };
		}
	}
	const { finding, cell, tag } = more;
	return { side: sideIndex(), split: splitName(), filter: filters.length ? JSON.stringify(filter) : null, sql: where, finding, cell, tag, order: sort };
}

// What of `more` chooses records.
export const SETS = ["finding", "cell", "tag"];

export function isNarrowed() {
	const { filters, where, more } = state();
	return Boolean(filters.length || where || SETS.some((name) => more[name]));
}

let timer = 0;

function schedule(milliseconds) {
	clearTimeout(timer);
	timer = setTimeout(watchStatus, milliseconds);
}

const isPending = (now) => now.sides.some((one) => one.schema_pending);

export async function watchStatus() {
	try {
		const wasPending = status ? isPending(status) : session.schema_pending;
		status = /** @type {Status} */ (await get("status"));
		if (wasPending && !isPending(status)) {
			session = await get("session");
			sessions.emit();
		}
		polled.emit(status);
		schedule(status.busy ? 500 : 10_000);
	} catch {
		schedule(isGone ? 1000 : 5000);
	}
}

export const pollSoon = () => schedule(50);
