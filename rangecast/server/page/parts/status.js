// The state in one line: numbers, each with what it was in the last minute.

import { $, ask, el, svg } from "../api.js";

const KEPT = 60;
const tiles = {};
let before = null;

const NAMES = [
  ["events", "Events per second"],
  ["matches", "Matches per second"],
  ["edits", "Edits"],
  ["behind", "Consumers behind"],
  ["durability", "Durability"],
  ["disk", "Log on disk"],
];

export function begin() {
  for (const [key, title] of NAMES) {
    const value = el("dd", {}, "–");
    const line = svg("polyline", { points: "" });
    const picture = svg("svg", { viewBox: `0 0 ${KEPT - 1} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, line);
    tiles[key] = { value, line, past: [] };
    $("status").append(el("div", { "data-key": key }, el("dt", {}, title), value, key === "durability" ? "" : picture));
  }
}

function show(key, text, number, small = "") {
  const tile = tiles[key];
  tile.value.replaceChildren(text, small ? el("small", {}, ` ${small}`) : "");
  tile.past = [...tile.past, number].slice(-KEPT);
  const top = Math.max(...tile.past, 1e-9);
  const first = KEPT - tile.past.length;
  tile.line.setAttribute("points", tile.past.map((one, at) => `${first + at},${(19 - (18 * one) / top).toFixed(2)}`).join(" "));
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < 4) { count /= 1000; at += 1; }
  return `${count.toFixed(count < 10 && at ? 1 : 0)} ${units[at]}`;
}

const PROMISE = {
  fsync: "synced before each answer",
  interval: "synced every 50 ms",
  none: "lost when the process ends",
};

// Ask for the state, draw it, and return it with the consumers.
export async function poll() {
  const [now, consumers] = await Promise.all([ask("/v1/status"), ask("/v1/consumers")]);
  const items = consumers.items.filter((one) => !["session", "link"].includes(one.delivery.kind));
  if (before && before.epoch === now.epoch && now.uptime_seconds > before.uptime_seconds) {
    const rate = (key) => Math.max(0, (now[key] - before[key]) / (now.uptime_seconds - before.uptime_seconds));
    for (const key of ["events", "matches"]) show(key, Math.round(rate(key)).toLocaleString("en"), rate(key));
    show("edits", now.edits.toLocaleString("en"), rate("edits"), "so far");
  }
  before = now;
  const behind = items.filter((one) => one.lag > 0);
  const most = Math.max(0, ...items.map((one) => one.lag));
  show("behind", behind.length.toLocaleString("en"), most, most ? `by up to ${most.toLocaleString("en")}` : `of ${items.length}`);
  show("durability", now.durability, 0, PROMISE[now.durability] || "");
  show("disk", now.disk_full ? "full" : now.durability === "none" && !now.log_bytes ? "in memory" : bytes(now.log_bytes), now.log_bytes);
  tiles.disk.value.className = now.disk_full ? "bad" : "";
  return { status: now, consumers: items };
}
