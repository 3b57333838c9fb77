// Follow the server's states, and update each part of the page.

import { Chart, LAG, RATE } from "./charts.js";
import { actions } from "./control.js";
import { h, keyed, say, set } from "./dom.js";
import { Events } from "./events.js";
import { behind, count, lagMillis, percent, short, shown } from "./format.js";
import { ago, Freshness, isOld } from "./freshness.js";
import { letters } from "./letters.js";
import { ClientLegend, fillings } from "./legend.js";
import { Members } from "./members.js";
import { StreamCard } from "./stream.js";
import { joined } from "./state.js";
import { enter, mayBrowse, mayChange, permission } from "./token.js";

const find = (id) => document.getElementById(id);
const cards = new Map();
let linked = "";
let current = null; // the newest state

const light = (clientId) => cards.forEach((card) => card.light(clientId));
const members = new Members(find("members"), find("members-aside"), light);
const legend = new ClientLegend(find("clients"), light);
const events = new Events(find("events"), find("live"));
const freshness = new Freshness(find("link"), find("link-text"));
const charts = [new Chart("Lag", LAG), new Chart("Records a second", RATE)];
find("charts").append(...charts.map((chart) => chart.element));

/** Return whether no rows were read since the server started. */
const isUnread = (state) => state.age_seconds === null;
const NONE = {
  false: "No client has consumed a stream under this app's name yet.",
  true: "The app's streams are not known yet.",
};

function show(state) {
  document.title = `${shown(state.app)} · kinesumer`;
  say(find("app"), shown(state.app));
  say(find("where"), shown([`table ${state.table}`, state.region].filter(Boolean).join(" · ")));
  say(find("mode"), permission(state));
  set(find("mode"), "data-mode", mayChange(state) ? "control" : "read");
  actions(find("fleet-actions"), state, [
    state.paused ? ["Resume all", { do: "resume" }] : ["Pause all", { do: "pause" }],
    ["Seek all", { do: "seek" }],
  ], "streams");
  keyed(find("letters"), mayBrowse(state) && state.letters ? ["Dead letters"] : [], (text) => text,
    (text) => h("button", { type: "button", onclick: () => letters(current) }, text), () => {});
  current = state;
  showNotices(state);
  showTotals(state);
  keyed(find("bands"), state.streams.length ? state.streams : [null], (band) => band?.stream_arn ?? NONE[isUnread(state)],
    (band) => {
      if (!band) return h("p", { class: "card none" }, NONE[isUnread(state)]);
      const card = new StreamCard(band, light);
      cards.set(band.stream_arn, card);
      return card.element;
    },
    () => {});
  for (const [arn, card] of cards) {
    const band = state.streams.find((known) => known.stream_arn === arn);
    if (band) card.update(state, band);
    else cards.delete(arn);
  }
  members.update(state);
  legend.update(state);
  events.update(state);
  charts.forEach((chart) => chart.update(state));
}

/** Open the details of the shard that the address names, once. */
function openLinked() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const card = cards.get(wanted.get("stream"));
  if (!card || linked === location.hash) return;
  linked = location.hash;
  document.querySelectorAll("dialog").forEach((opened) => opened.close());
  card.reveal(wanted.get("shard"));
  card.open(wanted.get("shard"));
}

function showNotices(state) {
  const found = [
    ...(state.trouble ? [["trouble", `The rows can't be read${isUnread(state) ? "" : ", so this state is old"}: ${state.trouble}`]] : []),
    ...(state.paused ? [["paused", `Everything is paused${state.pause_reason ? `: ${state.pause_reason}` : ""}`]] : []),
    ...state.problems.map((text) => ["problem", text]),
  ];
  keyed(find("notices"), found, ([kind, text]) => `${kind} ${text}`,
    ([kind, text]) => h("p", { class: "notice", "data-kind": kind }, h("span", {}, shown(text))), () => {});
  find("notices").hidden = !found.length;
}

function showTotals({ totals, leader, streams, lag_age_seconds: lagAge, every_seconds: every }) {
  const figures = [
    ["Clients", count(totals.clients)],
    ["Shards read", count(totals.owned), ` of ${count(totals.shards)}`, totals.neglected > 0],
    ["Furthest behind", behind(totals).replace(" behind", ""), isOld(lagAge, every) ? ` ${ago(lagAge)}` : ""],
    ["Records a second", count(totals.records_per_second)],
    ["Leader", leader === null ? "none" : shown(leader), "", leader === null && totals.clients > 0],
  ];
  if (totals.failing_share !== null) figures.splice(2, 0, ["Failures", ...failures(totals), true]);
  if (totals.paused) figures.splice(2, 0, ["Paused", count(totals.paused), totals.paused === 1 ? " shard" : " shards"]);
  keyed(find("totals"), figures, ([name]) => name,
    ([name]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("span"), h("small"))),
    (tile, [name, value, more = "", bad = false]) => {
      const [text, small] = tile.children[1].children;
      if (name === "Furthest behind") linkFurthest(tile, streams);
      say(text, value);
      say(small, more);
      set(tile.children[1], "title", value + more);
      set(tile, "class", bad ? "bad" : value.endsWith("unknown") ? "unknown" : value.length > 12 ? "long" : null);
    });
}

/** Say what user code could not handle in the last minute. */
function failures({ failing_share: share, failed_records: records }) {
  return share ? [percent(share), " of calls"] : [count(records), " records/min"];
}

/** Show a button that leads to the shard that is furthest behind. */
function linkFurthest(tile, streams) {
  const shards = streams.flatMap((band) => band.shards.map((shard) => ({ band, shard })))
    .filter(({ shard }) => shard.state !== "ended" && lagMillis(shard) > 0);
  const found = shards.length
    ? [shards.reduce((one, other) => (other.shard.millis_behind_latest > one.shard.millis_behind_latest ? other : one))] : [];
  tile.link ??= tile.appendChild(h("dd", { class: "to" }));
  keyed(tile.link, found, () => "shard",
    () => h("button", { type: "button", class: "link", onclick: (event) => event.currentTarget.reveal() }),
    (button, { band, shard }) => {
      button.reveal = () => cards.get(band.stream_arn).reveal(shard.shard_id);
      say(button, `shard ${short(shard.shard_id)} of ${shown(band.name)}`);
    });
}

/** Follow the states; the browser reconnects when the server is back. */
function follow() {
  const states = new EventSource("states");
  states.onmessage = (message) => {
    const state = joined(JSON.parse(message.data));
    show(state);
    freshness.received(state);
    openLinked();
  };
  states.onerror = () => {
    freshness.lost();
    if (states.readyState === EventSource.CLOSED) {
      setTimeout(follow, 1000);
    }
  };
}

addEventListener("hashchange", openLinked);
find("legend").append(...fillings());
await enter();
follow();
