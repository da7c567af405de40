// Events that match a filter, as they come. The newest are at the top; the table never grows.

import { $, el, fieldsOf, follow, inSpace, isTail, many, post, shownValue } from "../api.js";

const ROWS = 100;
const RATE = 400; // messages per second that the server may send
const NAMED = 3; // subscriptions that are named for an event
const FAR = 50000; // so far behind the end of the log, it begins again at the end

let state = null;
let session = null;
let waiting = [];
let used = 0;
let seen = 0;
let skipped = 0;
let paused = false;
let last = 0;
let wanted = "true";
let unknown = []; // events in the table whose matches aren't known yet, with the cells for them
let isAsking = false;

export function begin(given) {
  state = given;
  $("tail-form").addEventListener("submit", (event) => { event.preventDefault(); start(); });
  $("tail-pause").addEventListener("click", () => {
    paused = !paused;
    skipped = 0;
    $("tail-pause").setAttribute("aria-pressed", paused);
    $("tail-pause").textContent = paused ? "Go on" : "Pause";
    note();
    draw();
  });
  setInterval(draw, 250);
}

export function chosen({ space }) {
  if (space) {
    $("tail-filter").value = "true"; // what another space was filtered by means nothing here
    const names = fieldsOf(space);
    $("tail").tHead.replaceChildren(el("tr", {}, ...["matched by", ...names, "position"].map((name) => el("th", {}, name))));
  }
  start();
}

export function ticked({ status }) {
  if (!session && state.space && !$("tail-note").classList.contains("bad")) start();
  else if (session && last && status.durable_seq - last > FAR) start("Too many to show: continued at the end of the log.");
  session?.more(Math.min(used, RATE));
  used -= Math.min(used, RATE);
}

function start(text = "") {
  session?.close();
  session = null;
  waiting = [];
  used = seen = skipped = last = 0;
  $("tail").tBodies[0].replaceChildren();
  if (!state.space) return note("No spaces yet.");
  wanted = $("tail-filter").value.trim() || "true";
  note(text || "Connecting …");
  session = follow(state.space.name, wanted, {
    opened: () => note(text || "Waiting for the first event that matches …"),
    message: (frame) => {
      used += 1;
      seen += 1;
      last = frame.seq;
      if (paused) skipped += 1;
      else { waiting.push(frame); if (waiting.length > ROWS) waiting.shift(); }
    },
    failed: (reason, isFinal) => {
      session?.close();
      session = null;
      note(isFinal ? reason : `${reason}; it is tried again`, isFinal);
    },
  });
  return undefined;
}

function note(text, bad = false) {
  const place = $("tail-note");
  const said = text ?? (paused ? `Paused. ${many(skipped, "event")} came meanwhile.` : seen ? `${many(seen, "event")} so far; the newest ${ROWS} stay.` : place.textContent);
  if (place.textContent !== said) place.textContent = said;
  if (text !== undefined) place.className = bad ? "note bad error" : "note";
}

function draw() {
  if (!session || !state.space) return;
  if (waiting.length && !paused) {
    const times = state.space.attribute.filter(({ type }) => type === "timestamp").map(({ name }) => name);
    const fields = fieldsOf(state.space);
    const body = $("tail").tBodies[0];
    body.prepend(...waiting.reverse().map(({ event, position }) => {
      const values = event.specversion && event.data ? event.data : event;
      const names = el("td", { class: "note" }, "…");
      unknown.push([event, names]);
      return el("tr", {}, names, ...fields.map((name) => {
        const text = shownValue(values[name]);
        const short = times.includes(name) ? text.replace(/^.*T(\d\d:\d\d(:\d\d(\.\d{1,3})?)?).*$/, "$1") : text;
        return el("td", { title: short !== text || text.length > 20 ? text : null }, short);
      }), el("td", { class: "note" }, position));
    }));
    waiting = [];
    while (body.rows.length > ROWS) body.lastElementChild.remove();
    nameMatches();
  }
  if (seen) note();
}

// Find the subscriptions of the events that are shown: those that still are, in one request at a time.
async function nameMatches() {
  if (isAsking || !state.space) return;
  isAsking = true;
  const some = unknown.filter(([, cell]) => cell.isConnected);
  unknown = [];
  try {
    const { matches } = await post(inSpace(state.space.name, "/events:match?ignore_unknown=true"), some.map(([event]) => event));
    some.forEach(([, cell], at) => {
      const ids = (matches[at] ?? []).filter((id) => !isTail(id));
      const rest = ids.length - NAMED;
      cell.textContent = ids.length ? ids.slice(0, NAMED).join(", ") + (rest > 0 ? ` and ${rest.toLocaleString("en")} more` : "") : "–";
    });
  } catch {
    for (const [, cell] of some) cell.textContent = "?"; // the line above the table says what is wrong
  }
  isAsking = false;
  if (unknown.length) nameMatches(); // those that came meanwhile
}
