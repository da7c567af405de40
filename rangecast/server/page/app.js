// Layout of the page, and the clock that everything follows.

import { $, ask, columnsOf, exampleOf, many, onUnauthorized, options, setToken } from "./api.js";
import * as map from "./map/map.js";
import * as boards from "./parts/boards.js";
import * as event from "./parts/event.js";
import * as links from "./parts/links.js";
import * as lists from "./parts/lists.js";
import * as plane from "./parts/plane.js";
import * as status from "./parts/status.js";
import * as tail from "./parts/tail.js";
import * as tenants from "./parts/tenants.js";
import * as tracks from "./parts/tracks.js";
import * as trial from "./parts/trial.js";
import { newest } from "./recent.js";

const state = { space: null, spaces: [], status: null, consumers: [], events: [] };
const parts = [map, tracks, trial, plane, event, tail, lists, boards, links, tenants];

function health(text, kind) {
  const place = $("health");
  if (place.textContent !== text) place.textContent = text;
  place.className = kind;
}

async function loadSpaces() {
  state.spaces = (await ask("/v1/spaces")).items;
  options($("space"), state.spaces.map((one) => [one.name, one.name]));
  const chosen = state.spaces.find((one) => one.name === $("space").value) || null;
  if (chosen?.name !== state.space?.name) choose(chosen);
}

function choose(space) {
  state.space = space;
  $("attributes").textContent = space ? `Attributes: ${columnsOf(space).join(", ")}` : "";
  const isPlace = ({ type }) => type === "location" || type === "point";
  const examples = space ? [...space.attribute].sort((a, b) => isPlace(b) - isPlace(a)).slice(0, 2).map(exampleOf) : [];
  $("filter").placeholder = examples.join(" and ");
  $("tail-filter").placeholder = examples[0] ?? "";
  for (const part of parts) part.chosen(state);
}

async function tick() {
  try {
    Object.assign(state, await status.poll());
    if (state.spaces.length !== state.status.spaces || !state.space) await loadSpaces();
    const now = state.status;
    if (now.disk_full) health("The disk is full: new events and edits are rejected, deliveries continue", "bad");
    else if (!state.space && !now.boards) health("No spaces yet. Create one with PUT /v1/spaces/NAME, or start the server with --space or --demo", "good");
    else {
      const interests = now.boards ? `, ${many(now.interests, "interest")} of ${many(now.boards, "board")}` : "";
      health(`${many(now.subscriptions, "subscription")}${interests}, ${many(now.durable_seq, "entry").replace("entrys", "entries")} in the log`, "good");
    }
    state.events = await newest(state);
    for (const part of parts) await part.ticked?.(state);
  } catch (error) {
    health(error.status === 401 ? "This server requires a token" : error.message, "bad");
  }
  setTimeout(tick, document.hidden ? 5000 : 1000);
}

$("space").addEventListener("change", () => choose(state.spaces.find((one) => one.name === $("space").value)));
$("token-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  setToken($("token").value.trim());
  $("token").value = "";
  $("access").open = false;
  state.spaces = [];
  state.space = null;
});
onUnauthorized(() => { if (!$("access").contains(document.activeElement)) $("access").open = true; });
status.begin();
for (const part of parts) part.begin(state);
tick();
