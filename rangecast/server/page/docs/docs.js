// The API page: what the OpenAPI document says, operation by operation.

import { $, ask, el, say, setToken } from "../api.js";
import { schemaOf, typeOf, words } from "./schema.js";
import { tryIt } from "./request.js";

const METHODS = ["put", "post", "get", "delete"];
const state = { document: null, shown: [] };

const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const example = (value) => (value === undefined ? null : el("pre", {}, pretty(value)));

function operations() {
  const found = [];
  for (const [path, methods] of Object.entries(state.document.paths)) {
    for (const [method, one] of Object.entries(methods)) found.push({ path, method, ...one });
  }
  return found;
}

function limits(schema) {
  const said = [];
  if (schema.minimum !== undefined && schema.maximum !== undefined) said.push(`${schema.minimum} to ${schema.maximum}`);
  else if (schema.minimum !== undefined) said.push(`at least ${schema.minimum}`);
  else if (schema.maximum !== undefined) said.push(`at most ${schema.maximum}`);
  if (schema.maxLength !== undefined) said.push(`at most ${schema.maxLength} characters`);
  if (schema.enum) said.push(schema.enum.filter((one) => one !== "").join(" or "));
  if (schema.default !== undefined && schema.default !== "" && schema.default !== null) said.push(`default ${schema.default}`);
  return said.join("; ");
}

function parameters(one) {
  if (!one.parameters.length) return null;
  const rows = one.parameters.map((given) => el("tr", {},
    el("td", {}, el("code", {}, given.name), given.required ? " *" : ""),
    el("td", {}, given.in),
    el("td", { class: "types" }, [typeOf(given.schema), limits(given.schema)].filter(Boolean).join(": ")),
    el("td", {}, ...words(given.description || given.schema.description || (given.example ? `such as ${given.example}` : "")))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parameters" },
    el("table", {}, el("thead", {}, el("tr", {}, ...["Parameter", "In", "Type", ""].map((text) => el("th", {}, text)))), el("tbody", {}, ...rows)));
}

function content(contents) {
  return Object.entries(contents).map(([media, given]) => el("div", { class: "sides" },
    el("div", {}, el("p", { class: "note" }, media), schemaOf(state.document, given.schema)),
    el("div", {}, el("p", { class: "note" }, given.example === undefined ? "" : "Example"), example(given.example))));
}

function responses(one) {
  const all = Object.entries(one.responses);
  const good = all.filter(([status]) => status < "300").flatMap(([status, given]) => [
    el("p", {}, el("span", { class: "status good" }, status), ` ${given.description}`), ...content(given.content)]);
  const bad = all.filter(([status]) => status >= "300");
  if (!bad.length) return el("div", { class: "responses" }, ...good);
  const rows = bad.map(([status, given]) => el("tr", {}, el("td", { class: "status" }, status), el("td", {}, given.description)));
  return el("div", { class: "responses" }, ...good, el("details", {},
    el("summary", {}, el("span", { class: "status" }, "Errors"), ` ${bad.map(([status]) => status).join(", ")}`),
    el("table", {}, el("tbody", {}, ...rows)), ...content(bad[bad.length - 1][1].content)));
}

function filled(one, place) {
  if (place.childElementCount) return;
  const body = one.requestBody;
  place.append(
    ...one.description.split("\n\n").map((text) => el("p", {}, ...words(text))),
    ...(one.parameters.length ? [el("h3", {}, "Parameters"), parameters(one)] : []),
    ...(body ? [el("h3", {}, "Body"), ...content(body.content)] : []),
    el("h3", {}, "Answers"), responses(one), tryIt(one));
}

function operation(one) {
  const place = el("div", {});
  const made = el("details", { class: "operation", id: one.operationId },
    el("summary", {}, el("span", { class: `method ${one.method}` }, one.method), el("code", {}, one.path), el("span", {}, one.summary)),
    place);
  made.addEventListener("toggle", () => { if (made.open) filled(one, place); });
  return made;
}

function link(one) {
  const made = el("a", { href: `#${one.operationId}` }, el("span", { class: `method ${one.method}` }, one.method), el("span", {}, one.summary));
  made.addEventListener("click", () => { $(one.operationId).open = true; });
  return made;
}

function show() {
  const wanted = $("find").value.trim().toLowerCase();
  const all = operations().filter((one) => `${one.method} ${one.path} ${one.summary} ${one.operationId} ${one.tags}`.toLowerCase().includes(wanted));
  all.sort((a, b) => METHODS.indexOf(a.method) - METHODS.indexOf(b.method));
  const tags = state.document.tags.map((tag) => [tag, all.filter((one) => one.tags.includes(tag.name))]).filter(([, some]) => some.length);
  $("nav").replaceChildren(...tags.flatMap(([tag, some]) => [el("h2", {}, tag.name), ...some.map(link)]));
  $("main").replaceChildren(...tags.map(([tag, some]) => el("section", { "aria-label": tag.name },
    el("h2", {}, tag.name), el("p", { class: "note" }, tag.description), ...some.map(operation))));
  if (!tags.length) $("main").replaceChildren(el("p", { class: "empty" }, "No operation's name or path contains this."));
}

function goTo() {
  const found = location.hash.length > 1 && $(location.hash.slice(1));
  if (found && found.classList.contains("operation")) { found.open = true; found.scrollIntoView(); }
}

$("find").addEventListener("input", show);
$("token-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const given = $("token").value.trim();
  setToken(given);
  $("token-state").textContent = given ? "Token: in use" : "Token";
  $("token").value = "";
  $("access").open = false;
});
addEventListener("hashchange", goTo);
try {
  state.document = await ask("/v1/openapi.json");
  show();
  goTo();
} catch (error) {
  $("main").replaceChildren(say(error));
}
