// Shapes of subscriptions: read from the server page by page, and drawn.

import { ask, inSpace } from "../api.js";
import { ringsOf } from "./projection.js";

const MOST = 20000; // shapes that are drawn
const PAGE = 2000; // subscriptions asked for at a time
const NAMED = 60; // shapes that get their name, the largest first
const FINE = 0.6; // pixels: corners that are nearer to each other are left out

// All shapes of a place: {place, tiles, shapes, isWhole}; `going` says whether it is still wanted.
export async function loadShapes(space, name, going) {
  const shapes = [];
  let after = "";
  let page = null;
  do {
    page = await ask(inSpace(space, `/shapes?${new URLSearchParams({ place: name, after, limit: PAGE })}`));
    if (!going()) return null;
    shapes.push(...page.features.map((feature) => shapeOf(feature, page.place)));
    after = page.next;
  } while (after !== null && shapes.length < MOST);
  shapes.sort((a, b) => b.area - a.area); // small ones above large ones
  return { place: page.place, tiles: page.tiles, shapes, isWhole: after === null };
}

function shapeOf(feature, place) {
  const { subscription, negated, radius } = feature.properties;
  const { rings, lines, rule } = ringsOf(feature, place);
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const ring of rings) {
    for (let at = 0; at < ring.length; at += 2) {
      box[0] = Math.min(box[0], ring[at]);
      box[1] = Math.min(box[1], ring[at + 1]);
      box[2] = Math.max(box[2], ring[at]);
      box[3] = Math.max(box[3], ring[at + 1]);
    }
  }
  const area = (box[2] - box[0]) * (box[3] - box[1]);
  return { subscription, negated, rings, lines, rule, box, area, text: described(feature.geometry, radius, place) };
}

const length = (value, place) => (place.type !== "location" ? Number(value.toPrecision(6)).toString() : value >= 1000 ? `${Number((value / 1000).toPrecision(4)).toLocaleString("en")} km` : `${Number(value.toPrecision(4))} m`);
const counted = (count, one, more) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

function described({ type, coordinates }, radius, place) {
  if (type === "Point") return `circle, radius ${length(radius, place)}`;
  const parts = type.startsWith("Multi") ? coordinates : [coordinates];
  if (type.endsWith("LineString")) return `corridor, ${length(radius, place)} to each side of ${counted(parts.flat().length, "corner", "corners")}`;
  const holes = parts.reduce((sum, rings) => sum + rings.length - 1, 0);
  const corners = parts.flat().reduce((sum, ring) => sum + ring.length - 1, 0);
  return `${parts.length > 1 ? `${parts.length} polygons` : "polygon"}, ${counted(corners, "corner", "corners")}${holes ? `, ${counted(holes, "hole", "holes")}` : ""}`;
}

// Whole turns by which a shape is shifted to be in view; on a plane there are none.
function turns(box, view) {
  const [x0, y0, x1, y1] = view.bounds();
  if (box[3] < y0 || box[1] > y1) return [];
  if (!view.isEarth) return box[2] < x0 || box[0] > x1 ? [] : [0];
  const made = [];
  for (let turn = Math.ceil(x0 - box[2]); turn <= Math.floor(x1 - box[0]); turn += 1) made.push(turn);
  return made;
}

function trace(path, points, view, turn, isClosed) {
  let [lastX, lastY] = [NaN, NaN];
  const end = points.length - 2;
  for (let at = 0; at <= end; at += 2) {
    const [x, y] = view.screen(points[at] + turn, points[at + 1]);
    if (at && at < end && Math.abs(x - lastX) < FINE && Math.abs(y - lastY) < FINE) continue;
    if (at) path.lineTo(x, y);
    else path.moveTo(x, y);
    [lastX, lastY] = [x, y];
  }
  if (isClosed) path.closePath();
}

// Draw shapes with a color; small ones are dots.
export function drawShapes(pen, shapes, view, { color, fill, line, width = 1 }) {
  pen.fillStyle = pen.strokeStyle = color;
  for (const shape of shapes) {
    for (const turn of turns(shape.box, view)) {
      const size = Math.max(shape.box[2] - shape.box[0], shape.box[3] - shape.box[1]) * view.scale;
      if (size < 3) {
        const [x, y] = view.screen((shape.box[0] + shape.box[2]) / 2 + turn, (shape.box[1] + shape.box[3]) / 2);
        pen.globalAlpha = Math.max(0.5, fill);
        pen.fillRect(x - 1.5, y - 1.5, 3, 3);
        continue;
      }
      pen.beginPath();
      for (const ring of shape.rings) trace(pen, ring, view, turn, true);
      pen.globalAlpha = fill;
      if (!shape.negated) pen.fill(shape.rule);
      pen.globalAlpha = line;
      pen.lineWidth = width;
      if (shape.lines.length) { // a corridor is the union of its segments: its line says where it runs
        pen.beginPath();
        for (const one of shape.lines) trace(pen, one, view, turn, false);
        pen.setLineDash([6, 4]);
      } else pen.setLineDash(shape.negated ? [3, 4] : []);
      pen.stroke();
    }
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

// Names of the largest shapes in view, where there is room for them.
export function drawNames(pen, shapes, view, color) {
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  pen.strokeStyle = color("field");
  pen.fillStyle = color("ink");
  const taken = [];
  const seen = shapes.flatMap((shape) => turns(shape.box, view).map((turn) => ({ shape, turn, width: (shape.box[2] - shape.box[0]) * view.scale })));
  const large = seen.filter(({ width }) => width > 30).sort((a, b) => b.width - a.width).slice(0, NAMED);
  for (const { shape, turn, width } of large) {
    const name = String(shape.subscription);
    const text = name.length > 28 ? `${name.slice(0, 27)}…` : name;
    const half = pen.measureText(text).width / 2;
    const [x, y] = anchor(shape, turn, view);
    if (2 * half > Math.max(width, 90) || taken.some(([tx, ty, th]) => Math.abs(tx - x) < th + half + 4 && Math.abs(ty - y) < 15)) continue;
    taken.push([x, y, half]);
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
}

// Where a name stands: in the middle of the box; of a corridor or a negated shape, at the lower rim.
function anchor({ negated, lines, box }, turn, view) {
  const middle = (box[0] + box[2]) / 2 + turn;
  if (!negated && !lines.length) return view.screen(middle, (box[1] + box[3]) / 2);
  if (negated) { const [x, y] = view.screen(middle, box[3]); return [x, y + 10]; }
  let lowest = 0;
  for (let at = 0; at < lines[0].length; at += 2) if (lines[0][at + 1] > lines[0][lowest + 1]) lowest = at;
  return view.screen(lines[0][lowest] + turn, lines[0][lowest + 1]);
}

// The shapes at a place of the canvas.
export function shapesAt(pen, shapes, view, px, py) {
  const [x, y] = view.world(px, py);
  return shapes.filter((shape) => turns(shape.box, view).some((turn) => {
    const isNear = x >= shape.box[0] + turn && x <= shape.box[2] + turn && y >= shape.box[1] && y <= shape.box[3];
    if (!isNear) return false;
    const path = new Path2D();
    for (const ring of shape.rings) trace(path, ring, view, turn, true);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    return pen.isPointInPath(path, px, py, shape.rule);
  }));
}
