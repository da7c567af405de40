// Links to other servers.

import { $, el, many } from "../api.js";

export function begin() {}

export function chosen() {}

export function ticked({ status }) {
  $("links-part").hidden = !status.broker;
  if (!status.broker) return;
  $("links-name").textContent = status.broker;
  const named = new Set(status.links.map((one) => one.broker));
  const rows = [...status.links.map((one) => link(one, status)), ...status.outgoing.filter((one) => !named.has(one.broker)).map(dial)];
  const body = $("links").tBodies[0];
  body.replaceChildren(...rows);
  if (!rows.length) body.append(el("tr", {}, el("td", { colspan: 7, class: "empty" }, `Nobody is linked yet. Start another server with --server-name NAME --link ${address()}`)));
  $("links-note").textContent = status.alarms.at(-1) ?? "";
}

function link(one, status) {
  const error = status.outgoing.find((other) => other.broker === one.broker)?.error;
  const behind = one.reach.filter((name) => name !== one.broker);
  return el("tr", {}, el("td", {}, one.broker), state(one.state),
    el("td", {}, one.lag.toLocaleString("en")),
    el("td", {}, one.wants === null ? "unknown: everything" : many(one.wants, "filter")),
    el("td", {}, many(one.advertised, "filter")),
    el("td", {}, behind.join(", ") || "none"),
    el("td", { class: one.state === "up" ? "note" : "bad" }, one.state === "up" ? "none" : error ?? "it hasn't connected"));
}

function dial(one) {
  return el("tr", {}, el("td", {}, one.broker ?? one.url), state(one.error ? "not connected" : "connecting"),
    el("td", {}, "–"), el("td", {}, "–"), el("td", {}, "–"), el("td", {}, "–"), el("td", { class: "bad" }, one.error ?? "none"));
}

const state = (text) => el("td", { class: text === "up" ? "" : "bad" }, text);

const address = () => `${location.protocol.replace("http", "ws")}//${location.host}/v1/link`;
