// Charts of the last hour, each with a table of the same values.

import { h, keyed, say, svg } from "./dom.js";
import { clock, count, duration, lagMillis, shown } from "./format.js";
import { streamKey, strokeLine } from "./palette.js";

const SPANS = [[5, 1], [15, 5], [30, 10], [60, 15]]; // minutes, and the minutes between two marks
const [WIDE, HIGH, LEFT, BOTTOM, TOP] = [600, 176, 56, 22, 8];

/** A chart with one line per stream. */
export class Chart {
  constructor(title, { pick, now, text, scale }) {
    this.scale = scale;
    this.pick = pick;
    this.now = now;
    this.value = text;
    const id = `chart-${crypto.randomUUID()}`;
    this.aside = h("p", { class: "aside" });
    this.drawing = svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    this.body = h("tbody");
    this.table = h("table", {},
      h("thead", {}, h("tr", {}, ...["Stream", "Now", "Highest", "At"].map(
        (text, i) => h("th", { scope: "col", class: i ? "number" : null }, text)))), this.body);
    this.element = h("section", { class: "card chart", "aria-labelledby": id },
      h("div", { class: "heading" }, h("h2", { id }, title), this.aside),
      this.drawing, this.table);
    new ResizeObserver(() => this.state && this.draw()).observe(this.drawing);
  }

  update(state) {
    this.state = state;
    this.draw();
    const lines = this.pick(state.history);
    keyed(this.body, lines, (line) => `${line.stream_arn} ${line.slot}`, (line) => this.row(line), (row, line) => this.fill(row, line));
    this.table.hidden = !lines.length;
  }

  row(line) {
    return h("tr", {}, h("th", { scope: "row" }, streamKey(line.slot), h("span", { class: "long" })),
      ...Array.from({ length: 3 }, () => h("td", { class: "number" })));
  }

  fill(row, line) {
    const [name, now, highest, at] = row.children;
    say(name.lastChild, shown(line.name));
    const known = line.values.filter((value) => value !== null);
    const top = known.length ? Math.max(...known) : null;
    const band = this.state.streams.find((known) => known.stream_arn === line.stream_arn);
    say(now, this.value(band ? this.now(band) : null));
    say(highest, this.value(top));
    say(at, top === null ? "–" : clock(this.state.history.times[line.values.indexOf(top)], false));
  }

  draw() {
    const wide = this.drawing.clientWidth || WIDE;
    this.drawing.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    const { history, at } = this.state;
    const lines = this.pick(history);
    const top = nice(Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))), this.pick === LAG.pick);
    const [minutes, step] = span(history, at);
    say(this.aside, `last ${minutes === 60 ? "hour" : `${minutes} minutes`}`);
    const x = (time) => LEFT + (wide - LEFT - 4) * (1 - (at - time) / (minutes * 60));
    const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (1 - value / top);
    const parts = [0, 0.5, 1].flatMap((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: wide, y1: Math.round(y(part * top)), y2: Math.round(y(part * top)) }),
      svg("text", { x: LEFT - 8, y: y(part * top) + 4, "text-anchor": "end" }, this.scale(part * top)),
    ]);
    for (let ago = 0; ago <= minutes; ago += wide < 420 ? minutes : step) {
      const anchor = ago === minutes ? "start" : ago ? "middle" : "end";
      parts.push(svg("text", { x: x(at - ago * 60), y: HIGH - 4, "text-anchor": anchor }, ago ? `−${ago} min` : "now"));
    }
    for (const line of lines) {
      for (const points of pieces(line.values, history.times)) {
        const path = points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
        if (path.length === 1) path.push(path[0]);
        const drawn = svg("polyline", { points: path.join(" ") });
        strokeLine(drawn, line.slot);
        parts.push(drawn);
        const [[time, value]] = points.slice(-1);
        const dot = svg("circle", { cx: x(time), cy: y(value), r: 3 });
        dot.style.fill = drawn.style.stroke;
        parts.push(dot);
      }
    }
    this.drawing.replaceChildren(...parts);
  }
}

export const LAG = {
  pick: (history) => history.millis_behind, now: lagMillis, text: (millis) => (millis === 0 ? "caught up" : duration(millis)),
  scale: duration,
};
export const RATE = {
  pick: (history) => history.records_per_second, now: (band) => band.records_per_second, text: count, scale: count,
};

const GAP_SECONDS = 60;

/** Return the parts of a line, split where values are missing. */
function pieces(values, times) {
  const found = [];
  let last = -Infinity;
  values.forEach((value, i) => {
    if (value === null) return;
    if (times[i] - last > GAP_SECONDS) found.push([]);
    last = times[i];
    found.at(-1).push([times[i], value]);
  });
  return found;
}

/** Return a round number at or above a value; for times, round seconds or minutes. */
function nice(value, isTime) {
  const steps = isTime ? [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400].map((s) => s * 1000) : [];
  const found = steps.find((step) => step >= value);
  if (found) return found;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** Return the shortest span that holds all of the history. */
function span(history, at) {
  const age = at - (history.times[0] ?? at);
  return SPANS.find(([minutes]) => age <= minutes * 60) ?? SPANS.at(-1);
}
