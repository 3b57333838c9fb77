// One stream's hash space on a canvas: ranges, lag, shards, and how they change.

import { calm } from "./dom.js";
import { lagMillis, short, shown } from "./format.js";
import * as place from "./geometry.js";
import { colours, filling, hatch, hue, moving, onTheme } from "./palette.js";
import { drawIndex, drawName } from "./ranges.js";

const MOVE_MILLIS = 900;
const GLOW_MILLIS = 2200;
const GRID = [[1000, "1 s"], [60_000, "1 min"], [3_600_000, "1 h"]];

const eased = (t) => (t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2);
const between = (from, to, t) => from + (to - from) * t;

/** Draws a band, and animates its changes. */
export class Band {
  constructor(canvas, view) {
    this.canvas = canvas;
    this.view = view;
    this.context = canvas.getContext("2d");
    this.zoom = 1;
    this.band = null;
    this.members = new Map();
    this.shards = new Map();
    this.parts = new Map();
    this.frame = null;
    this.lit = null;
    this.chosen = null;
    view.addEventListener("scroll", () => this.redraw(), { passive: true });
    new ResizeObserver(() => this.redraw()).observe(view);
    onTheme(() => this.redraw());
  }

  /** Adopt a newer state, and animate the differences. */
  update(band, members) {
    const now = performance.now();
    const first = this.band === null || calm.matches || document.hidden;
    this.shards = this.follow(this.shards, band.shards, (shard) => shard.shard_id, now, first);
    this.parts = this.follow(this.parts, band.parts, (part, i) => `${part.client_id} ${i}`, now, first, true);
    this.band = band;
    this.members = members;
    this.redraw();
  }

  follow(known, items, keyOf, now, first, grouped = false) {
    const next = new Map();
    const counts = new Map();
    for (const item of items) {
      const nth = counts.get(item.client_id) ?? 0;
      counts.set(item.client_id, nth + 1);
      const key = keyOf(item, grouped ? nth : 0);
      const goal = { x: item.x, width: item.width, lag: place.lagHeight(lagMillis(item)), lane: item.lane ?? 0 };
      const old = known.get(key);
      const from = old && !first ? this.at(old, now) : { ...goal, lag: old || first ? goal.lag : 0 };
      const entry = { item, from, goal, since: now, changed: old?.changed ?? -Infinity, previous: old?.previous };
      if (old && !first && look(old.item) !== look(item)) {
        entry.changed = now;
        entry.previous = old.item;
      } else if (!old && !first) {
        entry.changed = now;
        entry.previous = null;
      }
      next.set(key, entry);
    }
    return next;
  }

  at(entry, now) {
    const t = calm.matches ? 1 : eased(Math.min(1, (now - entry.since) / MOVE_MILLIS));
    const value = {};
    for (const name of Object.keys(entry.goal)) value[name] = between(entry.from[name], entry.goal[name], t);
    return value;
  }

  redraw() {
    this.frame ??= requestAnimationFrame((now) => {
      this.frame = null;
      if (this.band !== null && this.draw(now)) this.redraw();
    });
  }

  /** Draw one frame; return whether another one is needed. */
  draw(now) {
    const width = this.view.clientWidth - 8;
    const height = place.height(this.band.lanes);
    this.scale(width, height);
    this.window = { left: this.view.scrollLeft, width, full: width * this.zoom };
    const context = this.context;
    context.clearRect(0, 0, width, height);
    context.font = `12px ${colours().sans}`;
    context.textBaseline = "middle";
    this.drawRanges(now);
    this.drawGrid();
    const seen = [];
    for (const entry of this.shards.values()) {
      const at = this.at(entry, now);
      const box = this.box(at);
      if (box.right > -2 && box.x < width + 2) seen.push([entry, at, box]);
    }
    for (const [entry, at, box] of seen) this.drawDescent(entry, at, box);
    for (const [entry, at, box] of seen) this.drawShard(entry, at, box, now);
    this.drawScale();
    this.drawAxis(height);
    return this.isMoving(now);
  }

  isMoving(now) {
    if (calm.matches) return false;
    const entries = [...this.shards.values(), ...this.parts.values()];
    return entries.some((entry) => {
      const moves = Object.keys(entry.goal).some((name) => entry.from[name] !== entry.goal[name]);
      return (moves && now - entry.since < MOVE_MILLIS) || now - entry.changed < GLOW_MILLIS || entry.item.state === "moving";
    });
  }

  scale(width, height) {
    const ratio = devicePixelRatio || 1;
    this.ratio = ratio;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Return an item's box, aligned to device pixels. */
  box(at) {
    const { left, full } = this.window;
    const snap = (value) => Math.round(value * this.ratio) / this.ratio;
    const x = snap(at.x * full - left);
    const right = snap((at.x + at.width) * full - left);
    return { x, right, width: right - x };
  }

  slot(clientId) {
    return this.members.get(clientId)?.slot ?? 0;
  }

  /** Return the range at a position in the window, if the position is on its name or bracket. */
  rangeAt({ clientX, clientY }) {
    if (!this.window) return null;
    const { left, top } = this.canvas.getBoundingClientRect();
    if (clientY < top || clientY >= top + place.RANGES) return null;
    const x = (clientX - left + this.window.left) / this.window.full;
    return this.band.parts.find((part) => x >= part.x && x < part.x + part.width) ?? null;
  }

  dims(clientId) {
    return this.lit !== null && this.lit !== clientId;
  }

  drawRanges(now) {
    const context = this.context;
    const base = place.RANGES + place.LAG + place.BAND;
    let end = -Infinity; // of the last number
    for (const entry of this.parts.values()) {
      const box = this.box(this.at(entry, now));
      const slot = this.slot(entry.item.client_id);
      context.globalAlpha = this.dims(entry.item.client_id) ? 0.02 : 0.07;
      context.fillStyle = hue(slot);
      context.fillRect(box.x, place.RANGES, box.width, base - place.RANGES);
      context.globalAlpha = this.dims(entry.item.client_id) ? 0.25 : 1;
      context.fillRect(box.x + (box.width > 4 ? 1 : 0), place.RANGES - 4, Math.max(box.width - (box.width > 4 ? 2 : 0), 0.75), 3);
      if (!drawName(context, shown(entry.item.client_id), box, this.window.width)) {
        end = drawIndex(context, this.members.get(entry.item.client_id)?.index, box, this.window.width, end);
      }
      context.globalAlpha = 1;
    }
  }

  drawGrid() {
    const context = this.context;
    const ground = place.RANGES + place.LAG;
    for (const [millis] of GRID) {
      const y = Math.round(ground - place.lagHeight(millis)) + 0.5;
      context.strokeStyle = colours().line;
      context.lineWidth = 1;
      context.setLineDash([2, 4]);
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(this.window.width, y);
      context.stroke();
      context.setLineDash([]);
    }
  }

  /** Label the grid lines, above the bars. */
  drawScale() {
    const context = this.context;
    const ground = place.RANGES + place.LAG;
    context.font = `11px ${colours().sans}`;
    context.textAlign = "right";
    for (const [millis, label] of GRID) {
      const y = Math.round(ground - place.lagHeight(millis)) - 6.5;
      const wide = context.measureText(label).width;
      context.globalAlpha = 0.75;
      context.fillStyle = colours().card;
      context.fillRect(this.window.width - wide - 6, y - 6, wide + 6, 12);
      context.globalAlpha = 1;
      context.fillStyle = colours().soft;
      context.fillText(label, this.window.width - 3, y);
    }
    context.font = `12px ${colours().sans}`;
  }

  /** Shade the area from a parent down to a waiting child. */
  drawDescent(entry, at, box) {
    if (!entry.item.lane) return;
    const context = this.context;
    const [from, to] = [place.top(entry.item.lane) - place.GAP, this.y(at)];
    context.globalAlpha = 0.3;
    context.fillStyle = colours().soft;
    context.fillRect(box.x + 1, from, Math.max(box.width - 2, 1), Math.max(0, to - from));
    context.globalAlpha = 1;
  }

  y(at) {
    const lower = Math.floor(at.lane);
    return between(place.top(lower), place.top(lower + 1), at.lane - lower);
  }

  drawShard(entry, at, box, now) {
    const { item } = entry;
    const context = this.context;
    const y = this.y(at);
    const high = between(place.BAND, place.LANE, Math.min(at.lane, 1));
    const gap = box.width > 5 ? 1 : box.width > 3 ? 0.5 : 0;
    const inner = { x: box.x + gap / 2, width: Math.max(box.width - gap, item.lane ? 2 : 0.5) };
    context.globalAlpha = this.dims(item.owner) ? 0.18 : 1;
    if (at.lag > 0.5 && at.lane < 1) this.drawLag(item, inner, at.lag, y);
    this.fill(item, inner, y, high, now);
    this.drawChange(entry, inner, y, high, now);
    if (box.width > 26) this.drawNumber(item, inner, y, high);
    if (item.paused && box.width > 12) this.drawPause(inner, y, high, box.width > 26);
    if (this.chosen === item.shard_id) {
      context.strokeStyle = colours().ink;
      context.lineWidth = 2;
      context.strokeRect(inner.x - 1, y - 1, inner.width + 2, high + 2);
    }
    context.globalAlpha = 1;
  }

  drawLag(item, box, lag, y) {
    const context = this.context;
    const colour = item.owner ? hue(this.slot(item.owner)) : colours().soft;
    const alpha = context.globalAlpha;
    context.fillStyle = colour;
    context.globalAlpha = alpha * 0.45;
    context.fillRect(box.x, y - lag, box.width, lag - 1);
    context.globalAlpha = alpha;
    context.fillRect(box.x, y - lag, box.width, 2);
  }

  fill(item, box, y, high, now) {
    const context = this.context;
    context.fillStyle = this.style(item);
    if (item.state === "waiting" || item.state === "ended") {
      const alpha = context.globalAlpha;
      context.globalAlpha = alpha * (item.state === "ended" ? 0.5 : 0.3);
      context.fillRect(box.x, y, box.width, high);
      context.globalAlpha = alpha;
      if (box.width > 4) {
        context.strokeStyle = item.state === "ended" ? colours().soft : context.fillStyle;
        context.lineWidth = 1;
        context.strokeRect(box.x + 0.5, y + 0.5, box.width - 1, high - 1);
      }
      return;
    }
    context.fillRect(box.x, y, box.width, high);
    if (item.state === "moving" && item.planned_owner) {
      const stripes = moving(context, this.slot(item.planned_owner));
      context.save();
      context.beginPath();
      context.rect(box.x, y, box.width, high);
      context.clip();
      const shift = calm.matches ? 0 : (now / 60) % 8;
      context.translate(shift, 0);
      context.fillStyle = stripes;
      context.fillRect(box.x - 8, y, box.width + 16, high);
      context.restore();
    }
  }

  /** Return a shard's fill style. */
  style(item) {
    const context = this.context;
    if (item.paused && !item.owner) return colours().line;
    if (item.state === "ended") return colours().line;
    if (item.state === "waiting") return item.planned_owner ? hue(this.slot(item.planned_owner)) : colours().soft;
    if (item.state === "unowned") return hatch(context, "warn");
    if (item.state === "orphaned") return hatch(context, "bad");
    return filling(context, this.slot(item.owner));
  }

  /** Wipe the old fill, then highlight the edge for a moment. */
  drawChange(entry, box, y, high, now) {
    const age = now - entry.changed;
    if (calm.matches || age > GLOW_MILLIS) return;
    const context = this.context;
    const t = eased(Math.min(1, age / MOVE_MILLIS));
    if (entry.previous && t < 1) {
      context.save();
      context.beginPath();
      context.rect(box.x, y, box.width, high * (1 - t));
      context.clip();
      this.fill(entry.previous, box, y, high, now);
      context.restore();
    }
    const alpha = context.globalAlpha;
    context.globalAlpha = alpha * (1 - age / GLOW_MILLIS);
    context.fillStyle = colours().ink;
    context.fillRect(box.x, y + high + 2, box.width, 3);
    context.globalAlpha = alpha;
  }

  drawNumber(item, box, y, high) {
    const context = this.context;
    const text = short(item.shard_id);
    const wide = context.measureText(text).width;
    if (wide + 10 > box.width) return;
    const solid = !["waiting", "ended", "unowned", "orphaned"].includes(item.state) && item.owner;
    const middle = box.x + box.width / 2 - (item.paused ? 7 : 0);
    context.fillStyle = solid ? hue(this.slot(item.owner)) : colours().card;
    context.beginPath();
    context.roundRect(middle - wide / 2 - 4, y + high / 2 - 9, wide + 8, 18, 4);
    if (item.state !== "waiting" && item.state !== "ended" && !(item.paused && !item.owner)) context.fill();
    context.fillStyle = solid ? colours()["on-hue"] : colours().ink;
    context.textAlign = "center";
    context.fillText(text, middle, y + high / 2 + 0.5);
  }

  drawPause(box, y, high, aside) {
    const context = this.context;
    const middle = box.x + box.width / 2 + (aside ? 10 : 0);
    context.fillStyle = colours().ink;
    context.fillRect(middle - 4, y + high / 2 - 5, 3, 10);
    context.fillRect(middle + 1, y + high / 2 - 5, 3, 10);
  }

  drawAxis(height) {
    const context = this.context;
    const { left, width, full } = this.window;
    const steps = 4 * this.zoom;
    context.fillStyle = colours().soft;
    context.strokeStyle = colours().line;
    for (let i = 0; i <= steps; i++) {
      const x = (full * i) / steps - left;
      if (x < -1 || x > width + 1) continue;
      context.beginPath();
      context.moveTo(Math.min(Math.max(x, 0.5), width - 0.5), height - place.AXIS + 2);
      context.lineTo(Math.min(Math.max(x, 0.5), width - 0.5), height - place.AXIS + 6);
      context.stroke();
      context.textAlign = x < 20 ? "left" : x > width - 20 ? "right" : "center";
      const label = `${Number(((100 * i) / steps).toFixed(2))} %`;
      context.fillText(i === steps && width > 600 ? `${label} of the hash keys` : label, x, height - 8);
    }
  }
}

/** Return the properties of a shard or range whose changes are animated. */
function look(item) {
  return `${item.owner} ${item.paused} ${item.state === "moving" ? "owned" : item.state} ${item.lane}`;
}
