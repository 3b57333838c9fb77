// The clients: their states, heartbeats, shards and lags.

import { actions, mayChange } from "./control.js";
import { h, keyed, pill, say, set } from "./dom.js";
import { count, duration, shown } from "./format.js";
import { swatch } from "./palette.js";

const TONES = { up: "good", joining: "warn", leaving: "warn", degraded: "warn", drained: null, silent: "bad" };
const TICK_MILLIS = 500;

/** The table of clients, which advances the ages of heartbeats. */
export class Members {
  constructor(region, aside, light) {
    this.aside = aside;
    this.light = light;
    this.body = h("tbody");
    this.heads = h("tr");
    this.table = h("table", {}, h("caption", { class: "hidden" }, "Clients of the app"), h("thead", {}, this.heads), this.body);
    this.none = h("p", { class: "none" });
    region.append(this.table, this.none);
    setInterval(() => this.tick(), TICK_MILLIS);
  }

  update(state) {
    this.state = state;
    this.since = performance.now();
    const { members } = state;
    this.labels = members.some((member) => member.label);
    this.weights = members.some((member) => member.weight !== 1);
    const heads = ["Client", "State", "Shards", "Behind", "Heartbeat",
      ...(this.labels ? ["Zone"] : []), ...(this.weights ? ["Weight"] : []), ...(mayChange(state) ? [""] : [])];
    set(this.table, "class", heads.length > 5 ? "many" : null);
    keyed(this.heads, heads, (text) => text,
      (text) => h("th", { scope: "col", class: /Shards|Behind|Weight/.test(text) ? "number" : text === "Heartbeat" ? "apart" : null },
        text || h("span", { class: "hidden" }, "Actions")), () => {});
    keyed(this.body, members, (member) => member.client_id, (member) => this.row(member), (row, member) => this.fill(row, member));
    this.table.hidden = !members.length;
    say(this.none, members.length ? "" : "No client is alive.");
    say(this.aside, members.length ? `${count(members.length)} alive` : "");
    this.tick();
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
      shards: h("td", { class: "number" }),
      behind: h("td", { class: "number" }),
      label: h("td"),
      weight: h("td", { class: "number" }),
      actions: h("div", { class: "actions" }),
    };
    row.slot = member.slot;
    const { parts } = row;
    parts.beat = h("span", { class: "beat" }, h("span", { class: "track", "aria-hidden": "true" }, parts.fill), parts.age);
    row.append(
      h("th", { scope: "row" }, parts.swatch, parts.name, " ", parts.leads),
      h("td", {}, parts.states), parts.shards, parts.behind, h("td", { class: "apart" }, parts.beat),
      parts.label, parts.weight, h("td", {}, parts.actions));
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
    const states = member.query ? ["Spark query", ...member.states] : member.states;
    keyed(parts.states, states, (text) => text, (text) => pill(shown(text), TONES[text]), () => {});
    say(parts.shards, count(member.shards));
    say(parts.behind, member.shards ? duration(member.millis_behind) : "–");
    say(parts.label, shown(member.label) || "–");
    say(parts.weight, count(member.weight));
    parts.label.hidden = !this.labels;
    parts.weight.hidden = !this.weights;
    parts.actions.parentElement.hidden = !mayChange(this.state);
    const drained = member.states.includes("drained");
    actions(parts.actions, this.state, member.query ? [] : [
      [drained ? "Undrain" : "Drain", { do: drained ? "undrain" : "drain", client: member.client_id }],
    ], member.client_id);
  }

  /** Advance the heartbeats' ages between two states. */
  tick() {
    if (!this.state || document.hidden) return;
    const passed = Math.min((performance.now() - this.since) / 1000, this.state.every_seconds);
    for (const row of this.body.children) {
      const { member, parts } = row;
      const age = (member.heartbeat_age_seconds ?? 0) + passed;
      const late = member.states.includes("silent");
      set(parts.beat, "data-late", String(late));
      parts.fill.style.transform = `scaleX(${Math.min(1, age / (member.heartbeat_late_seconds * 2)).toFixed(3)})`;
      say(parts.age, duration(Math.max(100, age * 1000)));
    }
  }
}
