// Two attributes: boxes of subscriptions, and the latest events as points.

import { $, ask, fieldsOf, inSpace, options } from "../api.js";

const KEPT = 600; // points
const AGE = 12000; // milliseconds until a point has faded
const WORDS = 14; // rows or columns of an attribute of texts
const OTHERS = "others";
const TITLE = 16; // pixels of an axis' title

let state = null;
let drawn = null; // what the server said of the two attributes
let points = [];
let scales = null;
let scaled = 0;
let loaded = 0;
let asked = "";
let isChosen = false; // whether a person has chosen the two attributes
let counted = ""; // subscriptions, and edits that took effect, when the boxes were asked for

export function begin(given) {
  state = given;
  for (const id of ["plane-x", "plane-y"]) $(id).addEventListener("change", () => { isChosen = true; load(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const frame = () => { if (!document.hidden) draw(); setTimeout(() => requestAnimationFrame(frame), 100); };
  frame();
}

export function chosen({ space }) {
  drawn = scales = null;
  points = [];
  if (!space) return;
  const names = fieldsOf(space).map((name) => [name, name]);
  options($("plane-x"), names);
  options($("plane-y"), names);
  isChosen = false; // until a person chooses, the server does: what most subscriptions bound
  load();
}

async function load() {
  const [x, y] = isChosen ? [$("plane-x").value, $("plane-y").value] : ["", ""];
  asked = `${state.space.name}\n${x}\n${y}`;
  const mine = asked;
  loaded = Date.now();
  try {
    const found = await ask(inSpace(state.space.name, `/boxes?${new URLSearchParams({ x, y, limit: 60 })}`));
    if (mine !== asked) return;
    drawn = found;
    [$("plane-x").value, $("plane-y").value] = found.axes.map((axis) => axis.name);
    rescale();
    note();
  } catch (error) {
    $("plane-note").textContent = error.message;
  }
}

export function ticked({ status, space, events }) {
  if (!space) return;
  const count = `${status.subscriptions} ${status.edits}`;
  if (counted !== count && Date.now() - loaded > 2000) {
    counted = count;
    load();
  }
  if (!events.length) return;
  events.forEach((row, at) => {
    points.push({ row, at: Date.now() + (1000 * at) / events.length, spread: [Math.random() - 0.5, Math.random() - 0.5] });
  });
  points = points.slice(-KEPT);
  if (points.length < KEPT || Date.now() - scaled > 10000) rescale(); // calm: axes that jump can't be read
}

function note() {
  const { boxes, bounded } = drawn;
  $("plane-note").textContent = bounded
    ? `${boxes.length < bounded ? `${boxes.length} of ` : ""}${bounded === 1 ? "1 box that bounds" : `${bounded.toLocaleString("en")} boxes that bound`} one of the two, and the latest events.`
    : "No subscription restricts either attribute. Points are the latest events.";
}

// ---- scales

function rescale() {
  scaled = Date.now();
  if (drawn) scales = [scale(drawn.axes[0], "x"), scale(drawn.axes[1], "y")];
}

function scale(axis, key) {
  const isText = axis.labels !== null || ["string", "text", "patterns"].includes(axis.type);
  return isText ? slots(axis, key) : range(axis, key);
}

// Texts stand side by side, each in a slot of its own; of many, the most frequent.
function slots(axis, key) {
  let labels = axis.labels;
  if (!labels || labels.length > 3 * WORDS) {
    const often = new Map();
    const count = (word) => word !== null && word !== undefined && often.set(String(word), (often.get(String(word)) || 0) + 1);
    for (const box of drawn.boxes) if (!labels) count(box[key][0]);
    for (const { row } of points) count(row[axis.name]);
    const most = [...often].sort((a, b) => b[1] - a[1]).slice(0, WORDS).map(([word]) => word).sort();
    const places = new Map(most.map((word, at) => [word, at]));
    const of = (word) => (word === null || word === undefined ? null : places.get(String(word)) ?? most.length);
    const whole = axis.labels;
    return {
      title: axis.name,
      ticks: [...most, OTHERS].map((text, at) => [(at + 0.5) / (most.length + 1), text]), slot: 1 / (most.length + 1),
      point: (row, spread) => { const at = of(row[axis.name]); return at === null ? null : (at + 0.5 + 0.7 * spread) / (most.length + 1); },
      box: ([lo, hi]) => {
        if (lo === null && hi === null) return [0, 1];
        const inside = whole ? most.flatMap((word, at) => { const code = whole.indexOf(word); return code >= (lo ?? 0) && code <= (hi ?? Infinity) ? [at] : []; }) : [of(lo)];
        if (!inside.length) inside.push(most.length);
        return [Math.min(...inside) / (most.length + 1), (Math.max(...inside) + 1) / (most.length + 1)];
      },
    };
  }
  const size = labels.length;
  const places = new Map(labels.map((label, at) => [label, at]));
  return {
    title: axis.name,
    ticks: labels.map((text, at) => [(at + 0.5) / size, text]), slot: 1 / size,
    point: (row, spread) => { const at = places.get(String(row[axis.name])); return at === undefined ? null : (at + 0.5 + 0.7 * spread) / size; },
    box: ([lo, hi]) => [(lo ?? 0) / size, ((hi ?? size - 1) + 1) / size],
  };
}

const moment = (value) => (typeof value === "string" ? Date.parse(/Z|[+-]\d\d:?\d\d$/.test(value) ? value : `${value}Z`) : NaN);

// Numbers: from what most of the points and boxes have; a wide span of positive ones by its logarithm.
function range(axis, key) {
  const isTime = axis.type === "timestamp";
  const read = (row) => (isTime ? moment(row[axis.name]) : row[axis.name]);
  let values = points.map(({ row }) => read(row)).filter(Number.isFinite);
  if (values.length < 10) values = values.concat(drawn.boxes.flatMap((box) => box[key]).filter((one) => one !== null));
  values.sort((a, b) => a - b);
  const part = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))];
  let [low, high] = values.length ? [part(0.01), part(0.99)] : [0, 1];
  const bend = !isTime && low > 0 && high / low > 30 ? Math.log10 : (value) => value;
  if (low === high) { low -= 1; high += 1; }
  let [from, to] = [bend(low), bend(high)];
  const margin = (to - from) * 0.04;
  from -= margin;
  to += margin;
  const at = (value) => (bend === Math.log10 && value <= 0 ? -1 : (bend(value) - from) / (to - from));
  const clamp = (share) => Math.min(1.02, Math.max(-0.02, share));
  return {
    title: bend === Math.log10 ? `${axis.name} (logarithmic)` : isTime ? `${axis.name} (local time)` : axis.name,
    ticks: ticks(from, to, bend === Math.log10, isTime).map(([value, text]) => [at(value), text]),
    point: (row) => { const value = read(row); return Number.isFinite(value) ? at(value) : null; },
    box: ([lo, hi]) => [lo === null ? -0.02 : clamp(at(lo)), hi === null ? 1.02 : clamp(at(hi))],
  };
}

function ticks(from, to, isLog, isTime) {
  if (isLog) {
    const found = [];
    for (let power = Math.floor(from); power <= to; power += 1) {
      for (const times of to - from > 2.5 ? [1] : [1, 2, 5]) {
        const value = times * 10 ** power;
        if (Math.log10(value) >= from && Math.log10(value) <= to) found.push([value, short(value)]);
      }
    }
    return found;
  }
  const rough = (to - from) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= rough);
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
    found.push([value, isTime ? new Date(value).toLocaleTimeString("en-GB") : short(value)]);
  }
  return found;
}

const short = (value) => (Math.abs(value) >= 10000 ? value.toLocaleString("en", { notation: "compact" }) : String(Number(value.toPrecision(6))));

// ---- drawing

function draw() {
  const canvas = $("plane");
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  const dense = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
  }
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  if (!scales) {
    pen.fillStyle = color("soft");
    pen.fillText(state?.space ? "Waiting for the first event …" : "No spaces yet.", 16, 28);
    return;
  }
  const [across, up] = scales;
  const widest = Math.max(...up.ticks.map(([, text]) => pen.measureText(cut(text)).width), 20);
  const left = Math.min(widest + 12, width / 3) + TITLE;
  const area = { left, top: 8, width: width - left - 10, height: height - 8 - 26 - TITLE };
  const x = (share) => area.left + share * area.width;
  const y = (share) => area.top + (1 - share) * area.height;
  axes(pen, area, x, y, color);
  titles(pen, area, color);
  pen.save();
  pen.beginPath();
  pen.rect(area.left, area.top, area.width, area.height);
  pen.clip();
  boxes(pen, x, y, color);
  const now = Date.now();
  pen.fillStyle = color("warm");
  for (const one of points) {
    const age = now - one.at;
    const place = [across.point(one.row, one.spread[0]), up.point(one.row, one.spread[1])];
    if (age < 0 || age > AGE || place.includes(null)) continue;
    pen.globalAlpha = 0.15 + 0.85 * (1 - age / AGE);
    pen.beginPath();
    pen.arc(x(place[0]), y(place[1]), age < 600 ? 4.5 - age / 300 : 2.4, 0, 7);
    pen.fill();
  }
  pen.restore();
}

function boxes(pen, x, y, color) {
  const [across, up] = scales;
  pen.fillStyle = pen.strokeStyle = color("accent");
  pen.lineWidth = 1;
  const faint = Math.min(0.12, 1.2 / drawn.boxes.length);
  for (const box of drawn.boxes) {
    const [x0, x1] = across.box(box.x);
    const [y0, y1] = up.box(box.y);
    const size = [x(x1) - x(x0), y(y0) - y(y1)];
    pen.globalAlpha = faint;
    pen.fillRect(x(x0), y(y1), ...size);
    pen.globalAlpha = 0.4;
    pen.strokeRect(x(x0), y(y1), ...size);
  }
  pen.globalAlpha = 1;
}

const cut = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);

function axes(pen, area, x, y, color) {
  const [across, up] = scales;
  pen.strokeStyle = color("line");
  pen.fillStyle = color("soft");
  pen.lineWidth = 1;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  let free = Infinity;
  for (const [share, text] of up.ticks) {
    if (share < 0 || share > 1) continue;
    line(pen, area.left, y(share), area.left + area.width, y(share));
    if (y(share) > free - 13) continue;
    free = y(share);
    pen.fillText(cut(text), area.left - 6, y(share));
  }
  pen.textBaseline = "top";
  pen.textAlign = "center";
  free = -Infinity;
  for (const [share, text] of across.ticks) {
    if (share < 0 || share > 1) continue;
    line(pen, x(share), area.top, x(share), area.top + area.height);
    const half = pen.measureText(cut(text)).width / 2;
    if (x(share) - half < free + 6 || x(share) + half > area.left + area.width + 10) continue;
    free = x(share) + half;
    pen.fillText(cut(text), x(share), area.top + area.height + 7);
  }
}

function titles(pen, area, color) {
  const [across, up] = scales;
  pen.fillStyle = color("ink");
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  pen.fillText(across.title, area.left + area.width / 2, area.top + area.height + 26 + TITLE - 2, area.width);
  pen.save();
  pen.translate(TITLE - 2, area.top + area.height / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(up.title, 0, 0, area.height);
  pen.restore();
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}
