// The age of what the page shows: the light, and a note on each card that is old.

import { clock, count, duration } from "./format.js";
import { say, set } from "./dom.js";

const TICK_MILLIS = 1000;
const LATE_POLLS = 3; // a poll also takes the time that the rows and the lags take

/** Return whether values of this age are older than a few polls explain. */
export function isOld(age, everySeconds) {
  return age !== null && age > LATE_POLLS * everySeconds;
}

/** Return an age in seconds as "3 min ago". */
export function ago(age) {
  return `${duration(1000 * age)} ago`;
}

/** The light at the top of the page, and the notes ".as-of" on the cards. */
export class Freshness {
  constructor(light, text) {
    this.light = light;
    this.text = text;
    this.isLost = false;
    setInterval(() => this.tick(), TICK_MILLIS);
  }

  received(state) {
    this.state = state;
    this.since = performance.now();
    this.isLost = false;
    this.tick();
  }

  lost() {
    this.isLost = true;
    this.tick();
  }

  tick() {
    const old = this.oldText();
    const note = old ?? "";
    set(document.body, "data-old", old !== null);
    document.querySelectorAll(".as-of").forEach((place) => say(place, note));
    set(this.light, "data-state", this.isLost ? "lost" : old === null ? this.state ? "live" : "waiting" : "old");
    if (this.isLost) say(this.text, this.state ? `connection lost, ${old}; trying again` : "no connection; trying again");
    else if (this.state) say(this.text, old ?? `live, every ${count(this.state.every_seconds)} s`);
  }

  /** Return "as of 12:00:00, 3 min ago" if the page shows an old state, or null. */
  oldText() {
    if (!this.state) return null;
    const { age_seconds: sent, at, every_seconds: every, trouble } = this.state;
    if (sent === null) return "nothing was read yet";
    const age = sent + (performance.now() - this.since) / 1000;
    return this.isLost || trouble || isOld(age, every) ? `as of ${clock(at)}, ${ago(age)}` : null;
  }
}
