// Transitions of tracked objects, as they happen. The newest are at the top.

import { $, ask, el, inSpace, shownValue } from "../api.js";

const ROWS = 100;

let shown = "";

export function begin() {}

export function chosen({ space }) {
  shown = "";
  $("tracks-part").hidden = !space?.track;
  $("tracks").tBodies[0].replaceChildren();
}

export async function ticked({ space }) {
  if (!space?.track) return;
  const { items } = await ask(inSpace(space.name, `/transitions?limit=${ROWS}`));
  const newest = items[0]?.position ?? "none";
  if (newest === shown) return;
  shown = newest;
  $("tracks-note").textContent = items.length ? `Objects by ${space.track.key}; the newest ${ROWS} stay.` : "No object has entered or left a subscription with a track yet.";
  $("tracks").tBodies[0].replaceChildren(...items.map(row));
}

function row({ at, key, transition, subscriptions, since, reason }) {
  return el("tr", { class: transition },
    el("td", { title: at }, clock(at)), el("td", {}, shownValue(key)), el("td", {}, transition),
    el("td", {}, subscriptions.map(shownValue).join(", ")), el("td", { title: since }, stayed(at, since)),
    el("td", { class: "note" }, reason));
}

const clock = (text) => text.replace(/^.*T(\d\d:\d\d:\d\d).*$/, "$1");

function stayed(at, since) {
  const seconds = Math.round((new Date(at) - new Date(since)) / 1000);
  if (!seconds) return "–";
  return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
