// Events: a visible list, and a live region with the newest for screen readers.

import { h, keyed, pill, say } from "./dom.js";
import { clock, shown } from "./format.js";

const TONES = {
  joined: "good", recovered: "good", led: "lead", taken: "good", fenced: "bad", stalled: "bad", leaderless: "bad",
  degraded: "warn", isolated: "warn", poison: "bad", paused: "warn", resumed: "good", drained: "warn", undrained: "good", seeked: "warn", leaving: "warn", left: "warn", moved: "warn", split: null, merged: null, ended: null,
};
const MOST_SPOKEN = 4;

/** The list of events, newest first. */
export class Events {
  constructor(list, live) {
    this.list = list;
    this.live = live;
    this.heard = null;
  }

  update(state) {
    const fresh = this.heard === null ? [] : state.events.filter((event) => event.number > this.heard);
    if (state.events.length && state.events.at(-1).number < (this.heard ?? 0)) this.heard = 0; // the server has restarted
    const newest = [...state.events].reverse();
    keyed(this.list, newest.length ? newest : [null], (event) => (event ? `${event.number} ${event.at}` : "none"),
      (event) => (event ? this.item(event, fresh.includes(event)) : h("li", { class: "none" }, "No events yet.")),
      () => {});
    this.heard = Math.max(this.heard ?? 0, state.events.at(-1)?.number ?? 0);
    if (fresh.length) this.speak(fresh);
  }

  item(event, isNew) {
    const at = new Date(event.at * 1000).toISOString();
    return h("li", { class: isNew ? "new" : null },
      h("time", { datetime: at }, clock(event.at)),
      h("span", {}, pill(event.kind, TONES[event.kind])),
      h("span", { class: "text" }, shown(event.text)));
  }

  speak(fresh) {
    const spoken = fresh.slice(0, MOST_SPOKEN).map((event) => shown(event.text));
    const more = fresh.length - spoken.length;
    say(this.live, [...spoken, ...(more ? [`and ${more} more`] : [])].join(". "));
  }
}
