// The tooltip of the shard under the pointer or with the focus.

import { h } from "./dom.js";
import { duration, percent, short } from "./format.js";
import { standing } from "./shard.js";

const tip = document.getElementById("tip");

/** Show a shard's description at a position in the window. */
export function showTip(state, shard, at) {
  const lag = shard.state === "ended" ? "" : ` · ${duration(shard.millis_behind)} behind`;
  tip.replaceChildren(
    h("b", {}, `Shard ${short(shard.shard_id)}`), `${lag} · ${percent(shard.width)} of the hash keys`,
    h("br"), standing(shard));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.min(Math.max(at.clientX - width / 2, 8), innerWidth - width - 8);
  const below = at.clientY + 18;
  const y = below + height < innerHeight ? below : at.clientY - height - 18;
  tip.style.transform = `translate(${x}px, ${y}px)`;
}

/** Hide the tooltip. */
export function hideTip() {
  tip.hidden = true;
}
