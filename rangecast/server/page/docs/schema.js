// A JSON schema as a tree of names, types and texts.

import { el } from "../api.js";

const DEEPEST = 6;

// Text with `code` in it, as descriptions have it.
export function words(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

const target = (document, schema) => (schema.$ref ? document.components.schemas[schema.$ref.split("/").pop()] : schema);

export function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.format === "binary") return "binary";
  const names = [schema.type || "any"].flat();
  return names.map((name) => (name === "array" && schema.items ? `list of ${typeOf(schema.items)}` : name)).join(" or ");
}

function bounds(schema) {
  const said = [];
  if (schema.enum) said.push(schema.enum.join(" | "));
  if (schema.minimum !== undefined) said.push(`≥ ${schema.minimum}`);
  if (schema.exclusiveMinimum !== undefined) said.push(`> ${schema.exclusiveMinimum}`);
  if (schema.maximum !== undefined) said.push(`≤ ${schema.maximum}`);
  if (schema.maxItems !== undefined) said.push(`at most ${schema.maxItems.toLocaleString("en")}`);
  return said.length ? ` ${said.join(", ")}` : "";
}

// What has fields of its own: an object, the items of a list, the one of several that has some.
function fields(document, given) {
  const schema = target(document, given);
  if (schema.properties) return schema;
  if (schema.items) return fields(document, schema.items);
  for (const one of schema.anyOf || []) {
    const found = fields(document, one);
    if (found) return found;
  }
  return null;
}

function field(document, name, schema, needed, depth) {
  const about = schema.description || target(document, schema).description;
  return el("li", {}, el("b", {}, name), needed ? " *" : "", el("span", { class: "types" }, typeOf(schema) + bounds(schema)),
    about && !schema.$ref ? el("small", {}, ...words(about)) : null, tree(document, schema, depth + 1));
}

function tree(document, given, depth) {
  const schema = fields(document, given);
  if (!schema || depth > DEEPEST) return null;
  const needed = new Set(schema.required || []);
  return el("ul", {}, ...Object.entries(schema.properties).map(([name, one]) => field(document, name, one, needed.has(name), depth)));
}

export function schemaOf(document, given) {
  const about = target(document, given).description;
  return el("div", { class: "schema" }, el("span", {}, el("b", {}, typeOf(given)), about ? el("small", {}, ...words(about)) : null), tree(document, given, 0));
}
