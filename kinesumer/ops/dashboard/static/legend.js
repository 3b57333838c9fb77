// The legends: what the fillings mean, and the colours and numbers of many clients.

import { h, keyed, say } from "./dom.js";
import { shown } from "./format.js";
import { colours, filling, hatch, moving, paintSwatch, swatch } from "./palette.js";

const MOST_NAMED = 8; // with more clients, names don't fit on their ranges

/** Return the items of the legend of fillings. */
export function fillings() {
  const meanings = [
    ["read by the client of this colour", (context) => filling(context, 0)],
    ["moving to another client", (context) => moving(context, 1)],
    ["unassigned", (context) => hatch(context, "warn")],
    ["its owner is dead", (context) => hatch(context, "bad")],
    ["paused, or ended", () => colours().line],
  ];
  return meanings.map(([meaning, fill]) => {
    const sample = h("canvas", { "aria-hidden": "true" });
    paintSwatch(sample, fill);
    return h("li", {}, sample, meaning);
  });
}

/** The clients' colours, numbers and names, if the names don't fit on the bands. */
export class ClientLegend {
  constructor(list, light) {
    this.list = list;
    this.light = light;
  }

  update({ members }) {
    const named = members.length > MOST_NAMED ? members.filter((member) => member.index !== null) : [];
    named.sort((one, other) => one.index - other.index);
    this.list.hidden = !named.length;
    keyed(this.list, named, (member) => `${member.client_id} ${member.slot}`, (member) => this.item(member),
      (item, member) => say(item.children[1], String(member.index)));
  }

  item(member) {
    return h("li", {
      onpointerenter: () => this.light(member.client_id), onpointerleave: () => this.light(null),
    }, swatch(member.slot), h("b"), h("span", { class: "long", title: shown(member.client_id) }, shown(member.client_id)));
  }
}
