// One event: the subscriptions that match it, and near misses.

import { $, ask, el, fieldsOf, inSpace, isTail, many, post, run } from "../api.js";

let state = null;

export function begin(given) {
  state = given;
  $("event-form").addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    run(submitted.submitter, $("event-answer"), recipients);
  });
  $("event-latest").addEventListener("click", (click) => run(click.target, $("event-answer"), take));
  $("event-publish").addEventListener("click", (click) => run(click.target, $("event-answer"), publish));
  $("why-form").addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    run(submitted.submitter, $("why-answer"), () => why($("why-id").value.trim()));
  });
}

export function chosen() {
  $("event").value = "";
  $("event").placeholder = state.space ? JSON.stringify(Object.fromEntries(fieldsOf(state.space).slice(0, 3).map((name) => [name, null]))) : "";
  $("why-answer").replaceChildren();
}

export async function ticked() {
  if (!$("event").value && state.space && document.activeElement !== $("event")) {
    const last = await latest();
    if (last) $("event").value = written(last);
  }
}

const written = (event) => JSON.stringify(event, null, 1).replace(/\n\s*/g, " ");

async function latest() {
  const { epoch, durable_seq: durable, first_seq: first } = state.status;
  const after = Math.max(first - 1, durable - 50);
  const text = await ask(inSpace(state.space.name, `/events?after=${epoch}:${after}&limit=50`), { raw: true });
  const lines = text.trim().split("\n").filter(Boolean);
  return lines.length ? JSON.parse(lines[lines.length - 1]).event : null;
}

async function take() {
  const last = await latest();
  if (!last) throw new Error("No recent events. Publish one, or type one in.");
  $("event").value = written(last);
  await recipients();
}

function given() {
  if (!state.space) throw new Error("No spaces yet.");
  try {
    return JSON.parse($("event").value);
  } catch (error) {
    throw new Error(`This isn't JSON: ${error.message}`);
  }
}

async function recipients() {
  const event = given();
  const found = await post(inSpace(state.space.name, "/why-not"), { event });
  $("why-form").hidden = false;
  $("why-answer").replaceChildren();
  const buttons = found.matches.map((id) => {
    const button = el("button", { type: "button", class: "plain", on: { click: () => run(button, $("why-answer"), () => why(id)) } }, id);
    return button;
  });
  const rest = found.count - found.matches.length;
  $("event-answer").replaceChildren(
    el("p", { class: "big" }, found.count ? `${many(found.count, "subscription")} ${found.count === 1 ? "gets" : "get"} it${found.count ? ":" : ""}` : "No subscription matches it."),
    el("p", { class: "row" }, ...buttons, rest > 0 ? `and ${rest.toLocaleString("en")} more` : null),
    ...near(found));
}

function near({ nearest, looked_at: looked, subscriptions }) {
  if (!nearest.length) return subscriptions ? [] : [el("p", { class: "empty" }, "No subscriptions yet. Try a filter and save it.")];
  const bound = looked < subscriptions ? ` (of the first ${looked.toLocaleString("en")})` : "";
  return [el("p", {}, `These lack least${bound}:`), el("div", { class: "scroll", tabindex: "0" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "Subscription"), el("th", {}, "What it wants"), el("th", {}, "The event has"))),
    el("tbody", {}, ...nearest.map((one) => {
      const broken = one.lines.filter((line) => !line.holds);
      return el("tr", {}, el("td", {}, one.subscription),
        el("td", {}, ...broken.map((line) => el("div", { class: "code" }, line.wanted))),
        el("td", {}, ...broken.map((line) => el("div", {}, line.distance ? `${line.value}: ${line.distance}` : line.value))));
    }))))];
}

async function why(id) {
  const found = await post(inSpace(state.space.name, "/why"), { event: given(), subscription: id });
  $("why-id").value = id;
  const which = found.alternatives > 1 ? ` The nearest of its ${found.alternatives} boxes:` : "";
  $("why-answer").replaceChildren(
    el("p", { class: found.matches ? "good" : "bad" }, found.verdict + which),
    el("table", {}, el("thead", {}, el("tr", {}, ...["", "It wants", "The event has", ""].map((text) => el("th", {}, text)))),
      el("tbody", {}, ...found.lines.map((line) => el("tr", {},
        el("td", { class: line.holds ? "good" : "bad" }, line.holds ? "✓ holds" : "✗ fails"),
        el("td", { class: "code" }, line.wanted), el("td", {}, line.value), el("td", { class: "note" }, line.distance))))));
}

async function publish() {
  const answer = await post(inSpace(state.space.name, "/events?wait=matches"), given());
  const got = (answer.matches?.[0] ?? []).filter((id) => !isTail(id)).length;
  $("event-answer").replaceChildren(el("p", { class: "good" }, `Published at ${answer.first}; ${many(got, "subscription")} matched it.`));
}
