// Boards: their interests, each with its current top k.

import { $, ask, el, many, options, say, shownValue } from "../api.js";

const SHOWN = 20; // interests of a board
const EVERY = 3000; // milliseconds between two looks at the lists

let boards = [];
let chosenAt = 0;
let wanted = "";
let isAsking = false;

export function begin() {
  $("board").addEventListener("change", () => look(true));
  $("board-search").addEventListener("input", () => { wanted = $("board-search").value.trim(); look(true); });
}

export function chosen() {}

export async function ticked({ status }) {
  $("boards-section").hidden = !status.boards;
  if (!status.boards) return;
  if (boards.length !== status.boards) {
    boards = (await ask("/v1/boards")).items;
    options($("board"), boards.map((one) => [one.name, one.name]));
  }
  await look(false);
}

const path = (rest = "") => `/v1/boards/${encodeURIComponent($("board").value)}${rest}`;

async function look(isNow) {
  if (isAsking || !$("board").value || (!isNow && Date.now() - chosenAt < EVERY)) return;
  isAsking = true;
  chosenAt = Date.now();
  const body = $("interests").tBodies[0];
  try {
    const [board, interests] = await Promise.all([ask(path()), found()]);
    const lists = await Promise.all(interests.items.map((one) => ask(path(`/interests/${encodeURIComponent(one.id)}`))));
    const order = board.descending ? "highest" : "lowest";
    $("board-note").textContent = `${many(board.objects, "object")}, ${many(board.interests, "interest")}; `
      + `each has the ${board.k} of the ${order} value in its range.${interests.items.length < board.interests && !wanted ? ` The first ${interests.items.length} by id are shown.` : ""}`;
    body.replaceChildren(...lists.map(row));
    if (!lists.length) body.append(el("tr", {}, el("td", { colspan: 4, class: "empty" }, wanted ? "No interest has this id." : "This board has no interests yet.")));
  } catch (error) {
    body.replaceChildren(el("tr", {}, el("td", { colspan: 4 }, say(error))));
  }
  isAsking = false;
}

// The first interests, or the one whose id a person has given.
async function found() {
  if (!wanted) return ask(path(`/interests?limit=${SHOWN}`));
  try {
    return { items: [await ask(path(`/interests/${encodeURIComponent(wanted)}`))] };
  } catch (error) {
    if (error.status !== 404) throw error;
    return { items: [] };
  }
}

const range = (one) => one.filter ?? `position from ${one.position_lo ?? "anywhere"} to ${one.position_hi ?? "anywhere"}`;

function row(one) {
  const best = one.best.map(({ object: id, value }, at) => el("li", {}, `${at + 1}. ${id} `, el("span", { class: "note" }, `value ${shownValue(value)}`)));
  return el("tr", {}, el("td", {}, one.id), el("td", { class: "code" }, range(one)), el("td", {}, one.consumer ?? "–"),
    el("td", {}, best.length ? el("ul", { class: "best" }, ...best) : "no object in its range"));
}
