// Subscriptions and consumers.

import { $, ask, el, inSpace, isTail, many, post, run, say } from "../api.js";

const PAGE = 50;
let state = null;
let next = null;
let timer = null;
let shape = "";
let count = -1;

export function begin(given) {
  state = given;
  $("search-form").addEventListener("submit", (event) => { event.preventDefault(); load(); });
  $("search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(load, 200); });
  $("more").addEventListener("click", () => load(next));
}

export function chosen() { count = -1; }

export function ticked({ status, consumers }) {
  if (state.space && count !== status.subscriptions && !$("subscriptions").contains(document.activeElement)) {
    count = status.subscriptions;
    if (!next || $("subscriptions").tBodies[0].rows.length <= PAGE) load();
  }
  showConsumers(consumers);
}

// Show a subscription that was just saved.
export function refresh(id) {
  $("search").value = id;
  load();
}

async function load(after = "") {
  const body = $("subscriptions").tBodies[0];
  if (!state.space) return;
  const text = $("search").value.trim();
  const asked = new URLSearchParams({ limit: PAGE, contains: text, after: typeof after === "string" ? after : "" });
  try {
    const page = await ask(inSpace(state.space.name, `/subscriptions?${asked}`));
    if (text !== $("search").value.trim()) return;
    next = page.next;
    const rows = page.items.filter((one) => !isTail(one.id)).map((one) => kept(body, one) ?? subscription(one));
    if (after) body.append(...rows);
    else body.replaceChildren(...rows);
    if (!body.rows.length) body.append(empty(5, text ? "No id or filter contains this." : "No subscriptions yet. Try a filter above and save it."));
    $("subscriptions-count").textContent = page.count.toLocaleString("en");
    $("more").hidden = !next;
  } catch (error) {
    body.replaceChildren(el("tr", {}, el("td", { colspan: 5 }, say(error))));
  }
}

// The row of a subscription that hasn't changed, with what was asked about it.
const kept = (body, one) => [...body.rows].find((row) => row.dataset.of === JSON.stringify(one));

const empty = (columns, text) => el("tr", {}, el("td", { colspan: columns, class: "empty" }, text));

function subscription(one) {
  const cover = el("td");
  const ask_cover = el("button", { type: "button", class: "plain", "aria-label": `What covers ${one.id}?`, on: { click: () => run(ask_cover, cover, async () => {
    const { covered_by: by, looked_at: looked, subscriptions } = await post(inSpace(state.space.name, "/subscriptions:find-covering"), { subscription: one.id });
    cover.replaceChildren(by !== null ? by : looked < subscriptions ? `none of the first ${looked.toLocaleString("en")}` : "missing: required");
  }) } }, "Check");
  cover.append(ask_cover);
  const row = el("tr", { "data-of": JSON.stringify(one) }, el("td", {}, one.id), el("td", { class: "code" }, one.filter), el("td", {}, one.consumer ?? "–"), cover);
  const actions = el("td");
  const sure = el("button", { type: "button", class: "plain bad", on: { click: () => run(sure, actions, async () => {
    await ask(inSpace(state.space.name, `/subscriptions/${encodeURIComponent(one.id)}`), { method: "DELETE" });
    row.remove();
  }) } }, "Yes, delete it");
  const remove = el("button", { type: "button", class: "plain", "aria-label": `Delete ${one.id}`, on: { click: () => {
    const keep = el("button", { type: "button", class: "plain", on: { click: () => { actions.replaceChildren(remove); remove.focus(); } } }, "Keep it");
    actions.replaceChildren(sure, keep);
    keep.focus();
  } } }, "Delete");
  actions.append(remove);
  row.append(actions);
  return row;
}

function showConsumers(consumers) {
  const body = $("consumers").tBodies[0];
  const names = JSON.stringify(consumers.map((one) => one.name));
  if (names !== shape) {
    shape = names;
    body.replaceChildren(...consumers.map(consumer));
    if (!consumers.length) body.append(empty(7, "No consumers yet. Create one with PUT /v1/consumers/NAME; it receives the matches of its subscriptions."));
  }
  consumers.forEach((one, at) => {
    const [, , lag, listeners, delivery, error] = body.rows[at].cells;
    lag.textContent = one.lag.toLocaleString("en");
    listeners.textContent = one.listeners || "none";
    delivery.textContent = one.delivery.kind || "pull or stream";
    const wrong = [one.state === "stopped" ? "stopped" : null, one.error, one.dead_letters ? many(one.dead_letters, "dead letter") : null];
    error.textContent = wrong.filter(Boolean).join("; ") || "none";
    error.className = error.textContent === "none" ? "note" : "bad";
    body.rows[at].querySelector(".redrive").hidden = !one.dead_letters;
  });
}

function consumer(one) {
  const where = el("select", { "aria-label": `Where ${one.name} goes on` },
    el("option", { value: "start" }, "the start"), el("option", { value: "now" }, "now"));
  const go = el("button", { type: "button", class: "plain", on: { click: () => run(go, $("consumers-note"), async () => {
    await post(`/v1/consumers/${encodeURIComponent(one.name)}/seek`, { position: where.value });
    $("consumers-note").textContent = `${one.name} goes on at ${where.selectedOptions[0].textContent}.`;
  }) } }, "Go");
  const redrive = el("button", { type: "button", class: "plain redrive", hidden: true, on: { click: () => run(redrive, $("consumers-note"), async () => {
    const done = await ask(`/v1/consumers/${encodeURIComponent(one.name)}/dead-letters:redrive`, { method: "POST" });
    $("consumers-note").textContent = [`${one.name}: ${many(done.delivered.length, "dead letter")} delivered, ${done.left} left.`, done.error].filter(Boolean).join(" ");
  }) } }, "Redrive");
  return el("tr", {}, el("td", {}, one.name), el("td", {}, one.space), el("td"), el("td"), el("td"), el("td"),
    el("td", {}, el("div", { class: "row" }, where, go, redrive)));
}
