// Charts of the last hour, each with a table of the same values.

import { h, keyed, say, svg } from "./dom.js";
import { clock, count, duration, shown } from "./format.js";

const HOUR = 3600;
const [WIDE, HIGH, LEFT, BOTTOM, TOP] = [600, 176, 56, 22, 8];

/** A chart with one line per stream. */
export class Chart {
  constructor(title, { pick, now, text }) {
    this.pick = pick;
    this.now = now;
    this.value = text;
    const id = `chart-${crypto.randomUUID()}`;
    this.drawing = svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    this.body = h("tbody");
    this.table = h("table", {},
      h("thead", {}, h("tr", {}, ...["Stream", "Now", "Highest", "At"].map(
        (text, i) => h("th", { scope: "col", class: i ? "number" : null }, text)))), this.body);
    this.element = h("section", { class: "card chart", "aria-labelledby": id },
      h("div", { class: "heading" }, h("h2", { id }, title), h("p", { class: "aside" }, "last hour, while a page was open")),
      this.drawing, this.table);
    new ResizeObserver(() => this.state && this.draw()).observe(this.drawing);
  }

  update(state) {
    this.state = state;
    this.draw();
    const lines = this.pick(state.history);
    keyed(this.body, lines, (line) => line.stream_arn, () => this.row(), (row, line) => this.fill(row, line));
    this.table.hidden = !lines.length;
  }

  row() {
    return h("tr", {}, h("th", { scope: "row" }, svg("svg", { class: "key", "aria-hidden": "true", viewBox: "0 0 14 3" }), h("span", { class: "long" })),
      ...Array.from({ length: 3 }, () => h("td", { class: "number" })));
  }

  fill(row, line) {
    const [name, now, highest, at] = row.children;
    const index = this.pick(this.state.history).indexOf(line);
    const key = name.firstChild;
    key.replaceChildren(svg("rect", { width: 14, height: 3, rx: 1.5 }));
    key.firstChild.style.fill = stroke(index);
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
    const x = (time) => LEFT + (wide - LEFT - 4) * (1 - (at - time) / HOUR);
    const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (1 - value / top);
    const parts = [0, 0.5, 1].flatMap((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: wide, y1: Math.round(y(part * top)), y2: Math.round(y(part * top)) }),
      svg("text", { x: LEFT - 8, y: y(part * top) + 4, "text-anchor": "end" }, this.value(part * top)),
    ]);
    for (const minutes of wide < 420 ? [60, 30, 0] : [60, 45, 30, 15, 0]) {
      const anchor = minutes === 60 ? "start" : minutes ? "middle" : "end";
      parts.push(svg("text", { x: x(at - minutes * 60), y: HIGH - 4, "text-anchor": anchor }, minutes ? `−${minutes} min` : "now"));
    }
    lines.forEach((line, i) => {
      for (const points of pieces(line.values, history.times)) {
        const path = points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
        if (path.length === 1) path.push(path[0]);
        const drawn = svg("polyline", { points: path.join(" ") });
        drawn.style.stroke = stroke(i);
        if (i >= 8) drawn.style.strokeDasharray = "5 3";
        parts.push(drawn);
        const [[time, value]] = points.slice(-1);
        const dot = svg("circle", { cx: x(time), cy: y(value), r: 3 });
        dot.style.fill = stroke(i);
        parts.push(dot);
      }
    });
    this.drawing.replaceChildren(...parts);
  }
}

export const LAG = {
  pick: (history) => history.millis_behind, now: (band) => band.millis_behind, text: duration,
};
export const RATE = {
  pick: (history) => history.records_per_second, now: (band) => band.records_per_second, text: count,
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

function stroke(index) {
  return `var(--hue-${[0, 1, 2, 6, 3, 4, 5, 7][index % 8]})`;
}
