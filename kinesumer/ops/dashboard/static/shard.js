// Descriptions of shards in words, for screen readers and for details.

import { actions } from "./control.js";
import { dialog, h } from "./dom.js";
import { behind, duration, loadText, percent, short, shown } from "./format.js";
import { browse } from "./records.js";
import { mayBrowse } from "./token.js";

/** The tone of each state. */
export const TONES = {
  owned: "good", foreign: "good", moving: "warn", unowned: "bad", orphaned: "bad", waiting: null, ended: null, paused: null,
};

/** Return a shard in one sentence. */
export function describe(shard) {
  const parts = [`Shard ${short(shard.shard_id)}`, standing(shard)];
  if (shard.state !== "ended") parts.push(behind(shard));
  parts.push(`${percent(shard.width)} of the hash keys`);
  if (shard.hot) parts.push("hot");
  return parts.join(", ");
}

/** Return which client reads a shard, or why none does. */
export function standing(shard) {
  const owner = shard.owner === null ? "" : shown(shard.owner);
  const planned = shard.planned_owner === null ? "no client" : shown(shard.planned_owner);
  const said = {
    owned: `owned by ${owner}`,
    foreign: `owned by KCL worker ${owner}`,
    moving: `moving from ${owner} to ${planned}`,
    unowned: shard.planned_owner === null ? "unassigned" : `unassigned, planned for ${planned}`,
    orphaned: `orphaned: its owner ${owner} is dead`,
    waiting: `waiting for ${shard.parents.length > 1 ? "its parents" : "its parent"} ${shard.parents.map(short).join(" and ")}`,
    ended: "read to its end",
  }[shard.state];
  if (shard.poison && !shard.paused) return `${said}, stopped at a record that kills its readers`;
  if (shard.isolated && !shard.paused) return `${said}, in isolation: its owners died repeatedly`;
  return shard.paused ? `${shard.owner === null ? "" : `${said}, `}paused` : said;
}

/** Return the name of a state of shards. */
export function stateName(state) {
  return state === "unowned" ? "unassigned" : state;
}

/** Open a dialog with a shard's details and the possible changes. */
export function showShard(state, band, shard) {
  const isPoint = shard.first_hash === shard.last_hash; // of the stream of a table
  const facts = {
    State: standing(shard),
    Lag: shard.state === "ended" ? "–" : behind(shard),
    "Stored position": shard.caught_up && shard.millis_behind_latest ? `trails by ${duration(shard.millis_behind_latest)}` : null,
    Load: shard.load && loadText(shard.load),
    Hot: shard.hot ? "it alone has more work than a client's share" : null,
    "Paused by": shard.paused ? paused(shard) : null,
    "Record that kills": shard.poison,
    "Planned for": shard.planned_owner,
    Epoch: String(shard.epoch),
    Position: shard.sequence_number,
    Parents: shard.parents.map(shown).join(", ") || null,
    "Hash keys": isPoint ? null : `${shard.first_hash} – ${shard.last_hash}`,
    Share: isPoint ? percent(shard.share) : `${percent(shard.width)} from ${percent(shard.x)} on`,
    Stream: band.stream_arn,
  };
  const list = h("dl", { class: "facts" });
  for (const [name, value] of Object.entries(facts)) {
    if (value === null) continue;
    list.append(h("dt", {}, name), h("dd", { class: /keys|Position/.test(name) ? "code" : null }, shown(value)));
  }
  const buttons = h("div", { class: "buttons" });
  const opened = dialog(shown(shard.shard_id), list, buttons);
  const changes = h("div", { class: "actions" });
  const one = { stream: band.stream_arn, shard: shard.shard_id };
  const wanted = [["Seek", { do: "seek", ...one }]];
  if (shard.paused === "shard") wanted.push(["Resume", { do: "resume", ...one }]);
  else if (!shard.paused) wanted.push(["Pause", { do: "pause", ...one }]);
  actions(changes, state, shard.state === "ended" ? [] : wanted, `shard ${short(shard.shard_id)}`);
  if (mayBrowse(state)) {
    changes.append(h("button", { type: "button", "aria-label": `Records of shard ${short(shard.shard_id)}`,
      onclick: () => { opened.close(); browse(band, shard.shard_id); } }, "Records"));
  }
  buttons.append(changes, h("a", { href: shardLink(band, shard) }, "Link to this shard"), h("button", { type: "button", onclick: () => opened.close() }, "Close"));
}

/** Return the address of a shard's details on this page. */
function shardLink(band, shard) {
  return `#${new URLSearchParams({ stream: band.stream_arn, shard: shard.shard_id })}`;
}

function paused(shard) {
  const what = { all: "a pause of everything", stream: "a pause of its stream", shard: "a pause of this shard" }[shard.paused];
  return shard.pause_reason ? `${what}: ${shard.pause_reason}` : what;
}
