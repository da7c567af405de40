// A filter that isn't saved yet: its fault at its place, its boxes, and its past.

import { $, Problem, ask, el, fieldsOf, inSpace, many, options, post, run, svg, shownValue } from "../api.js";
import * as lists from "./lists.js";

let tried = null;
let state = null;

export function begin(given) {
  state = given;
  $("try-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(event.submitter, $("try-answer"), attempt);
  });
  $("filter").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); $("try-form").requestSubmit(); }
  });
  $("save-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(event.submitter, $("save-answer"), () => save(false));
  });
}

export function chosen() { $("save-form").hidden = true; }

export function ticked({ consumers, space }) {
  if ($("save-form").hidden || !space) return;
  const mine = consumers.filter((one) => one.space === space.name);
  const values = [["", "none yet"], ...mine.map((one) => [one.name, one.name])];
  if ($("save-consumer").length !== values.length) options($("save-consumer"), values, mine[0]?.name);
}

async function attempt() {
  if (!state.space) throw new Error("No spaces yet.");
  const text = $("filter").value;
  const space = state.space.name;
  $("save-form").hidden = true;
  let found;
  try {
    found = await post(inSpace(space, "/filters:preview"), { filter: text });
  } catch (error) {
    if (!(error instanceof Problem) || !error.body.span) throw error;
    $("try-answer").replaceChildren(fault(text, error.body));
    return;
  }
  tried = text;
  const cover = el("p", { class: "note" });
  $("try-answer").replaceChildren(...meaning(found), cover, ...past(found));
  $("save-form").hidden = false;
  $("save-answer").textContent = "";
  ticked(state);
  const over = await post(inSpace(space, "/subscriptions:find-covering"), { filter: text });
  if (over.covered_by !== null) cover.textContent = `Covered by ${over.covered_by}: it gets everything that this filter would.`;
}

// The text with its fault marked. Places count characters, not JavaScript's halves of them.
function fault(text, { reason, hint: advice, span: [from, to] }) {
  const letters = Array.from(text);
  const wrong = letters.slice(from, Math.max(to, from + 1)).join("");
  return el("div", { class: "error", role: "alert" },
    el("p", {}, reason),
    el("pre", {}, letters.slice(0, from).join(""), el("mark", {}, wrong.trim() ? wrong : "\u00a0"), letters.slice(Math.max(to, from + 1)).join("")),
    advice ? el("p", {}, `Hint: ${advice}`) : null);
}

function meaning({ boxes }) {
  const shown = boxes.slice(0, 10).map((one) => el("li", { class: "code" }, one));
  if (boxes.length > 10) shown.push(el("li", {}, `and ${boxes.length - 10} more`));
  const title = boxes.length === 1 ? "It means one box:" : `It means any of ${boxes.length} boxes:`;
  return [el("p", {}, title), el("ul", {}, ...shown)];
}

function past({ looked_at: count, matched, by_minute: minutes, examples }) {
  if (!count) return [el("p", { class: "empty" }, "The log has no events of this space yet to try it on.")];
  const parts = [el("p", { class: "big" }, "It would have matched ", el("strong", {}, matched.toLocaleString("en")),
    ` of the last ${many(count, "event")}.`)];
  if (minutes.length) parts.push(...bars(minutes));
  if (examples.length) {
    const names = fieldsOf(state.space);
    parts.push(el("details", {}, el("summary", {}, "The latest of them"), el("div", { class: "scroll", tabindex: "0" },
      el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", {}, name)))),
        el("tbody", {}, ...examples.map(({ event }) => el("tr", {}, ...names.map((name) => el("td", {}, shownValue(event[name]))))))))));
  }
  return parts;
}

function bars(minutes) {
  const first = minutes[0][0];
  const last = minutes[minutes.length - 1][0];
  const each = Math.max(1, Math.ceil(((last - first) / 60 + 1) / 120)) * 60;
  const counts = new Array(Math.floor((last - first) / each) + 1).fill(0);
  for (const [minute, count] of minutes) counts[Math.floor((minute - first) / each)] += count;
  const top = Math.max(...counts);
  const wide = Math.max(counts.length, 12);
  const picture = svg("svg", { viewBox: `0 0 ${wide} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `Matches by time, at most ${top} in ${each / 60} min` },
    ...counts.map((count, at) => {
      const bar = svg("rect", { x: at + 0.08, width: 0.84, y: 100 - (96 * count) / top, height: (96 * count) / top });
      bar.append(svg("title", {}, `${clock(first + at * each)}: ${count}`));
      return bar;
    }));
  const span = counts.length > 1 ? `${clock(first)} to ${clock(last)}` : clock(first);
  return [el("div", { class: "bars" }, picture), el("p", { class: "note" }, `${span}, per ${each === 60 ? "minute" : `${each / 60} minutes`}; at most ${top.toLocaleString("en")}`)];
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

async function save(replace) {
  const id = $("save-id").value.trim();
  const path = inSpace(state.space.name, `/subscriptions/${encodeURIComponent(id)}`);
  try {
    await ask(path, {
      method: "PUT",
      body: { filter: tried, consumer: $("save-consumer").value },
      headers: replace ? {} : { "If-None-Match": "*" },
    });
  } catch (error) {
    if (error.status !== 412 || replace) throw error;
    const button = el("button", { type: "button", on: { click: () => run(button, $("save-answer"), () => save(true)) } }, "Replace it");
    $("save-answer").replaceChildren(`${id} already exists. `, button);
    return;
  }
  $("save-answer").replaceChildren(el("span", { class: "good" }, `Saved as ${id}. Events are matched with it from now on.`));
  lists.refresh(id);
}
