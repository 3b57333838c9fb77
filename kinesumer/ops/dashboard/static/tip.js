// The tooltip of what is under the pointer or has the focus.

import { h } from "./dom.js";
import { behind, count, loadText, percent, short, shown } from "./format.js";
import { standing } from "./shard.js";

const tip = document.getElementById("tip");

/** Show a shard's description at a position in the window. */
export function showShardTip(shard, at) {
  const lag = shard.state === "ended" ? "" : ` · ${behind(shard)}`;
  show(at, h("b", {}, `Shard ${short(shard.shard_id)}`), `${lag} · ${percent(shard.width)} of the hash keys`,
    h("br"), standing(shard), ...(shard.load ? [h("br"), loadText(shard.load), shard.hot ? ", hot" : ""] : []));
}

/** Show which client a range is planned for. */
export function showRangeTip(part, member, at) {
  const facts = [`${percent(part.width)} of the hash keys`];
  if (member) {
    facts.unshift(`${count(member.shards)} ${member.shards === 1 ? "shard" : "shards"}`);
    if (member.shards) facts.unshift(behind(member));
    if (member.load_share !== null) facts.push(`${percent(member.load_share)} of its share of the work`);
  }
  const number = member?.index === null || member === undefined ? "" : `${member.index} · `;
  show(at, number, h("b", {}, shown(part.client_id)), h("br"), facts.join(" · "));
}

function show(at, ...content) {
  tip.replaceChildren(...content);
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
