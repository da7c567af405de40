// Tenants: what each has, and what it may have at most. Only an administrator sees them.

import { $, ask, el } from "../api.js";
import { bytes } from "./status.js";

const EVERY = 5; // ticks
let left = 0;
let isForbidden = false;

export function begin() {}

// A new token, or another space: perhaps they may be seen now.
export function chosen() {
  left = 0;
  isForbidden = false;
}

export async function ticked() {
  left -= 1;
  if (left >= 0 || isForbidden) return;
  left = EVERY;
  let items = [];
  try {
    items = (await ask("/v1/tenants")).items;
  } catch (error) {
    isForbidden = error.status === 403;
  }
  $("tenants-section").hidden = !items.some((one) => one.name !== "default" || Object.keys(one.limits).length);
  $("tenants").tBodies[0].replaceChildren(...items.map(tenant));
}

function tenant(one) {
  const limits = Object.entries(one.limits).map(([name, most]) => `${name.replaceAll("_", " ")} ${most.toLocaleString("en")}`);
  const counts = [one.subscriptions, one.consumers].map((count) => el("td", {}, count.toLocaleString("en")));
  return el("tr", {}, el("td", {}, one.name), ...counts, el("td", {}, bytes(one.retained_bytes)), el("td", {}, limits.join(", ") || "none"));
}
