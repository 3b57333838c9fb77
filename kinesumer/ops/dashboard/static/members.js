// The clients: their states, heartbeats, shards and lags.

import { actions } from "./control.js";
import { h, keyed, pill, say, set } from "./dom.js";
import { behind, bytes, count, duration, lagMillis, percent, rate, shown } from "./format.js";
import { swatch } from "./palette.js";
import { SortableHeads } from "./sorting.js";
import { mayChange } from "./token.js";

const TONES = { up: "good", joining: "warn", leaving: "warn", degraded: "warn", drained: null, silent: "bad" };
const TICK_MILLIS = 500;
const COLUMNS = [
  { name: "Client", value: (member) => member.client_id },
  { name: "Index", kind: "number", value: (member) => member.index },
  { name: "State", value: (member) => member.states.join() },
  { name: "Shards", kind: "number", value: (member) => member.shards },
  { name: "Lag", kind: "number", value: (member) => (member.shards ? lagMillis(member) : null) },
  { name: "Heartbeat", kind: "apart", value: (member) => member.heartbeat_unchanged_seconds },
];

const LOAD_COLUMNS = [
  { name: "Records/s", kind: "number", value: (member) => member.load?.records_per_second },
  { name: "Bytes/s", kind: "number", value: (member) => member.load?.bytes_per_second },
  { name: "Handler s/s", kind: "number", value: (member) => member.load?.handler_seconds_per_second },
  { name: "Work / share", kind: "number", value: (member) => member.load_share },
];

/** The table of clients, and why the plan is as it is; it advances the ages of heartbeats. */
export class Members {
  constructor(region, aside, light) {
    this.aside = aside;
    this.light = light;
    this.body = h("tbody");
    this.heads = new SortableHeads(() => this.fillRows());
    this.table = h("table", {}, h("caption", { class: "hidden" }, "Clients of the app"),
      h("thead", {}, this.heads.element), this.body);
    this.none = h("p", { class: "none" });
    this.plan = h("p", { class: "plan" });
    this.reasons = h("ul", { class: "plan", "aria-label": "Why the plan is as it is" });
    region.append(this.plan, this.reasons, this.table, this.none);
    setInterval(() => this.tick(), TICK_MILLIS);
  }

  update(state) {
    this.state = state;
    this.since = performance.now();
    const { members } = state;
    this.labels = members.some((member) => member.label);
    this.weights = members.some((member) => member.weight !== 1);
    this.failures = members.some((member) => member.failures);
    this.loads = state.plan.assignor === "load";
    const columns = [...COLUMNS, ...(this.loads ? LOAD_COLUMNS : [])];
    if (this.failures) columns.push({ name: "Failures", value: (member) => member.failures?.text });
    if (this.labels) columns.push({ name: "Zone", value: (member) => member.label });
    if (this.weights) columns.push({ name: "Weight", kind: "number", value: (member) => member.weight });
    if (mayChange(state)) columns.push({ name: "" });
    set(this.table, "class", this.loads ? "many loads" : columns.length > COLUMNS.length ? "many" : null);
    this.heads.update(columns);
    this.fillRows();
    this.table.hidden = !members.length;
    say(this.none, members.length ? "" : state.age_seconds === null ? "The clients are not known yet." : "No client is alive.");
    say(this.aside, members.length ? `${count(members.length)} alive` : "");
    this.explain(state.plan);
    this.tick();
  }

  explain({ assignor, age_seconds: age, reasons }) {
    this.plan.hidden = this.reasons.hidden = !reasons.length;
    say(this.plan, reasons.length ? `Plan by ${shown(assignor)}${age === null ? "" : `, ${duration(1000 * age)} old`}` : "");
    keyed(this.reasons, reasons.map((text, i) => ({ text, i })), ({ i }) => i,
      () => h("li"), (item, { text }) => say(item, shown(text)));
  }

  fillRows() {
    keyed(this.body, this.heads.sorted(this.state.members), (member) => member.client_id,
      (member) => this.row(member), (row, member) => this.fill(row, member));
  }

  row(member) {
    const row = h("tr", {
      onpointerenter: () => this.light(member.client_id), onpointerleave: () => this.light(null),
    });
    row.parts = {
      name: h("span", { class: "long name" }),
      swatch: swatch(member.slot),
      leads: h("span"),
      states: h("span"),
      age: h("span", { class: "age" }),
      fill: h("span", { class: "fill" }),
      index: h("td", { class: "number" }),
      shards: h("td", { class: "number" }),
      behind: h("td", { class: "number" }),
      loads: LOAD_COLUMNS.map(() => h("td", { class: "number" })),
      failures: h("td"),
      label: h("td"),
      weight: h("td", { class: "number" }),
      actions: h("div", { class: "actions" }),
    };
    row.slot = member.slot;
    const { parts } = row;
    parts.beat = h("span", { class: "beat" }, h("span", { class: "track", "aria-hidden": "true" }, parts.fill), parts.age);
    row.append(
      h("th", { scope: "row" }, parts.swatch, parts.name, " ", parts.leads),
      parts.index, h("td", {}, parts.states), parts.shards, parts.behind, h("td", { class: "apart" }, parts.beat),
      ...parts.loads, parts.failures, parts.label, parts.weight, h("td", {}, parts.actions));
    return row;
  }

  fill(row, member) {
    const { parts } = row;
    row.member = member;
    if (row.slot !== member.slot) {
      row.slot = member.slot;
      const fresh = swatch(member.slot);
      parts.swatch.replaceWith(fresh);
      parts.swatch = fresh;
    }
    say(parts.name, shown(member.client_id));
    set(parts.name, "title", shown(member.client_id));
    keyed(parts.leads, member.leader ? ["leads"] : [], (text) => text, (text) => pill(text, "lead"), () => {});
    const states = member.kind === "query" ? ["Spark query", ...member.states] : member.states;
    keyed(parts.states, states, (text) => text, (text) => pill(shown(text), TONES[text]), () => {});
    say(parts.index, member.index === null ? "–" : String(member.index));
    say(parts.shards, count(member.shards));
    say(parts.behind, member.shards ? behind(member) : "–");
    const { load, load_share: share } = member;
    const loads = load === null ? [] : [
      rate(load.records_per_second), bytes(Math.round(load.bytes_per_second)), rate(load.handler_seconds_per_second)];
    parts.loads.forEach((cell, i) => {
      say(cell, (i < 3 ? loads[i] : share === null ? null : percent(share)) ?? "–");
      cell.hidden = !this.loads;
    });
    say(parts.failures, shown(member.failures?.text ?? "") || "–");
    say(parts.label, shown(member.label) || "–");
    say(parts.weight, count(member.weight));
    parts.failures.hidden = !this.failures;
    parts.label.hidden = !this.labels;
    parts.weight.hidden = !this.weights;
    parts.actions.parentElement.hidden = !mayChange(this.state);
    const drained = member.states.includes("drained");
    actions(parts.actions, this.state, member.kind === "query" ? [] : [
      [drained ? "Undrain" : "Drain", { do: drained ? "undrain" : "drain", client: member.client_id }],
    ], member.client_id);
  }

  /** Advance the heartbeats' ages between two states. */
  tick() {
    if (!this.state || document.hidden) return;
    const passed = Math.min((performance.now() - this.since) / 1000, this.state.every_seconds);
    for (const row of this.body.children) {
      const { member, parts } = row;
      const age = (member.heartbeat_unchanged_seconds ?? 0) + passed;
      const late = member.states.includes("silent");
      set(parts.beat, "data-late", String(late));
      parts.fill.style.transform = `scaleX(${Math.min(1, age / (member.heartbeat_late_seconds * 2)).toFixed(3)})`;
      // Of an old state, nobody knows whether more heartbeats have come.
      say(parts.age, document.body.dataset.old === undefined ? duration(Math.max(100, age * 1000)) : "unknown");
    }
  }
}
