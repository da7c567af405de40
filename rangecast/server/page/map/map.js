// The map: shapes of subscriptions, objects that move, and the subscriptions that they are in.

import { $, el, many, options } from "../api.js";
import { drawGraticule, drawLabels, drawScale, drawTiles } from "./ground.js";
import { drawObjects, isGliding, makeObjects, objectAt } from "./objects.js";
import { earth, plane } from "./projection.js";
import { drawNames, drawShapes, loadShapes, shapesAt } from "./shapes.js";
import { around, makeView } from "./view.js";

const KEYS = /^(.*_)?(vehicle|object|device|car|truck|ship|asset|unit|id|name)(_?id)?$/i;
const ROWS = 200; // rows of the tables
const LISTED = 12; // objects or shapes that a line names
const TURNS = 40; // milliseconds between two pictures of a movement

let state = null;
let view = null;
let drawn = null; // {place, tiles, shapes, isWhole}
let byName = new Map(); // subscription -> its shapes
let selected = null; // {name} of an object, or {subscription}
let wanted = 0; // the load that counts
let counted = "";
let loaded = 0;
let ground = null; // what doesn't move, as a picture
let isStale = true;
let waiting = false;
const objects = makeObjects();

const projection = () => (drawn?.place.type === "location" ? earth : plane);
const placesOf = (space) => (space?.attribute ?? []).filter(({ type }) => type === "location" || type === "point");

export function begin(given) {
  state = given;
  const canvas = $("map");
  view = makeView(canvas, { changed: redraw, clicked: pick, reset: fit });
  ground = document.createElement("canvas");
  $("map-in").addEventListener("click", () => view.zoom(1.6));
  $("map-out").addEventListener("click", () => view.zoom(1 / 1.6));
  $("map-fit").addEventListener("click", fit);
  $("map-place").addEventListener("change", load);
  $("map-object").addEventListener("change", () => { objects.clear(); show(); });
  $("map-tables").addEventListener("toggle", tables);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => { if (view.isMoved || !drawn) redraw(); else fit(); }).observe(canvas);
}

export function chosen({ space }) {
  const places = placesOf(space);
  $("map-part").hidden = !places.length;
  drawn = selected = null;
  byName = new Map();
  counted = "";
  objects.clear();
  if (!places.length) return;
  options($("map-place"), places.map(({ name }) => [name, name]));
  $("map-place").parentElement.hidden = places.length < 2;
  const texts = space.attribute.filter(({ type }) => ["string", "text", "category", "hierarchy", "integer"].includes(type)).map(({ name }) => name);
  const key = texts.find((name) => KEYS.test(name)) ?? texts.find((name) => space.attribute.find((one) => one.name === name).type === "string") ?? "";
  options($("map-object"), [["", "each event"], ...texts.map((name) => [name, name])], key);
  load();
}

async function load() {
  const mine = (wanted += 1);
  const name = $("map-place").value;
  const isOther = drawn?.place.name !== name;
  loaded = Date.now();
  try {
    const found = await loadShapes(state.space.name, name, () => mine === wanted);
    if (!found) return;
    drawn = found;
    view.isEarth = projection().isEarth;
    byName = Map.groupBy(drawn.shapes, ({ subscription }) => subscription);
    if (isOther) { objects.clear(); view.isMoved = false; }
    if (!view.isMoved) fit();
    show();
  } catch (error) {
    $("map-note").textContent = error.message;
  }
}

export async function ticked({ status, space, events }) {
  if ($("map-part").hidden) return;
  const count = `${status.subscriptions} ${status.edits}`;
  if (counted !== count && Date.now() - loaded > (drawn?.shapes.length > 2000 ? 10000 : 2000)) {
    counted = count;
    load();
  }
  if (!drawn) return;
  objects.add(events, drawn.place, $("map-object").value, projection().project);
  if (!view.isMoved && !drawn.shapes.length && events.length) fit();
  redrawObjects();
  const mine = wanted;
  if (await objects.locate(space.name, () => mine === wanted)) show();
}

function fit() {
  if (!drawn) return;
  const places = objects.all.map(({ trail }) => trail[trail.length - 1]);
  const boxes = drawn.shapes.length ? drawn.shapes.map(({ box }) => box) : places.map(({ x, y }) => [x, y, x, y]);
  view.fit(around(boxes, view.isEarth));
  view.isMoved = false;
}

// ---- what a person asks for

function pick(px, py) {
  const object = px === null ? null : objectAt(objects.all, view, px, py);
  const shapes = px === null || object ? [] : shapesAt(ground.getContext("2d"), drawn?.shapes ?? [], view, px, py);
  selected = object ? { name: object.name } : shapes.length ? { subscription: shapes[shapes.length - 1].subscription } : null;
  if (px !== null && !object) {
    const [x, y] = projection().unproject(view.world(px, py));
    const turned = view.isEarth ? x - 360 * Math.round(x / 360) : x;
    const names = [...new Set(shapes.filter((one) => !one.negated).map(({ subscription }) => String(subscription)))];
    $("map-here").textContent = `${Number(turned.toPrecision(7))}, ${Number(y.toPrecision(7))}: ${names.length ? listed(names) : "outside all shapes"}`;
  }
  show();
}

function go(subscription) {
  selected = { subscription };
  view.fit(around((byName.get(subscription) ?? []).map(({ box }) => box), view.isEarth), 80);
  view.isMoved = true;
  show();
}

const listed = (names) => names.slice(0, LISTED).join(", ") + (names.length > LISTED ? ` and ${(names.length - LISTED).toLocaleString("en")} more` : "");

// ---- texts

function show() {
  const all = objects.all;
  const busy = [...objects.inside].sort((a, b) => b[1].length - a[1].length).slice(0, LISTED).sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
  const within = all.filter(({ matches }) => matches?.length).length;
  const count = drawn ? many(byName.size, "subscription") : "";
  const note = !drawn ? "Loading …" : `${count} with ${many(drawn.shapes.length, "shape")}${drawn.isWhole ? "" : ", the first of more"}; ${many(all.length, "object")}, ${within.toLocaleString("en")} inside of something.`;
  if ($("map-note").textContent !== note) $("map-note").textContent = note;
  $("map").setAttribute("aria-label", `Map. ${note} ${busy.slice(0, 3).map(([id, names]) => `${id}: ${many(names.length, "object")}.`).join(" ")}`);
  const object = all.find(({ name }) => name === selected?.name);
  if (object) $("map-here").textContent = `${object.name} at ${object.where.join(", ")}: ${object.matches?.length ? listed(object.matches.map(String)) : "in no subscription"}`;
  if (!$("map-busy").contains(document.activeElement)) $("map-busy").replaceChildren(...(busy.length ? busy.map(line) : [el("li", { class: "empty" }, "No object is in a subscription now.")]));
  $("map-changes").replaceChildren(...(objects.changes.length ? objects.changes.map(change) : [el("li", { class: "empty" }, "Nothing has matched yet.")]));
  if ($("map-tables").open) tables();
  redraw();
}

const line = ([id, names]) => el("li", {},
  el("button", { type: "button", class: "plain", title: "Show it on the map", disabled: !byName.has(id), on: { click: () => go(id) } }, String(id)), ` ${listed(names)}`);

const change = ({ at, name, subscription, isEntry }) => el("li", {},
  el("span", { class: "note" }, `${new Date(at).toLocaleTimeString("en-GB")} `), name,
  el("span", { class: isEntry ? "good" : "note" }, isEntry ? " in " : " left "), String(subscription));

function tables() {
  if (!$("map-tables").open || !drawn || $("map-shapes").contains(document.activeElement)) return;
  const shown = drawn.shapes.slice(0, ROWS);
  const where = ({ box }) => {
    const [x, y] = projection().unproject([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]);
    return `${Number(x.toPrecision(6))}, ${Number(y.toPrecision(6))}`;
  };
  $("map-shapes").tBodies[0].replaceChildren(...shown.map((shape) => el("tr", {},
    el("td", {}, el("button", { type: "button", class: "plain", on: { click: () => go(shape.subscription) } }, String(shape.subscription))),
    el("td", {}, `${shape.negated ? "outside of: " : ""}${shape.text}`), el("td", {}, where(shape)),
    el("td", {}, listed(objects.inside.get(shape.subscription) ?? []) || "–"))));
  $("map-shapes-note").textContent = shown.length < drawn.shapes.length ? `The first ${ROWS} of ${many(drawn.shapes.length, "shape")}.` : "";
  $("map-objects").tBodies[0].replaceChildren(...objects.all.slice(-ROWS).reverse().map(({ name, where: [x, y], matches }) => el("tr", {},
    el("td", {}, name), el("td", {}, `${Number(x.toPrecision(8))}, ${Number(y.toPrecision(8))}`), el("td", {}, listed((matches ?? []).map(String)) || "–"))));
}

// ---- pictures, drawn when something has changed

function redraw() {
  isStale = true;
  redrawObjects();
}

function redrawObjects() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    picture();
    if (!document.hidden && isGliding(objects.all)) setTimeout(redrawObjects, TURNS);
  });
}

function picture() {
  const canvas = $("map");
  const size = { width: canvas.clientWidth, height: canvas.clientHeight };
  if (!size.width || !drawn) return;
  const dense = devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const sheet = (one) => {
    const [width, height] = [Math.round(size.width * dense), Math.round(size.height * dense)];
    if (one.width !== width || one.height !== height) { [one.width, one.height] = [width, height]; isStale = true; }
    const pen = one.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    return pen;
  };
  const pen = sheet(canvas);
  const below = sheet(ground);
  if (isStale) drawGround(below, size, color);
  pen.clearRect(0, 0, size.width, size.height);
  pen.drawImage(ground, 0, 0, size.width, size.height);
  drawObjects(pen, objects.all, view, color, selected?.name);
}

function drawGround(pen, size, color) {
  isStale = false;
  const isIn = ({ subscription, negated }) => !negated && objects.inside.has(subscription);
  pen.clearRect(0, 0, size.width, size.height);
  if (drawn.tiles && view.isEarth) drawTiles(pen, view, drawn.tiles, redraw);
  const lines = drawGraticule(pen, view, projection(), size, color);
  drawShapes(pen, drawn.shapes.filter((one) => !isIn(one)), view, { color: color("accent"), fill: 0.08, line: 0.7 });
  drawShapes(pen, drawn.shapes.filter(isIn), view, { color: color("good"), fill: 0.16, line: 1, width: 1.8 });
  if (selected?.subscription !== undefined) drawShapes(pen, byName.get(selected.subscription) ?? [], view, { color: color("ink"), fill: 0.05, line: 1, width: 2.5 });
  drawNames(pen, drawn.shapes, view, color);
  drawLabels(pen, lines, size, color);
  drawScale(pen, view, projection(), size, color);
}
