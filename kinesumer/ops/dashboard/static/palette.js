// The colours of clients and streams in both themes: eight hues each, by four patterns.

import { svg } from "./dom.js";

const HUES = 8;
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;

dark.addEventListener("change", () => { theme = null; });

/** Return the theme's colours, read from the style sheet. */
export function colours() {
  if (theme !== null) return theme;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  theme = { patterns: new Map(), hues: [] };
  for (const name of ["page", "card", "ink", "soft", "line", "faint", "warn", "bad", "on-hue", "accent", "sans"]) {
    theme[name] = read(name);
  }
  for (let hue = 0; hue < HUES; hue++) theme.hues.push(read(`hue-${hue}`));
  return theme;
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** Style a line of SVG with a stream's slot: streams have other colours than clients. */
export function strokeLine(element, slot) {
  element.style.stroke = `var(--stream-${slot % HUES})`;
  element.style.strokeDasharray = DASHES[Math.floor(slot / HUES) % DASHES.length];
}

/** Return a short line with a stream's colour and dashes. */
export function streamKey(slot) {
  const line = svg("line", { x1: 0, x2: 22, y1: 2, y2: 2, "stroke-width": 3 });
  strokeLine(line, slot);
  return svg("svg", { class: "key", "aria-hidden": "true", viewBox: "0 0 22 4", width: 22, height: 4 }, line);
}

/** Register a callback for changes of the theme. */
export function onTheme(callback) {
  dark.addEventListener("change", callback);
}

/** Return the plain colour of a slot. */
export function hue(slot) {
  return colours().hues[slot % HUES];
}

/** Return a slot's fill style: its hue and pattern. */
export function filling(context, slot) {
  return cached(context, `slot ${slot}`, (tile) => {
    tile.fillStyle = hue(slot);
    tile.fillRect(0, 0, 8, 8);
    tile.globalAlpha = 0.34;
    tile.strokeStyle = tile.fillStyle = colours().card;
    // None is like the slanted stripes of shards that move or have no owner.
    [() => {}, dots, lines, checks][Math.floor(slot / HUES) % 4](tile);
  });
}

/** Return the hatch of shards without a living owner: amber for unowned, red for orphaned. */
export function hatch(context, tone) {
  return cached(context, `hatch ${tone}`, (tile) => {
    tile.fillStyle = colours().card;
    tile.fillRect(0, 0, 8, 8);
    tile.strokeStyle = colours()[tone];
    stripes(tile);
  });
}

/** Return a transparent tile with a slot's stripes, for a shard that moves to it. */
export function moving(context, slot) {
  return cached(context, `moving ${slot}`, (tile) => {
    tile.strokeStyle = hue(slot);
    stripes(tile, 4);
  });
}

function cached(context, key, paint) {
  const { patterns } = colours();
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 16;
    const brush = tile.getContext("2d");
    brush.scale(2, 2);
    paint(brush);
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix([0.5, 0, 0, 0.5, 0, 0]));
    patterns.set(key, pattern);
  }
  return patterns.get(key);
}

function stripes(tile, width = 2) {
  tile.lineWidth = width;
  tile.beginPath();
  for (const start of [-8, 0, 8]) {
    tile.moveTo(start - 2, 10);
    tile.lineTo(start + 10, -2);
  }
  tile.stroke();
}

function dots(tile) {
  for (const [x, y] of [[2, 2], [6, 6]]) {
    tile.beginPath();
    tile.arc(x, y, 1.3, 0, 7);
    tile.fill();
  }
}

function lines(tile) {
  tile.fillRect(0, 1, 8, 1.5);
  tile.fillRect(0, 5, 8, 1.5);
}

function checks(tile) {
  tile.fillRect(0, 0, 4, 4);
  tile.fillRect(4, 4, 4, 4);
}

/** Return a small square with a slot's fill style, which follows the theme. */
export function swatch(slot) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  paintSwatch(canvas, (context) => filling(context, slot));
  return canvas;
}

/** Paint a small canvas now and whenever the theme changes. */
export function paintSwatch(canvas, fill) {
  canvas.width = 44;
  canvas.height = 44;
  canvas.dataset.painted = "";
  canvas.paint = () => {
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, 22, 22);
    context.fillStyle = fill(context);
    context.fillRect(0, 0, 22, 22);
  };
  canvas.paint();
}

onTheme(() => {
  for (const canvas of document.querySelectorAll("canvas[data-painted]")) canvas.paint();
});
