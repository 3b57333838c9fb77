// The record browser: a dialog that reads some records of a shard, on request.

import { dialog, h, keyed, say } from "./dom.js";
import { bytes, clock, count, short, shown, shownLines } from "./format.js";
import { post } from "./token.js";

const COUNTS = [10, 50, 200];
const PLACES = ["15m", "1h", "24h", "TRIM_HORIZON"];
const ENDS = {
  limit: "there may be more", tip: "no later record yet", end: "the shard ends here", budget: "not all were searched",
};
const ALL = "";
const PARALLEL = 4; // a browser opens six connections, and the states take one
const COST = "A request takes up to two reads a second, and sixteen in all, of the five reads a second "
  + "that the shard's consumers share. All shards are read four at a time.";

/** Open the record browser of a stream, with a shard chosen. */
export function browse(band, shardId) {
  const shard = h("select", { name: "shard" }, h("option", { value: ALL, selected: !shardId }, "all shards"), ...band.shards.map((known) =>
    h("option", { value: known.shard_id, selected: known.shard_id === shardId }, shown(known.shard_id))));
  const from = h("input", {
    name: "from", placeholder: "the last records", list: "record-places", autocomplete: "off", spellcheck: "false",
  });
  const places = h("datalist", { id: "record-places" }, ...PLACES.map((value) => h("option", { value })));
  const limit = h("select", { name: "limit" },
    ...COUNTS.map((number) => h("option", { value: number, selected: number === 50 }, `up to ${number}`)));
  const order = h("select", { name: "order", onchange: () => show() },
    ...["newest first", "oldest first"].map((name) => h("option", { value: name }, name)));
  const contains = h("input", { name: "contains", maxlength: "1000", autocomplete: "off", spellcheck: "false" });
  const key = h("input", { name: "key", maxlength: "256", autocomplete: "off", spellcheck: "false" });
  const coding = h("select", { name: "coding", onchange: () => show() },
    ...["hex", "base64"].map((name) => h("option", { value: name }, name)));
  const status = h("p", { class: "summary", role: "status" });
  const failed = h("p", { class: "failed", role: "alert" });
  const list = h("ol", { class: "records", tabindex: "0", "aria-label": "Records" });
  const read = h("button", { type: "submit", class: "main" }, "Read");
  const later = h("button", { type: "button", disabled: true, onclick: () => request({ isLater: true }) }, "Read later records");
  const save = h("button", { type: "button", onclick: () => request({ saves: true }) }, "Read and download");
  const form = h("form", { class: "browse" },
    h("label", {}, "Shard", shard),
    h("label", {}, "From: a time, how long ago (2h), or a position", from, places),
    h("label", {}, "Records", limit), h("label", {}, "Order", order), h("label", {}, "Data contains", contains), h("label", {}, "Partition key", key),
    h("label", {}, "Binary as", coding),
    h("div", { class: "buttons" }, save, later, read));
  const opened = dialog(`Records of ${shown(band.name)}`, form, h("p", { class: "aside" }, COST), failed, status, list,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => opened.close() }, "Close")));
  opened.classList.add("wide");

  let next = new Map(); // by shard, where later records begin
  let records = [];
  const isNewestFirst = () => order.value === "newest first";
  const show = () => keyed(list, isNewestFirst() ? [...records].reverse() : records, (record) => `${record.shard} ${record.position} ${coding.value}`,
    (record) => item(record, coding.value, shard.value === ALL), () => {});
  const request = async ({ isLater = false, saves = false } = {}) => {
    const wanted = {
      stream: band.stream_arn, limit: Number(limit.value), contains: contains.value,
      partition_key: key.value, with_data: saves,
    };
    const ids = shard.value === ALL ? band.shards.map((known) => known.shard_id) : [shard.value];
    if (!isLater) next = new Map();
    read.disabled = later.disabled = save.disabled = true;
    say(failed, "");
    const answers = await inTurn(ids, (id) => post("records",
      { ...wanted, shard: id, from: (isLater && next.get(id)) || from.value.trim() }), (done) => {
      say(status, ids.length === 1 ? "Reading …" : `Reading … ${done} of ${ids.length} shards`);
      return opened.open;
    });
    read.disabled = save.disabled = false;
    const errors = answers.filter(([, answer]) => answer.error);
    const found = answers.filter(([, answer]) => answer.records);
    const before = new Map(next);
    found.forEach(([id, answer]) => next.set(id, answer.next));
    later.disabled = !found.length && !next.size;
    say(failed, shown(errors.map(([id, { error }]) => (ids.length === 1 ? error : `Shard ${short(id)}: ${error}`)).join(" ")));
    if (!found.length) return say(status, "");
    const all = found.flatMap(([id, answer]) => answer.records.map((record) => ({ ...record, shard: id })));
    if (ids.length > 1) all.sort((one, other) => (one.arrived_at ?? 0) - (other.arrived_at ?? 0));
    // From a start on, the first records are wanted; otherwise, the last ones.
    const isFirst = isLater || from.value.trim();
    records = ids.length === 1 ? all : isFirst ? all.slice(0, wanted.limit) : all.slice(-wanted.limit);
    if (isFirst && ids.length > 1) skipTo(records, all, before, next);
    say(status, summary(found.map(([, answer]) => answer), records.length));
    show();
    list.scrollTop = 0;
    if (saves) download(records, band.name);
  };
  const forget = () => {
    next = new Map(); // the positions belong to other shards or another search
    later.disabled = true;
  };
  shard.addEventListener("change", forget);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!read.disabled) request();
  });
}

/** Request each shard, a few at a time, while ``goesOn`` says so; return pairs of shard and answer. */
async function inTurn(ids, ask, goesOn) {
  const answers = [];
  const left = [...ids];
  const work = async () => {
    while (left.length && goesOn(answers.length)) {
      const id = left.shift();
      answers.push([id, await ask(id)]);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return answers;
}

/** Let the next request begin after the records that are shown, and not after those left out. */
function skipTo(records, all, before, next) {
  const kept = new Set(records);
  for (const { shard } of all.filter((record) => !kept.has(record))) {
    const last = records.findLast((record) => record.shard === shard);
    if (last) next.set(shard, last.position);
    else if (before.has(shard)) next.set(shard, before.get(shard));
    else next.delete(shard);
  }
}

/** Save records as lines of JSON, with all of their data in base64. */
function download(records, name) {
  const lines = records.map(({ shard, position, partition_key, arrived_at, data }) =>
    `${JSON.stringify({ shard, position, partition_key, arrived_at, data })}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  h("a", { href: url, download: `${name}.jsonl` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function summary(answers, shownCount) {
  const sum = (pick) => answers.reduce((total, answer) => total + pick(answer), 0);
  const [scanned, reads] = [sum((answer) => answer.scanned), sum((answer) => answer.reads)];
  const found = `${count(shownCount)} of ${count(scanned)} records`;
  const since = answers.length === 1 ? answers[0].since : null;
  const time = since === null ? "" : ` since ${date(since)} ${clock(since)}`;
  const ends = [...new Set(answers.map((answer) => ENDS[answer.ended_by]))].join("; ");
  return `${found}${time}; ${ends} (${reads} ${reads === 1 ? "read" : "reads"})`;
}

/** Return a time, in seconds since 1970, as its local date. */
export function date(seconds) {
  return new Date(seconds * 1000).toLocaleDateString("sv");
}

/** Return a record's list item. All values are inserted as text. */
function item(record, coding, namesShard) {
  const { arrived_at: at, partition_key: key, explicit_hash_key: hash } = record;
  const size = record.shown_bytes < record.bytes
    ? `first ${bytes(record.shown_bytes)} of ${bytes(record.bytes)}` : bytes(record.bytes);
  const text = record.kind === "binary" ? binary(record.text, coding) : shownLines(record.text);
  return h("li", {},
    h("p", { class: "head" },
      at === null ? null : h("time", { datetime: new Date(at * 1000).toISOString() }, `${date(at)} ${clock(at)}`),
      namesShard ? h("span", {}, `shard ${short(record.shard)}`) : null,
      h("span", {}, "key ", h("b", {}, key === null ? "–" : shown(key))),
      hash === null ? null : h("span", {}, `hash key ${shown(hash)}`),
      h("span", {}, `${record.kind === "json" ? "JSON" : record.kind}, ${size}`),
      h("span", { class: "code" }, record.position)),
    h("pre", {}, text));
}

/** Return data in base64 unchanged, or as lines of hexadecimal digits with the ASCII characters. */
export function binary(base64, coding) {
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
