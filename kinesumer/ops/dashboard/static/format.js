// Formats of numbers, times and names.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Return milliseconds as "0.4 s", "12 s" or "3 h 20 min"; null is unknown. */
export function duration(millis) {
  if (millis === null || millis === undefined) return "unknown";
  if (millis < 100) return "0 s";
  if (millis < 10_000) return `${(millis / 1000).toFixed(1)} s`;
  let seconds = Math.round(millis / 1000);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count || parts.length) parts.push(count ? `${count} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** Return the lag of a shard, stream, client or fleet: "12 s behind", "caught up" or "lag unknown". */
export function behind(item) {
  if (item.caught_up) return "caught up";
  return item.millis_behind_latest === null ? "lag unknown" : `${duration(item.millis_behind_latest)} behind`;
}

/** Return the milliseconds by which an item is behind: 0 if it is caught up, null if unknown. */
export function lagMillis(item) {
  return item.caught_up ? 0 : item.millis_behind_latest;
}

/** Return a number of bytes as "640 B", "1.5 KiB" or "2 MiB". */
export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const [unit, value] = size < 1024 ** 2 ? ["KiB", size / 1024] : ["MiB", size / 1024 ** 2];
  return `${value.toFixed(value < 10 ? 1 : 0).replace(/\.0$/, "")} ${unit}`;
}

/** Return a number for people: 1,240 or 1.2 million. */
export function count(value) {
  if (value === null || value === undefined) return "unknown";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} million`;
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** Return a rate with at most three digits: 0.02, 41.5 or 1,240. */
export function rate(value) {
  if (value === null || value === undefined) return "unknown";
  return value >= 1e6 ? count(value) : value.toLocaleString("en", value >= 100
    ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: value < 0.01 ? 1 : 3 });
}

/** Return a load as "41.5 records/s, 19.1 KiB/s, 0.21 handler s/s". */
export function loadText(load) {
  return [
    `${rate(load.records_per_second)} records/s`,
    `${bytes(Math.round(load.bytes_per_second))}/s`,
    `${rate(load.handler_seconds_per_second)} handler s/s`,
  ].join(", ");
}

/** Return a share as "6.25 %". */
export function percent(part) {
  const value = part * 100;
  return `${value.toFixed(value < 10 ? 2 : 1).replace(/\.?0+$/, "")} %`;
}

/** Return a shard's number: 12 for shardId-000000000012. */
export function short(shardId) {
  const number = shardId.slice(shardId.lastIndexOf("-") + 1);
  return /^\d+$/.test(number) ? number.replace(/^0+(?=\d)/, "") : shown(shardId);
}

/** Return text with invisible characters escaped. */
export function shown(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) =>
    `\\u{${character.codePointAt(0).toString(16)}}`);
}

/** Return text of several lines with other invisible characters escaped. */
export function shownLines(text) {
  return text.split(/\r?\n/).map((line) => line.split("\t").map(shown).join("\t")).join("\n");
}

/** Return a time, in seconds since 1970, as local time of day. */
export function clock(seconds, withSeconds = true) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined,
  });
}
