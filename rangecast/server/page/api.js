// Talking to the server, and making elements. All text goes in as text: nothing here parses HTML.

let token = null;
const noticed = new Set();

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `the server answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

export const setToken = (given) => { token = given || null; };
export const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {});
export const onUnauthorized = (call) => noticed.add(call);

export async function ask(path, { method = "GET", body, headers = {}, raw = false } = {}) {
  const all = { ...headers, ...authorization() };
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers: all, body: typeof body === "string" ? body : JSON.stringify(body) });
  } catch {
    throw new Problem(0, { detail: "the server can't be reached" });
  }
  const text = await answer.text();
  if (answer.ok && raw) return text;
  let parsed = {};
  try { parsed = JSON.parse(text); } catch { /* its status says it */ }
  if (answer.ok) return parsed;
  if (answer.status === 401) noticed.forEach((call) => call());
  throw new Problem(answer.status, parsed);
}

export const post = (path, body) => ask(path, { method: "POST", body });
export const inSpace = (space, rest = "") => `/v1/spaces/${encodeURIComponent(space)}${rest}`;

// Follow a filter over a WebSocket. What comes is bounded by credit: `more(n)` lets n more come.
// A token is never part of an address: a ticket is, which works once.
export function follow(space, filter, { opened, message, failed }) {
  let socket = null;
  let closed = false;
  const send = (frame) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(frame));
  const connect = (query) => {
    if (closed) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}/v1/stream${query}`);
    socket.onopen = () => {
      send({ type: "credit", messages: 300 });
      send({ type: "follow", space, filter });
    };
    socket.onmessage = (event) => {
      if (closed) return;
      const frame = JSON.parse(event.data);
      if (frame.type === "match") message(frame);
      else if (frame.type === "attached") opened();
      else if (frame.type === "error") failed(frame.detail, true);
    };
    socket.onclose = () => { if (!closed) failed("the connection is closed", false); };
  };
  if (token) {
    ask("/v1/tickets", { method: "POST" })
      .then(({ ticket }) => connect(`?${new URLSearchParams({ ticket })}`))
      .catch((error) => { if (!closed) failed(error.message, false); });
  } else connect("");
  return {
    more: (messages) => messages > 0 && send({ type: "credit", messages }),
    close: () => {
      closed = true;
      if (socket?.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close(); // a browser warns otherwise
      else socket?.close();
    },
  };
}

export const $ = (id) => document.getElementById(id);

export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "on") for (const [what, call] of Object.entries(value)) made.addEventListener(what, call);
    else if (name === "class") made.className = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, given = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function options(select, values, chosen) {
  const before = chosen ?? select.value;
  select.replaceChildren(...values.map(([value, text]) => el("option", { value }, text)));
  if (values.some(([value]) => value === before)) select.value = before;
}

export const say = (error) => el("p", { class: "error", role: "alert" }, error.message || String(error));
const NUMBERS = ["number", "integer"];
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

// A name as a filter has it.
export const named = (name) => (/^[A-Za-z_][A-Za-z0-9_.]*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);

// A condition that an attribute can have, to show how one is written.
export function exampleOf({ name, type, values, tree }) {
  if (NUMBERS.includes(type)) return `${named(name)} <= 20`;
  if (type === "location") return `within(${named(name)}, circle(13.4, 52.5, 5 km))`;
  if (type === "point") return `within(${named(name)}, circle(0, 0, 5))`;
  if (type === "boolean") return `${named(name)} = true`;
  if (type === "timestamp") return `${named(name)} >= '2026-01-31T12:00:00'`;
  const known = Array.isArray(values) ? values[0] : tree ? Object.keys(tree)[0] : "some text";
  return `${named(name)} = ${quoted(String(known))}`;
}

// The names that filters and events have: a place, and its coordinates unless they are inside of a field.
export const columnsOf = ({ attribute }) => attribute.flatMap(({ name, ...one }) => [name, ...coordinatesOf(one)]);
export const fieldsOf = ({ attribute }) => attribute.flatMap(({ name, ...one }) => (one.type === "location" || one.type === "point" ? coordinatesOf(one) : [name]));
const coordinatesOf = ({ longitude, latitude, x, y }) => [longitude ?? x, latitude ?? y].filter((name) => name && !name.startsWith("$"));

export const many = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
// Live tails of pages are subscriptions, too, until their connection ends.
export const isTail = (id) => /^session-[0-9a-f]{16}$/.test(id);

export function shownValue(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Run what a person asked for: the button rests meanwhile, and an error is shown at its place.
export async function run(button, place, work) {
  if (button) button.disabled = true;
  try {
    await work();
  } catch (error) {
    place.replaceChildren(say(error));
  } finally {
    if (button) button.disabled = false;
  }
}
