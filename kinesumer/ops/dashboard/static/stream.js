// A stream's card: head, band with a focusable element per shard, and table.

import { Band } from "./band.js";
import { actions } from "./control.js";
import { h, keyed, pill, say, set } from "./dom.js";
import { behind, bytes, count, lagMillis, percent, rate, short, shown } from "./format.js";
import * as place from "./geometry.js";
import { streamKey } from "./palette.js";
import { browse } from "./records.js";
import { describe, showShard, stateName, TONES } from "./shard.js";
import { SortableHeads } from "./sorting.js";
import { hideTip, showRangeTip, showShardTip } from "./tip.js";
import { mayBrowse } from "./token.js";

const MOST_ZOOM = 64;
const ZOOMED_FROM = 40;
const LEAST_SHOWN_WIDTH = 16; // a shard that is shown is zoomed to this width

const COLUMNS = [
  { name: "Shard", value: (shard) => shard.shard_id },
  { name: "State", value: stateText },
  { name: "Owner", value: (shard) => shard.owner },
  { name: "Lag", kind: "number", value: (shard) => (shard.state === "ended" ? null : lagMillis(shard)) },
  { name: "Records/s", kind: "number", load: true, value: (shard) => shard.load?.records_per_second },
  { name: "Bytes/s", kind: "number", load: true, value: (shard) => shard.load?.bytes_per_second },
  { name: "Handler s/s", kind: "number", load: true, value: (shard) => shard.load?.handler_seconds_per_second },
  { name: "Hash keys", value: (shard) => shard.x },
  { name: "Epoch", kind: "number", value: (shard) => shard.epoch },
  { name: "Parents" },
  { name: "Position" },
];

/** One stream's card. */
export class StreamCard {
  constructor(band, light) {
    this.arn = band.stream_arn;
    this.lightClient = light;
    const titleId = `stream-${crypto.randomUUID()}`;
    this.name = h("span", { class: "name" });
    this.key = streamKey(band.slot);
    this.place = h("span", { class: "place" });
    this.fanOut = h("span", { class: "place" });
    this.failures = h("span", { class: "place" });
    this.states = h("ul", { class: "stream-states", "aria-label": "Shards by state" });
    this.lag = h("span", { class: "figure" });
    this.rate = h("span", { class: "figure" });
    this.buttons = h("div", { class: "actions" });
    this.records = h("button", { type: "button", hidden: true, onclick: () => browse(this.band) }, "Records");
    this.zoomText = h("output", { "aria-label": "Zoom" }, "1×");
    this.zoom = h("div", { class: "zoom", role: "group", "aria-label": "Zoom of the band" },
      h("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoomBy(0.5) }, "−"),
      this.zoomText,
      h("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoomBy(2) }, "+"));
    this.problem = h("p", { class: "notice", hidden: true });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.shards = h("div", {
      class: "shards", role: "listbox", "aria-orientation": "horizontal", "aria-labelledby": titleId,
      onkeydown: (event) => this.pressed(event),
      onpointermove: (event) => this.pointed(event.target, event),
      onpointerleave: () => { this.pointed(null); this.overRange(null); },
      onfocusin: (event) => this.focused(event.target),
      onfocusout: () => this.pointed(null),
      onclick: (event) => this.opened(event.target),
    });
    this.space = h("div", { class: "space" }, this.canvas, this.shards);
    this.view = h("div", { class: "view" }, this.space);
    this.body = h("tbody");
    this.heads = new SortableHeads(() => this.fillTable());
    this.table = h("details", { class: "as-table", ontoggle: () => this.fillTable() },
      h("summary", {}, "Shards as a table"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": titleId },
        h("table", {}, h("thead", {}, this.heads.element), this.body)));
    this.element = h("article", { class: "card stream", "aria-labelledby": titleId },
      h("div", { class: "stream-head" },
        h("h3", { class: "title", id: titleId }, this.key, this.name, " ", this.place, " ", this.fanOut, " ", this.failures),
        this.states, h("span", { class: "as-of" }), this.rate, this.lag, this.zoom, this.buttons, this.records),
      this.problem, this.view, this.table);
    this.drawn = new Band(this.canvas, this.view);
  }

  update(state, band) {
    this.state = state;
    this.band = band;
    this.byLoad = state.plan.assignor === "load";
    this.byElement = new Map();
    say(this.name, shown(band.name));
    say(this.place, shown(band.place));
    say(this.fanOut, shown(band.fan_out.map(useText).join(", ")));
    say(this.failures, shown(band.failures?.text ?? ""));
    keyed(this.states, Object.entries(this.counted()), ([name]) => name,
      ([name]) => h("li", {}, pill("", TONES[name])),
      (item, [name, number]) => say(item.firstChild, `${count(number)} ${stateName(name)}`));
    const lag = behind(band);
    this.figure(this.lag, lag.replace(" behind", ""), lag.endsWith(" behind") ? " behind" : "");
    this.figure(this.rate, count(band.records_per_second), " records/s");
    this.zoom.hidden = band.shards.length < ZOOMED_FROM && this.drawn.zoom === 1;
    const problem = band.lag_problem ? `Its lag is unknown: ${band.lag_problem}` : "";
    this.problem.hidden = !problem;
    say(this.problem, shown(problem));
    this.members = new Map(state.members.map((member) => [member.client_id, member]));
    this.drawn.update(band, this.members);
    this.space.style.height = `${place.height(band.lanes)}px`;
    this.fillShards();
    this.heads.update(COLUMNS.filter((column) => !column.load || this.byLoad));
    this.fillTable();
    this.records.hidden = !mayBrowse(state);
    set(this.records, "aria-label", `Records of ${shown(band.name)}`);
    actions(this.buttons, state, [
      band.paused ? ["Resume", { do: "resume", stream: this.arn }] : ["Pause", { do: "pause", stream: this.arn }],
      ["Seek", { do: "seek", stream: this.arn }],
    ], band.name);
  }

  counted() {
    const { owned, ...others } = this.band.states;
    const paused = this.band.shards.filter((shard) => shard.paused).length;
    const found = { owned, ...others, paused };
    if (paused && found.unowned) found.unowned -= this.band.shards.filter((shard) => shard.paused && shard.state === "unowned").length;
    return Object.fromEntries(Object.entries(found).filter(([, number]) => number));
  }

  figure(element, value, unit) {
    if (element.dataset.value === value) return;
    element.dataset.value = value;
    element.replaceChildren(h("b", {}, value), unit);
  }

  fillShards() {
    const total = this.band.shards.length;
    keyed(this.shards, this.band.shards, (shard) => shard.shard_id,
      (shard) => h("div", { role: "option", tabindex: "-1", "aria-setsize": null, "data-id": shard.shard_id }),
      (element, shard) => {
        this.byElement.set(element, shard);
        const { x, width, lane } = shard;
        const where = `${x} ${width} ${lane}`;
        if (element.where !== where) {
          element.where = where;
          element.style.left = `${x * 100}%`;
          element.style.width = `${width * 100}%`;
          element.style.top = `${lane ? place.top(lane) : place.RANGES}px`;
          element.style.height = `${lane ? place.LANE : place.LAG + place.BAND}px`;
        }
        set(element, "aria-label", describe(shard));
      });
    if (total && !this.shards.querySelector('[tabindex="0"]')) set(this.shards.firstChild, "tabindex", "0");
  }

  fillTable() {
    if (!this.table.open || !this.band) return;
    keyed(this.body, this.heads.sorted(this.band.shards), (shard) => shard.shard_id,
      (shard) => h("tr", {}, h("th", { scope: "row" }, h("button", {
        type: "button", class: "code", "aria-label": `Show shard ${short(shard.shard_id)}`,
        onclick: () => this.open(shard.shard_id) }, shown(shard.shard_id))),
      ...COLUMNS.slice(1).map(({ kind }) => h("td", { class: kind }, h("span", { class: "long" })))),
      (row, shard) => {
        const [, ...cells] = row.children;
        const values = [
          stateText(shard),
          shard.owner === null ? "–" : shown(shard.owner),
          shard.state === "ended" ? "–" : behind(shard),
          shard.load ? rate(shard.load.records_per_second) : "–",
          shard.load ? bytes(Math.round(shard.load.bytes_per_second)) : "–",
          shard.load ? rate(shard.load.handler_seconds_per_second) : "–",
          `${percent(shard.x)} – ${percent(shard.x + shard.width)}`,
          String(shard.epoch),
          shard.parents.map(short).join(", ") || "–",
          shard.sequence_number ?? "–",
        ];
        cells.forEach((cell, i) => {
          say(cell.firstChild, values[i]);
          cell.hidden = Boolean(COLUMNS[i + 1].load) && !this.byLoad;
        });
      });
  }

  /** Move the focus among shards: along the hash space, and between lanes. */
  pressed(event) {
    const options = [...this.shards.children];
    const now = options.indexOf(event.target);
    if (now < 0) return;
    const far = Math.max(1, Math.round(options.length / 10));
    const next = {
      ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: options.length - 1,
      PageDown: now + far, PageUp: now - far,
      ArrowDown: this.beside(options, now, 1), ArrowUp: this.beside(options, now, -1),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      this.opened(event.target);
    } else if (event.key === "Escape") {
      hideTip();
      return;
    } else if (next === undefined) {
      return;
    } else {
      options[Math.min(Math.max(next, 0), options.length - 1)].focus();
    }
    event.preventDefault();
  }

  /** Return the nearest shard one lane further down or up, else the same one. */
  beside(options, now, step) {
    const from = this.byElement.get(options[now]);
    const middle = from.x + from.width / 2;
    let best = now;
    let nearest = Infinity;
    options.forEach((option, i) => {
      const shard = this.byElement.get(option);
      const distance = Math.abs(shard.x + shard.width / 2 - middle);
      if (shard.lane === from.lane + step && distance < nearest) [best, nearest] = [i, distance];
    });
    return best;
  }

  focused(element) {
    const shard = this.byElement.get(element);
    if (!shard) return;
    for (const other of this.shards.querySelectorAll('[tabindex="0"]')) set(other, "tabindex", "-1");
    set(element, "tabindex", "0");
    const box = element.getBoundingClientRect();
    if (element.matches(":focus-visible")) this.pointed(element, { clientX: box.x + box.width / 2, clientY: box.bottom });
  }

  pointed(element, at) {
    const shard = element && this.byElement.get(element);
    const part = at ? this.drawn.rangeAt(at) : null;
    this.choose(shard ? shard.shard_id : null);
    if (shard) showShardTip(shard, at);
    else if (part) showRangeTip(part, this.members.get(part.client_id), at);
    else hideTip();
    this.overRange(part?.client_id ?? null);
  }

  /** Highlight the client whose range is under the pointer in every band. */
  overRange(clientId) {
    if (this.over === clientId) return;
    this.over = clientId;
    this.lightClient(clientId);
  }

  /** Scroll and zoom to a shard, and give it the focus. */
  reveal(shardId) {
    const element = this.shards.querySelector(`[data-id="${CSS.escape(shardId)}"]`);
    const shard = this.byElement.get(element);
    if (!shard) return;
    const wide = shard.width * this.view.clientWidth;
    while (this.drawn.zoom < MOST_ZOOM && wide * this.drawn.zoom < LEAST_SHOWN_WIDTH && !this.zoom.hidden) this.zoomBy(2);
    this.view.scrollLeft = (shard.x + shard.width / 2) * this.space.clientWidth - this.view.clientWidth / 2;
    this.element.scrollIntoView({ block: "nearest" });
    element.focus({ preventScroll: true });
    const box = element.getBoundingClientRect();
    this.pointed(element, { clientX: box.x + box.width / 2, clientY: box.bottom });
  }

  choose(shardId) {
    if (this.drawn.chosen === shardId) return;
    this.drawn.chosen = shardId;
    this.drawn.redraw();
  }

  opened(element) {
    const shard = this.byElement.get(element);
    if (shard) this.open(shard.shard_id);
  }

  open(shardId) {
    hideTip();
    const shard = this.band.shards.find((known) => known.shard_id === shardId);
    if (shard) showShard(this.state, this.band, shard);
  }

  light(clientId) {
    this.drawn.lit = clientId;
    this.drawn.redraw();
  }

  zoomBy(factor) {
    const before = this.drawn.zoom;
    const zoom = Math.min(MOST_ZOOM, Math.max(1, before * factor));
    const middle = this.view.scrollLeft + this.view.clientWidth / 2;
    this.drawn.zoom = zoom;
    this.space.style.width = `${zoom * 100}%`;
    this.view.scrollLeft = (middle * zoom) / before - this.view.clientWidth / 2;
    say(this.zoomText, `${zoom}×`);
    this.drawn.redraw();
  }
}

function stateText(shard) {
  const marks = [["paused", shard.paused], ["hot", shard.hot], ["isolated", shard.isolated]];
  return [stateName(shard.state), ...marks.filter(([, holds]) => holds).map(([mark]) => mark)].join(", ");
}

/** Return who reads by fan-out, and who polls instead. */
function useText({ consumer, clients, polling }) {
  const counts = [
    clients.length ? `${clients.length} client${clients.length === 1 ? "" : "s"}` : null,
    polling.length ? `${polling.length} poll${polling.length === 1 ? "s" : ""} instead` : null,
  ];
  return `fan-out ${consumer} (${counts.filter(Boolean).join(", ")})`;
}
