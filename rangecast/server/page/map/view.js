// What part of the world is shown, and how mouse, touch and keys move it.

const PAN = 80; // pixels of an arrow key
const ZOOM = 1.6; // of a key or a button
const STILL = 5; // pixels that a click may move

// A view of a canvas; `changed` is called when it has moved, `clicked` with a place of the canvas.
export function makeView(canvas, { changed, clicked, reset }) {
  const view = { x: 0.5, y: 0.5, scale: 300, isEarth: true, isMoved: false };
  const fingers = new Map();
  let travelled = 0;

  view.screen = (x, y) => [(x - view.x) * view.scale + canvas.clientWidth / 2, (y - view.y) * view.scale + canvas.clientHeight / 2];
  view.world = (px, py) => [view.x + (px - canvas.clientWidth / 2) / view.scale, view.y + (py - canvas.clientHeight / 2) / view.scale];
  view.bounds = () => [...view.world(0, 0), ...view.world(canvas.clientWidth, canvas.clientHeight)];

  view.fit = ([x0, y0, x1, y1], margin = 32) => {
    const room = [canvas.clientWidth - 2 * margin, canvas.clientHeight - 2 * margin].map((one) => Math.max(one, 40));
    const least = view.isEarth ? 1e-6 : Math.max(1e-9 * Math.max(Math.abs(x0), Math.abs(y1)), 1e-130);
    view.x = (x0 + x1) / 2;
    view.y = (y0 + y1) / 2;
    view.scale = Math.min(room[0] / Math.max(x1 - x0, least), room[1] / Math.max(y1 - y0, least));
    view.fitted = view.scale;
    bounded();
    changed();
  };

  function bounded() {
    const [low, high] = view.isEarth ? [Math.max(canvas.clientHeight, 128), 2 ** 33] : [view.fitted / 1e3, view.fitted * 1e6];
    view.scale = Math.max(low, Math.min(high, view.scale));
    if (view.isEarth) {
      view.x -= Math.floor(view.x);
      view.y = Math.max(0, Math.min(1, view.y));
    }
  }

  function pan(dx, dy) {
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    view.isMoved = true;
    bounded();
    changed();
  }

  view.zoom = (factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) => {
    const [x, y] = view.world(px, py);
    view.scale *= factor;
    bounded();
    view.x = x - (px - canvas.clientWidth / 2) / view.scale;
    view.y = y - (py - canvas.clientHeight / 2) / view.scale;
    view.isMoved = true;
    bounded();
    changed();
  };

  const middle = () => {
    const all = [...fingers.values()];
    const center = [0, 1].map((axis) => all.reduce((sum, one) => sum + one[axis], 0) / all.length);
    return { center, spread: all.length > 1 ? Math.hypot(all[0][0] - all[1][0], all[0][1] - all[1][1]) : 0 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    if (!fingers.size) travelled = 0;
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = middle();
    fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    const now = middle();
    const [dx, dy] = [0, 1].map((axis) => now.center[axis] - before.center[axis]);
    travelled += Math.hypot(dx, dy) + Math.abs(now.spread - before.spread);
    if (travelled < STILL) return;
    pan(dx, dy);
    if (before.spread && now.spread) view.zoom(now.spread / before.spread, ...now.center);
  });
  const lifted = (event) => {
    if (!fingers.delete(event.pointerId) || fingers.size) return;
    if (event.type === "pointerup" && travelled < STILL) clicked(event.offsetX, event.offsetY);
  };
  canvas.addEventListener("pointerup", lifted);
  canvas.addEventListener("pointercancel", lifted);
  // A page that is scrolled over the map goes on scrolling: the wheel zooms once the map has the focus.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    view.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
  }, { passive: false });
  const keys = {
    ArrowLeft: () => pan(PAN, 0), ArrowRight: () => pan(-PAN, 0), ArrowUp: () => pan(0, PAN), ArrowDown: () => pan(0, -PAN),
    "+": () => view.zoom(ZOOM), "=": () => view.zoom(ZOOM), "-": () => view.zoom(1 / ZOOM), 0: reset, Home: reset,
    Enter: () => clicked(canvas.clientWidth / 2, canvas.clientHeight / 2), Escape: () => clicked(null),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  return view;
}

// The smallest box around boxes [x0, y0, x1, y1]; on the earth across the widest gap, wherever it is.
export function around(boxes, isEarth) {
  if (!boxes.length) return isEarth ? [0.05, 0.15, 0.95, 0.75] : [-1, -1, 1, 1];
  const ys = [Math.min(...boxes.map((one) => one[1])), Math.max(...boxes.map((one) => one[3]))];
  if (!isEarth) return [Math.min(...boxes.map((one) => one[0])), ys[0], Math.max(...boxes.map((one) => one[2])), ys[1]];
  const spans = boxes.map(([x0, , x1]) => [x0 - Math.floor(x0), x1 - Math.floor(x0)]).sort((a, b) => a[0] - b[0]);
  let [start, widest, reached] = [spans[0][0], -1, spans[0][1]];
  for (const [x0, x1] of spans.slice(1)) {
    if (x0 - reached > widest) [widest, start] = [x0 - reached, x0];
    reached = Math.max(reached, x1);
  }
  const last = spans[0][0] + 1 - reached;
  if (last >= widest) return [spans[0][0], ys[0], Math.max(reached, spans[0][0]), ys[1]];
  const end = Math.max(...spans.filter(([x0]) => x0 < start).map(([, x1]) => x1 + 1), ...spans.filter(([x0]) => x0 >= start).map(([, x1]) => x1));
  return [start, ys[0], Math.min(end, start + 1), ys[1]];
}
