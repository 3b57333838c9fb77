// The page of every app in the table.

import { h, keyed, say, set } from "./dom.js";
import { count, shown } from "./format.js";
import { ago } from "./freshness.js";
import { SortableHeads } from "./sorting.js";
import { streamName } from "./state.js";

const EVERY_MILLIS = 10_000; // the server reads the table no more often
const COLUMNS = [
  { name: "App", value: (app) => app.app },
  { name: "Clients", kind: "number", value: (app) => app.clients },
  { name: "Shards", kind: "number", value: (app) => app.shards },
  { name: "Unread", kind: "number", value: (app) => app.unread },
  { name: "Streams", value: (app) => names(app) },
  { name: "State", value: (app) => state(app) },
  { name: "Last seen", value: (app) => app.last_seen },
];

const find = (id) => document.getElementById(id);
const names = (app) => app.streams.map(streamName).join(", ");
const state = (app) => [app.paused ? "paused" : "", app.failures].filter(Boolean).join(", ");

let apps = [];
let readAt = null;
const body = h("tbody");
const heads = new SortableHeads(fill);
heads.update(COLUMNS);
find("apps").append(h("table", { class: "many" }, h("thead", {}, heads.element), body));

function fill() {
  keyed(body, heads.sorted(apps), (app) => app.app,
    () => h("tr", {}, h("th", { scope: "row" }, h("span", { class: "long" })),
      ...COLUMNS.slice(1).map(({ kind }) => h("td", { class: kind ?? null }))),
    (row, app) => {
      say(row.firstChild.firstChild, shown(app.app));
      COLUMNS.slice(1).forEach(({ kind, value }, i) => say(row.children[i + 1],
        kind ? count(value(app)) : shown(value(app)) || "–"));
      set(row.children[3], "class", app.unread ? "number bad" : "number");
    });
}

async function read() {
  try {
    const answer = await (await fetch("apps")).json();
    say(find("trouble"), shown(answer.error ?? ""));
    if (answer.apps) {
      ({ apps } = answer);
      readAt = performance.now();
      say(find("where"), shown(`table ${answer.table} · ${apps.length} apps`));
      fill();
    }
  } catch {
    say(find("trouble"), "The server doesn't answer.");
  }
  const old = readAt === null ? "" : ` The table shows what was read ${ago((performance.now() - readAt) / 1000)}.`;
  if (find("trouble").textContent) find("trouble").append(old);
  find("trouble").hidden = !find("trouble").textContent;
  setTimeout(read, EVERY_MILLIS);
}

read();
