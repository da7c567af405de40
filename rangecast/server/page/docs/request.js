// "Try it": a form that sends a request as the document describes it, and shows the answer.

import { authorization, el, say } from "../api.js";

const LONGEST = 200_000;
const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function inputs(one) {
  // The body is sent as typed, uncompressed.
  return one.parameters.filter((given) => given.name !== "Content-Encoding").map((given) => {
    const { name, schema } = given;
    const label = `${name}${given.required ? " *" : ""}`;
    if (schema.type === "boolean") {
      const field = el("select", { name }, el("option", { value: "" }, "–"), el("option", {}, "true"), el("option", {}, "false"));
      return { given, field, label };
    }
    if (schema.enum) {
      const values = schema.enum.filter((value) => value !== "");
      return { given, label, field: el("select", { name }, el("option", { value: "" }, "–"), ...values.map((value) => el("option", {}, value))) };
    }
    const field = el("input", { name, required: given.required, autocomplete: "off", spellcheck: "false", placeholder: schema.default ?? "" });
    field.value = given.required ? given.example ?? "" : "";
    return { given, field, label };
  });
}

function body(one) {
  const contents = Object.entries(one.requestBody?.content || {});
  if (!contents.length) return null;
  const shown = contents.filter(([, given]) => given.example !== undefined);
  const media = el("select", {}, ...shown.map(([name]) => el("option", {}, name)));
  const text = el("textarea", { rows: 6, spellcheck: "false", autocapitalize: "off" });
  const fill = () => { text.value = pretty(shown.find(([name]) => name === media.value)[1].example); };
  media.addEventListener("change", fill);
  fill();
  return { media, text };
}

function address(one, fields) {
  let path = one.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { given, field } of fields) {
    const value = field.value;
    if (given.in === "path") path = path.replace(`{${given.name}}`, encodeURIComponent(value));
    else if (value !== "" && given.in === "query") query.set(given.name, value);
    else if (value !== "") headers[given.name] = value;
  }
  const asked = query.toString();
  return { url: asked ? `${path}?${asked}` : path, headers };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The token itself isn't shown: the command takes it from the environment.
function curl(method, url, headers, text) {
  const parts = [`curl -X ${method.toUpperCase()} ${quoted(location.origin + url)}`];
  for (const [name, value] of Object.entries(headers)) {
    parts.push(name === "Authorization" ? '-H "Authorization: Bearer $RANGECAST_TOKEN"' : `-H ${quoted(`${name}: ${value}`)}`);
  }
  if (text !== undefined) parts.push(`--data-binary ${quoted(text)}`);
  return parts.join(" \\\n  ");
}

// A stream has no end: its first part is shown, and it is closed.
async function read(answer) {
  const kind = answer.headers.get("content-type") || "";
  if (!kind.includes("event-stream")) return answer.text();
  const reader = answer.body.getReader();
  const { value } = await reader.read();
  reader.cancel();
  return `${new TextDecoder().decode(value || new Uint8Array())}…`;
}

async function sent(one, fields, given, place) {
  const { url, headers } = address(one, fields);
  Object.assign(headers, authorization());
  if (given) headers["Content-Type"] = given.media.value;
  const text = given?.text.value;
  const command = el("details", {}, el("summary", { class: "note" }, "As a command"), el("pre", {}, curl(one.method, url, headers, text)));
  const began = performance.now();
  let answer;
  let found;
  try {
    answer = await fetch(url, { method: one.method.toUpperCase(), headers, body: text });
    found = await read(answer);
  } catch {
    place.replaceChildren(say("the server can't be reached"), command);
    return;
  }
  const took = performance.now() - began;
  let shown = found;
  if ((answer.headers.get("content-type") || "").includes("json") && !(answer.headers.get("content-type") || "").includes("ndjson")) {
    try { shown = JSON.stringify(JSON.parse(found), null, 2); } catch { /* shown as it is */ }
  }
  if (shown.length > LONGEST) shown = `${shown.slice(0, LONGEST)}\n… ${(shown.length - LONGEST).toLocaleString("en")} more characters`;
  const head = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  place.replaceChildren(
    el("p", { class: "line" }, el("b", { class: answer.ok ? "good" : "bad" }, `${answer.status} ${answer.statusText}`), ` in ${took.toFixed(0)} ms`),
    el("details", {}, el("summary", { class: "note" }, "Headers"), el("pre", {}, head)), command,
    el("pre", {}, shown || "(no body)"));
}

export function tryIt(one) {
  const fields = inputs(one);
  const given = body(one);
  const place = el("div", { class: "answer", "aria-live": "polite" });
  const changes = one.method === "delete";
  const send = el("button", { class: changes ? "main danger" : "main" }, changes ? "Send: this deletes" : "Send");
  const form = el("form", {},
    ...fields.map(({ field, label }) => el("label", {}, label, field)),
    ...(given ? [el("label", {}, "Content-Type", given.media), el("label", {}, "Body", given.text)] : []),
    send, place);
  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    send.disabled = true;
    try { await sent(one, fields, given, place); } finally { send.disabled = false; }
  });
  return el("div", { class: "try" }, el("h3", {}, "Try it"), form);
}
