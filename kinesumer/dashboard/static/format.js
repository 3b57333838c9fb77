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

/** Return a number for people: 1,240 or 1.2 million. */
export function count(value) {
  if (value === null || value === undefined) return "unknown";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} million`;
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
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

/** Return a time, in seconds since 1970, as local time of day. */
export function clock(seconds, withSeconds = true) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined,
  });
}
