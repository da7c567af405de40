// From coordinates to the map's world, and shapes as rings of points in it.
//
// The world of the earth is Mercator's: x from 0 (180° W) to 1 (180° E) and on, y from 0 in the north
// to 1 in the south. The world of a plane is the plane, with y turned downwards.

const RADIUS = 6371008.8; // metres of the mean sphere
const TURN = Math.PI / 180;
const TOP = 85.0511287798066; // latitude of the upper edge of Mercator's square
const ROUND = 120; // corners that a circle is drawn with
const STEP = 1; // degrees after which an edge gets a point in between

export const earth = {
  isEarth: true,
  project: ([lon, lat]) => {
    const sine = Math.sin(Math.max(-TOP, Math.min(TOP, lat)) * TURN);
    return [(lon + 180) / 360, 0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)];
  },
  unproject: ([x, y]) => [360 * x - 180, Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) / TURN],
};

export const plane = { isEarth: false, project: ([x, y]) => [x, -y], unproject: ([x, y]) => [x, -y] };

// Rings of a feature in the world, and whether they are filled as a union ("nonzero") or with holes.
export function ringsOf({ geometry, properties }, place) {
  const { type, coordinates } = geometry;
  const isEarth = place.type === "location";
  const { project } = isEarth ? earth : plane;
  const parts = type.startsWith("Multi") ? coordinates : [coordinates];
  let rings;
  let rule = "evenodd";
  if (type === "Point") rings = isEarth ? circleOnEarth(coordinates, properties.radius) : [circleOnPlane(coordinates, properties.radius)];
  else if (type.endsWith("LineString")) {
    rule = "nonzero";
    rings = parts.flatMap((line) => pairs(line).map(([a, b]) => (isEarth ? capsuleOnEarth : capsuleOnPlane)(a, b, properties.radius)));
  } else rings = parts.flat().flatMap((ring) => (isEarth ? ringOnEarth(ring, place.edges === "geodesic") : [ring]));
  const lines = type.endsWith("LineString") ? parts.map((line) => (isEarth ? along(line, true) : line)) : [];
  return { rings: rings.map((ring) => flat(ring, project)), lines: lines.map((line) => flat(line, project)), rule };
}

function flat(points, project) {
  const made = new Float64Array(2 * points.length);
  points.forEach((point, at) => made.set(project(point), 2 * at));
  return made;
}

const pairs = (line) => line.slice(1).map((point, at) => [line[at], point]);

// ---- a plane

const circleOnPlane = ([x, y], radius) => angles(0, 360, ROUND).map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);

function capsuleOnPlane([x0, y0], [x1, y1], radius) {
  const turned = Math.atan2(y1 - y0, x1 - x0) / TURN;
  const cap = (x, y, from) => angles(from, from + 180, ROUND / 4).map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);
  return [...cap(x1, y1, turned - 90), ...cap(x0, y0, turned + 90)];
}

function angles(from, to, count) {
  return Array.from({ length: count + 1 }, (_, at) => (from + ((to - from) * at) / count) * TURN);
}

// ---- the earth

// The place at a distance and bearing from another, with a longitude near the other's.
export function destination([lon, lat], metres, bearing) {
  const [far, up] = [metres / RADIUS, lat * TURN];
  const sine = Math.sin(up) * Math.cos(far) + Math.cos(up) * Math.sin(far) * Math.cos(bearing);
  const turn = Math.atan2(Math.sin(bearing) * Math.sin(far) * Math.cos(up), Math.cos(far) - Math.sin(up) * sine);
  return [lon + turn / TURN, Math.asin(Math.max(-1, Math.min(1, sine))) / TURN];
}

function bearing([lon0, lat0], [lon1, lat1]) {
  const [a, b, turn] = [lat0 * TURN, lat1 * TURN, (lon1 - lon0) * TURN];
  return Math.atan2(Math.sin(turn) * Math.cos(b), Math.cos(a) * Math.sin(b) - Math.sin(a) * Math.cos(b) * Math.cos(turn));
}

export function distance([lon0, lat0], [lon1, lat1]) {
  const [a, b, turn] = [lat0 * TURN, lat1 * TURN, (lon1 - lon0) * TURN];
  const half = Math.sin((b - a) / 2) ** 2 + Math.cos(a) * Math.cos(b) * Math.sin(turn / 2) ** 2;
  return 2 * RADIUS * Math.asin(Math.min(1, Math.sqrt(half)));
}

// Longitudes that go on instead of jumping at the antimeridian.
function unwrapped(points) {
  let [last] = points[0];
  return points.map(([lon, lat]) => { last = lon - 360 * Math.round((lon - last) / 360); return [last, lat]; });
}

// A ring around a pole is closed along the edge of the map.
function closed(ring, pole) {
  const [first, last] = [ring[0], ring[ring.length - 1]];
  if (Math.abs(last[0] - first[0]) < 180) return ring;
  return [...ring, [last[0], pole], [first[0], pole]];
}

function circleOnEarth(center, radius) {
  const [lon, lat] = center;
  const degrees = radius / RADIUS / TURN;
  const [north, south] = [90 - lat <= degrees, 90 + lat <= degrees];
  if (north && south) { // all but a circle around the opposite place
    const world = [[lon - 180, 90], [lon + 180, 90], [lon + 180, -90], [lon - 180, -90], [lon - 180, 90]];
    return [world, ...[-180, 180].map((turn) => around([lon + turn, -lat], Math.PI * RADIUS - radius))];
  }
  return [closed(around(center, radius), north ? 90 : -90)];
}

const around = (center, radius) => unwrapped(angles(0, 360, ROUND).map((angle) => destination(center, radius, angle)));

function capsuleOnEarth(a, b, radius) {
  const line = along([a, b], true);
  const last = line.length - 1;
  const ahead = line.map((point, at) => (at < last ? bearing(point, line[at + 1]) : bearing(point, line[at - 1]) + Math.PI));
  const side = (at, sign) => destination(line[at], radius, ahead[at] + sign * 90 * TURN);
  const cap = (at, from) => angles(from, from + 180, ROUND / 4).map((angle) => destination(line[at], radius, angle));
  const places = line.map((_, at) => at);
  const ring = [
    ...places.map((at) => side(at, -1)),
    ...cap(last, ahead[last] / TURN - 90),
    ...places.reverse().map((at) => side(at, 1)),
    ...cap(0, ahead[0] / TURN + 90),
  ];
  return unwrapped(ring);
}

function ringOnEarth(ring, isGeodesic) {
  const line = along(ring, isGeodesic);
  return [closed(line, line[line.length - 1][0] > line[0][0] ? 90 : -90)];
}

// A line with points in between: along great circles, or straight in degrees.
function along(line, isGeodesic) {
  const made = [line[0]];
  for (const [a, b] of pairs(line)) {
    const degrees = isGeodesic ? distance(a, b) / RADIUS / TURN : Math.abs(b[1] - a[1]);
    const count = Math.max(1, Math.ceil(degrees / STEP));
    for (let at = 1; at < count; at += 1) made.push(isGeodesic ? between(a, b, at / count, degrees * TURN) : [0, 1].map((axis) => a[axis] + ((b[axis] - a[axis]) * at) / count));
    made.push(b);
  }
  return isGeodesic ? unwrapped(made) : made;
}

function between(a, b, share, angle) {
  const weights = [Math.sin((1 - share) * angle) / Math.sin(angle), Math.sin(share * angle) / Math.sin(angle)];
  const [x, y, z] = [0, 1, 2].map((axis) => weights[0] * vector(a)[axis] + weights[1] * vector(b)[axis]);
  return [Math.atan2(y, x) / TURN, Math.atan2(z, Math.hypot(x, y)) / TURN];
}

const vector = ([lon, lat]) => [Math.cos(lat * TURN) * Math.cos(lon * TURN), Math.cos(lat * TURN) * Math.sin(lon * TURN), Math.sin(lat * TURN)];
