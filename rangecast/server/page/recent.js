// The newest events of the space, asked for once for all parts of the page.

import { ask, inSpace } from "./api.js";

const LATEST = 200; // events asked for at a time
let seen = 0;
let owner = null;

// The events that came since the last call: [{row, event}]; of many, the newest.
export async function newest({ space, status }) {
  if (!space) return [];
  if (owner !== space.name) [owner, seen] = [space.name, 0];
  const after = Math.max(seen, status.first_seq - 1, status.durable_seq - LATEST);
  if (after >= status.durable_seq) return [];
  const text = await ask(inSpace(space.name, `/events?after=${status.epoch}:${after}&limit=${LATEST}`), { raw: true });
  if (owner !== space.name) return [];
  const events = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  seen = Math.max(after, ...events.map(({ position }) => Number(position.split(":")[1])));
  return events.map(({ event }) => (event.specversion && event.data ? event.data : event));
}
