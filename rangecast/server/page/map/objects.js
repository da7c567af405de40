// Moving objects: where they are, where they came from, and the subscriptions that they are in.

import { inSpace, isTail, post } from "../api.js";

const MOST = 1000; // objects
const TRAIL = 12; // places of a trail
const AGE = 30000; // milliseconds until a place of a trail has faded
const GONE = 120000; // milliseconds after which an object that says nothing is left out
const GLIDE = 1000; // milliseconds from one place to the next
const ASKED = 400; // objects whose subscriptions are asked for at a time
const CHANGES = 60; // entries and exits that are listed

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export function makeObjects() {
  const objects = new Map();
  let inside = new Map(); // subscription -> names of objects
  let changes = []; // the newest first: {at, name, subscription, isEntry}
  let isAsking = false;
  let count = 0;

  return {
    get all() { return [...objects.values()]; },
    get inside() { return inside; },
    get changes() { return changes; },
    clear() { objects.clear(); inside = new Map(); changes = []; },

    // Take new events; `key` names the field that tells objects apart, none: each event is one.
    add(rows, place, key, project) {
      const now = Date.now();
      for (const row of rows) {
        const where = [field(row, place.x), field(row, place.y)];
        if (!where.every(Number.isFinite)) continue;
        const [x, y] = project(where);
        const name = key ? String(field(row, key) ?? "") : `event ${(count += 1)}`;
        const known = objects.get(name);
        const trail = known ? known.trail : [];
        const last = trail[trail.length - 1];
        const turned = last && place.type === "location" ? x - Math.round(x - last.x) : x; // the short way round
        trail.push({ x: turned, y, at: now });
        while (trail.length > TRAIL || now - trail[0].at > AGE) trail.shift();
        objects.delete(name); // the newest are at the end
        objects.set(name, { name, row, trail, at: now, where, matches: known?.matches ?? null, isNew: true });
      }
      for (const [name, one] of objects) {
        if (now - one.at < GONE && objects.size <= MOST) break;
        objects.delete(name);
      }
    },

    // Ask which subscriptions match the objects that have moved; true if something has changed.
    async locate(space, going) {
      const some = [...objects.values()].filter((one) => one.isNew).slice(-ASKED);
      if (isAsking || !some.length) return false;
      isAsking = true;
      try {
        const { matches } = await post(inSpace(space, "/events:match?ignore_unknown=true"), some.map((one) => one.row));
        if (!going()) return false;
        some.forEach((one, at) => settle(one, (matches[at] ?? []).filter((id) => !isTail(id))));
      } finally { isAsking = false; }
      inside = new Map();
      for (const { name, matches } of objects.values()) for (const id of matches ?? []) inside.set(id, [...(inside.get(id) ?? []), name]);
      return true;
    },
  };

  function settle(one, matches) {
    const [before, now] = [new Set(one.matches ?? []), new Set(matches)];
    const entries = matches.filter((id) => !before.has(id)).map((id) => [id, true]);
    const exits = [...before].filter((id) => !now.has(id)).map((id) => [id, false]);
    const made = [...entries, ...exits].map(([subscription, isEntry]) => ({ at: one.at, name: one.name, subscription, isEntry }));
    changes = [...made.reverse(), ...changes].slice(0, CHANGES);
    one.matches = matches;
    one.isNew = false;
  }
}

// A field of an event, by its name or by a path such as $.at.lon.
export const field = (row, name) => (name.startsWith("$.") ? name.slice(2).split(".").reduce((value, part) => value?.[part], row) : row[name]);

// Where an object is drawn now: it glides to its newest place.
export function placeOf({ trail }) {
  const last = trail[trail.length - 1];
  const before = trail[trail.length - 2];
  const share = calm.matches || !before ? 1 : Math.min(1, (Date.now() - last.at) / GLIDE);
  return [0, 1].map((axis) => { const key = "xy"[axis]; return before ? before[key] + (last[key] - before[key]) * share : last[key]; });
}

export const isGliding = (objects) => !calm.matches && objects.some(({ at, trail }) => trail.length > 1 && Date.now() - at < GLIDE);

export function drawObjects(pen, objects, view, color, selected) {
  const now = Date.now();
  const [x0, y0, x1, y1] = view.bounds();
  const seen = [];
  for (const one of objects) {
    const [x, y] = placeOf(one);
    if (y < y0 || y > y1) continue;
    const first = view.isEarth ? Math.ceil(x0 - x) : 0;
    const last = view.isEarth ? Math.floor(x1 - x) : x < x0 || x > x1 ? -1 : 0;
    for (let turn = first; turn <= last; turn += 1) seen.push({ one, turn, at: view.screen(x + turn, y) });
  }
  pen.lineCap = "round";
  for (const { one, turn, at } of seen) {
    const isIn = one.matches?.length > 0;
    pen.strokeStyle = color(isIn ? "warm" : "soft");
    pen.lineWidth = 2.5;
    const places = one.trail.slice(0, -1).map((place) => [...view.screen(place.x + turn, place.y), place.at]);
    places.push([...at, now]);
    for (let step = 1; step < places.length; step += 1) {
      pen.globalAlpha = Math.max(0, 0.75 * (1 - (now - places[step - 1][2]) / AGE));
      pen.beginPath();
      pen.moveTo(places[step - 1][0], places[step - 1][1]);
      pen.lineTo(places[step][0], places[step][1]);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }
  const areNamed = seen.length <= 25;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const { one, at: [x, y] } of seen) {
    pen.beginPath();
    pen.arc(x, y, one.name === selected ? 7 : 5, 0, 7);
    pen.fillStyle = color(one.matches?.length ? "warm" : "soft");
    pen.fill();
    pen.lineWidth = 2;
    pen.strokeStyle = color(one.name === selected ? "ink" : "field");
    pen.stroke();
    if (!areNamed && one.name !== selected) continue;
    pen.lineWidth = 3;
    pen.strokeStyle = color("field");
    pen.fillStyle = color("ink");
    const text = one.name.length > 20 ? `${one.name.slice(0, 19)}…` : one.name;
    pen.strokeText(text, x + 9, y);
    pen.fillText(text, x + 9, y);
  }
}

export function objectAt(objects, view, px, py) {
  let [found, nearest] = [null, 14];
  for (const one of objects) {
    const [x, y] = placeOf(one);
    for (const turn of view.isEarth ? [-1, 0, 1] : [0]) {
      const [sx, sy] = view.screen(x + turn, y);
      const apart = Math.hypot(sx - px, sy - py);
      if (apart < nearest) [found, nearest] = [one, apart];
    }
  }
  return found;
}
