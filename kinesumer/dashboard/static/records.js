// The record browser: a dialog that reads some records of a shard, on request.

import { dialog, h, keyed, say } from "./dom.js";
import { bytes, clock, count, short, shown, shownLines } from "./format.js";
import { post } from "./token.js";

const COUNTS = [10, 50, 200];
const PLACES = ["15m", "1h", "24h", "TRIM_HORIZON"];
const ENDS = {
  limit: "there may be more", tip: "no later record yet", end: "the shard ends here", budget: "not all were searched",
};
const COST = "A request takes up to two reads a second, and sixteen in all, of the five reads a second "
  + "that the shard's consumers share.";

/** Open the record browser of a stream, with a shard chosen. */
export function browse(band, shardId) {
  const shard = h("select", { name: "shard" }, ...band.shards.map((known) =>
    h("option", { value: known.shard_id, selected: known.shard_id === shardId }, shown(known.shard_id))));
  const from = h("input", {
    name: "from", placeholder: "the last records", list: "record-places", autocomplete: "off", spellcheck: "false",
  });
  const places = h("datalist", { id: "record-places" }, ...PLACES.map((value) => h("option", { value })));
  const limit = h("select", { name: "limit" },
    ...COUNTS.map((number) => h("option", { value: number, selected: number === 50 }, `up to ${number}`)));
  const contains = h("input", { name: "contains", maxlength: "1000", autocomplete: "off", spellcheck: "false" });
  const key = h("input", { name: "key", maxlength: "256", autocomplete: "off", spellcheck: "false" });
  const coding = h("select", { name: "coding", onchange: () => show() },
    ...["hex", "base64"].map((name) => h("option", { value: name }, name)));
  const status = h("p", { class: "summary", role: "status" });
  const failed = h("p", { class: "failed", role: "alert" });
  const list = h("ol", { class: "records", tabindex: "0", "aria-label": "Records" });
  const read = h("button", { type: "submit", class: "main" }, "Read");
  const later = h("button", { type: "button", disabled: true, onclick: () => request({ from: next }) }, "Read later records");
  const form = h("form", { class: "browse" },
    h("label", {}, "Shard", shard),
    h("label", {}, "From: a time, how long ago (2h), or a position", from, places),
    h("label", {}, "Records", limit), h("label", {}, "Data contains", contains), h("label", {}, "Partition key", key),
    h("label", {}, "Binary as", coding),
    h("div", { class: "buttons" }, later, read));
  const opened = dialog(`Records of ${shown(band.name)}`, form, h("p", { class: "aside" }, COST), failed, status, list,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => opened.close() }, "Close")));
  opened.classList.add("wide");

  let next = null;
  let records = [];
  const show = () => keyed(list, records, (record) => `${record.position} ${coding.value}`,
    (record) => item(record, coding.value), () => {});
  const request = async (more) => {
    const wanted = {
      stream: band.stream_arn, shard: shard.value, from: from.value.trim(), limit: Number(limit.value),
      contains: contains.value, partition_key: key.value, ...more,
    };
    read.disabled = later.disabled = true;
    say(failed, "");
    say(status, "Reading …");
    const answer = await post("records", wanted);
    read.disabled = false;
    later.disabled = !(answer.next ?? next);
    say(failed, shown(answer.error ?? ""));
    say(status, answer.records ? summary(answer) : "");
    if (!answer.records) return;
    ({ next, records } = answer);
    show();
    list.scrollTop = 0;
  };
  const forget = () => {
    next = null; // it is a position in another shard
    later.disabled = true;
  };
  shard.addEventListener("change", forget);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!read.disabled) request();
  });
}

function summary({ records, scanned, reads, since, ended_by: end }) {
  const found = `${count(records.length)} of ${count(scanned)} records`;
  const time = since === null ? "" : ` since ${date(since)} ${clock(since)}`;
  return `${found}${time}; ${ENDS[end]} (${reads} ${reads === 1 ? "read" : "reads"})`;
}

function date(seconds) {
  return new Date(seconds * 1000).toLocaleDateString("sv");
}

/** Return a record's list item. All values are inserted as text. */
function item(record, coding) {
  const { arrived_at: at, partition_key: key, explicit_hash_key: hash } = record;
  const size = record.shown_bytes < record.bytes
    ? `first ${bytes(record.shown_bytes)} of ${bytes(record.bytes)}` : bytes(record.bytes);
  const text = record.kind === "binary" ? binary(record.text, coding) : shownLines(record.text);
  return h("li", {},
    h("p", { class: "head" },
      at === null ? null : h("time", { datetime: new Date(at * 1000).toISOString() }, `${date(at)} ${clock(at)}`),
      h("span", {}, "key ", h("b", {}, key === null ? "–" : shown(key))),
      hash === null ? null : h("span", {}, `hash key ${shown(hash)}`),
      h("span", {}, `${record.kind === "json" ? "JSON" : record.kind}, ${size}`),
      h("span", { class: "code" }, record.position)),
    h("pre", {}, text));
}

/** Return data in base64 unchanged, or as lines of hexadecimal digits with the ASCII characters. */
function binary(base64, coding) {
  if (coding === "base64") return base64;
  const data = atob(base64);
  const lines = [];
  for (let place = 0; place < data.length; place += 16) {
    const part = data.slice(place, place + 16);
    const digits = [...part].map((character) => character.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    lines.push(`${place.toString(16).padStart(4, "0")}  ${digits.padEnd(47)}  ${part.replace(/[^ -~]/g, ".")}`);
  }
  return lines.join("\n");
}
