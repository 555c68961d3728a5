// @ts-check
// Small parts that several views share: badges, notices, copying, links to records, and what a failure looks like.

import { ApiError, getSession } from "./api.js";
import { count, h, plural, printable } from "./dom.js";
import { link, recordState } from "./state.js";
import { notify } from "./status.js";

/** The link to a record. @param {string} split @param {number} record @param {string | null} [text] @param {number} [side] */
export function recordLink(split, record, text = null, side = undefined) {
  const more = side ? { side: String(side) } : /** @type {Record<string, string>} */ ({});
  const isOnly = getSession().sides[side ?? 0]?.splits.length === 1;
  return h("a", { href: link({ ...recordState(split, record), more, where: "", filters: [], sort: "" }) }, text ?? (isOnly ? count(record) : `${split} ${count(record)}`));
}

/** The state of a record that is not simply fine. @param {string} state */
export function stateBadge(state) {
  const words = { damaged: "damaged", invalid: "does not match the schema", too_large: "too large", pending: "not indexed yet" };
  const text = Reflect.get(words, state);
  return text ? h("span", { class: state === "pending" ? "pill" : "pill alert" }, text) : null;
}

/** An error of the server: what happened, and what to do. @param {unknown} error @param {string} [title] */
export function errorPanel(error, title = "This cannot be shown") {
  if (error instanceof ApiError) return faultPanel(error.told, title);
  return h("div", { class: "notice", role: "alert" }, h("b", {}, "No answer from the server."), h("p", {}, "It may have been stopped. Run rekord view again."));
}

/** @param {ServerError} told @param {string} [title] */
export function faultPanel(told, title = "This cannot be shown") {
  /** @type {[string, unknown][]} */
  const facts = [
    ["where", told.location && Object.entries(told.location).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value}`).join(", ")],
    ["expected", told.expected],
    ["found", told.found],
    ["likely", told.likely],
  ];
  return h(
    "div",
    { class: "notice", role: "alert" },
    h("b", {}, told.code ? `${told.code}: ` : `${title}: `),
    printable(told.what),
    h("dl", {}, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, printable(value))]).flat()),
    told.do ? doLine(told.do) : null,
  );
}

/** What to do, with a button that copies it. @param {string} text */
export function doLine(text) {
  return h("p", { class: "do" }, h("span", { class: "soft" }, "do "), h("code", {}, printable(text)), " ", copyButton(text, "Copy what to do"));
}

/** @param {string | (() => string)} text @param {string} [label] */
export function copyButton(text, label = "Copy") {
  return h(
    "button",
    {
      type: "button",
      class: "small-button",
      "aria-label": label,
      onclick: async () => {
        const value = typeof text === "string" ? text : text();
        try {
          await navigator.clipboard.writeText(value);
        } catch {
          copyByCommand(value);
        }
        notify("Copied.");
      },
    },
    "Copy",
  );
}

// Where the page is not allowed to use the clipboard, such as in a frame of a notebook.
/** @param {string} text */
function copyByCommand(text) {
  const area = h("textarea", { class: "hidden-visually", value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Nothing is to be seen. @param {string} title @param {...(string | Node | null)} children */
export function emptyState(title, ...children) {
  return h("div", { class: "empty" }, h("h2", {}, title), ...children);
}

/** A table of which the parts are given. @param {string} caption @param {(string | Node)[]} heads @param {(string | number | Node | null)[][]} rows @param {string} [style] */
export function makeTable(caption, heads, rows, style = "") {
  return h(
    "table",
    { class: style },
    h("caption", { class: "hidden-visually" }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: typeof cell === "number" ? "n" : null }, typeof cell === "number" ? count(cell) : cell)))))),
  );
}

/** Buttons to earlier and later parts of a long list. @param {number} first @param {number} size @param {number} total @param {(first: number) => void} show */
export function pager(first, size, total, show) {
  if (total <= size && first === 0) return null;
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    h("button", { type: "button", disabled: first === 0, onclick: () => show(Math.max(first - size, 0)) }, "Previous"),
    h("span", {}, `${count(total ? first + 1 : 0)}–${count(Math.min(first + size, total))} of ${plural(total, "entry").replace("entrys", "entries")}`),
    h("button", { type: "button", disabled: first + size >= total, onclick: () => show(first + size) }, "Next"),
  );
}
