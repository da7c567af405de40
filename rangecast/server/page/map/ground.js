// The ground of the map: a graticule with labels, a scale, and tiles if the server has an address.

import { distance } from "./projection.js";

const APART = 90; // pixels between two lines at least
const DEGREES = [90, 45, 30, 15, 10, 5, 2, 1];
const TILE = 256;
const KEPT = 400; // tiles
const tiles = new Map();

const niceStep = (least) => {
  const unit = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= least * 0.999);
};

// Lines at round values between two: [[value, text], ...].
function lines(from, to, least, isEarth, ends) {
  const step = isEarth && least > 0.5 ? DEGREES.filter((one) => one >= least).pop() ?? 90 : niceStep(least);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const made = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to && made.length < 100; at += 1) {
    const value = at * step;
    let text = Math.abs(value) >= 1e6 || (step < 1e-6) ? value.toPrecision(6) : value.toFixed(Math.min(digits, 20));
    if (isEarth) {
      const turned = ends[0] === "E" ? value - 360 * Math.round(value / 360) : value;
      text = `${Math.abs(turned).toFixed(digits)}°${Math.abs(turned) < 1e-12 || (ends[0] === "E" && Math.abs(turned) === 180) ? "" : ` ${turned > 0 ? ends[0] : ends[1]}`}`;
    }
    made.push([value, text]);
  }
  return made;
}

export function drawGraticule(pen, view, projection, size, color) {
  const { isEarth, project, unproject } = projection;
  const [x0, y0, x1, y1] = view.bounds();
  const [left, top] = unproject([x0, isEarth ? Math.max(y0, 0) : y0]);
  const [right, bottom] = unproject([x1, isEarth ? Math.min(y1, 1) : y1]);
  const across = lines(left, right, ((right - left) * APART) / size.width, isEarth, ["E", "W"]);
  const middle = unproject([view.x, view.y])[1];
  const stretched = isEarth ? Math.max(0.1, Math.cos((middle * Math.PI) / 180)) : 1;
  const up = lines(bottom, top, (stretched * (right - left) * APART) / size.width, isEarth, ["N", "S"]);
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  pen.beginPath();
  const columns = across.map(([value, text]) => [Math.round(view.screen(project([value, 0])[0], 0)[0]) + 0.5, text]);
  const rows = up.map(([value, text]) => [Math.round(view.screen(0, project([0, value])[1])[1]) + 0.5, text]);
  for (const [x] of columns) { pen.moveTo(x, 0); pen.lineTo(x, size.height); }
  for (const [y] of rows) { pen.moveTo(0, y); pen.lineTo(size.width, y); }
  pen.stroke();
  return { columns, rows };
}

// Labels are drawn last, so that nothing hides them.
export function drawLabels(pen, { columns, rows }, size, color) {
  pen.font = "11px system-ui, sans-serif";
  pen.lineWidth = 3;
  pen.strokeStyle = color("field");
  pen.fillStyle = color("soft");
  const put = (text, x, y) => { pen.strokeText(text, x, y); pen.fillText(text, x, y); };
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  for (const [x, text] of columns) if (x > 50 && x < size.width - 30) put(text, x, size.height - 4);
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  for (const [y, text] of rows) if (y > 10 && y < size.height - 44) put(text, 5, y);
}

export function drawScale(pen, view, projection, size, color) {
  const [left, right] = [0, 100].map((at) => projection.unproject(view.world(size.width / 2 + at, size.height / 2)));
  const length = projection.isEarth ? distance(left, right) : right[0] - left[0];
  if (!(length > 0)) return;
  const step = niceStep(length / 2.001);
  const width = (100 * step) / length;
  const text = !projection.isEarth ? Number(step.toPrecision(3)).toString() : step >= 1000 ? `${(step / 1000).toLocaleString("en")} km` : step >= 1 ? `${step} m` : `${Number((100 * step).toPrecision(2))} cm`;
  const [x, y] = [size.width - width - 12, size.height - 24];
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, y - 5); pen.lineTo(x, y); pen.lineTo(x + width, y); pen.lineTo(x + width, y - 5);
  pen.stroke();
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  pen.lineWidth = 3;
  pen.strokeStyle = color("field");
  pen.fillStyle = color("ink");
  pen.strokeText(text, size.width - 12, y - 6);
  pen.fillText(text, size.width - 12, y - 6);
}

// Tiles of an address with {z}, {x} and {y}; those that aren't there yet come with `loaded`.
export function drawTiles(pen, view, url, loaded) {
  const [x0, y0, x1, y1] = view.bounds();
  const zoom = Math.max(0, Math.min(19, Math.round(Math.log2(view.scale / TILE))));
  const count = 2 ** zoom;
  for (let row = Math.max(0, Math.floor(y0 * count)); row < Math.min(count, y1 * count); row += 1) {
    for (let column = Math.floor(x0 * count); column < x1 * count; column += 1) {
      const turned = ((column % count) + count) % count;
      const image = tile(url.replace("{z}", zoom).replace("{x}", turned).replace("{y}", row), loaded);
      const [x, y] = view.screen(column / count, row / count);
      const side = view.scale / count;
      if (image.complete && image.naturalWidth) pen.drawImage(image, x, y, side + 0.5, side + 0.5);
    }
  }
}

function tile(address, loaded) {
  let image = tiles.get(address);
  if (!image) {
    image = new Image();
    image.addEventListener("load", loaded);
    image.src = address;
    tiles.set(address, image);
    if (tiles.size > KEPT) tiles.delete(tiles.keys().next().value);
  }
  return image;
}

