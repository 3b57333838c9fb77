// Changes: only where the server takes them, and only with the token from its link.

import { dialog, h, keyed, say } from "./dom.js";
import { shown } from "./format.js";

const KEPT = "kinesumer token";
const TYPING_MILLIS = 700;
let token = sessionStorage.getItem(KEPT);
let refusal = "changes need the printed link";

/** Exchange the printed link's invitation for the token, and forget the invitation. */
export async function enter() {
  const invitation = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!invitation) return;
  history.replaceState(null, "", location.pathname);
  const answer = await ask("token", { invitation });
  if (!answer.token) {
    refusal = answer.error;
    return;
  }
  token = answer.token;
  sessionStorage.setItem(KEPT, token);
}

/** Tell what this page may do: null if the server takes no changes. */
export function permission(state) {
  if (!state.control) return "read-only";
  return token ? "changes allowed" : `read-only: ${refusal}`;
}

/** Tell whether this page may change anything. */
export function mayChange(state) {
  return Boolean(state.control && token);
}

/** Fill a place with the buttons of what can be done to something. */
export function actions(place, state, wanted, name) {
  keyed(place, mayChange(state) ? wanted : [], ([text]) => text,
    ([text]) => h("button", { type: "button", onclick: (event) => begin(event.currentTarget.wanted) }, text),
    (button, [text, change]) => {
      button.wanted = { text, change, name: shown(name) };
      button.setAttribute("aria-label", `${text} ${shown(name)}`);
    });
}

async function ask(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers["X-Kinesumer-Token"] = token;
  try {
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return (answer.headers.get("Content-Type") ?? "").includes("json")
      ? await answer.json() : { error: await answer.text() };
  } catch {
    return { error: "the server doesn't answer" };
  }
}

/** Show what a change will do, and ask; a seek has to be told where to first. */
function begin({ text, change, name }) {
  const summary = h("p", { class: "summary", role: "status" });
  const changes = h("ul", { class: "changes", "aria-label": "What will change" });
  const failed = h("p", { class: "failed", role: "alert" });
  const go = h("button", { type: "submit", class: "main" }, `${text} ${name}`);
  const entry = field(change);
  const form = h("form", {}, entry.element, entry.foretold ? summary : null, changes, failed, h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => opened.close() }, "Cancel"), go));
  const opened = dialog(`${text} ${name}?`, form);
  const wanted = () => ({ ...change, ...entry.read() });
  const forget = () => {
    go.disabled = true;
    say(failed, "");
    changes.replaceChildren();
    say(summary, entry.missing?.() ?? "");
  };
  let asked = null;
  const preview = async () => {
    if (asked === JSON.stringify(wanted())) return; // the field was left as it was
    forget();
    asked = entry.missing?.() ? null : JSON.stringify(wanted());
    if (asked === null) return;
    const mine = asked;
    if (entry.foretold) say(summary, "Counting what is skipped and repeated …");
    const told = await ask("preview", JSON.parse(mine));
    if (asked !== mine) return; // it was entered anew meanwhile
    changes.replaceChildren(...(told.lines ?? []).map((line) => h("li", {}, shown(line))));
    say(summary, shown(told.summary ? `In total: ${told.summary}.` : ""));
    say(failed, shown(told.error ?? ""));
    go.disabled = !told.lines;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    const done = await ask("change", wanted());
    if (done.error) {
      say(failed, shown(done.error));
      go.disabled = false;
      return;
    }
    opened.close();
    say(document.getElementById("live"), shown(done.done));
  });
  if (entry.foretold) {
    entry.element.addEventListener("change", preview);
    let typing;
    entry.element.addEventListener("input", () => {
      asked = null; // what was told is of another place
      forget();
      clearTimeout(typing);
      typing = setTimeout(preview, TYPING_MILLIS);
    });
  }
  preview();
}

/** Return what is to be entered for a change, if anything. */
function field(change) {
  if (change.do === "pause") {
    const input = h("input", { name: "reason", maxlength: "200", autocomplete: "off" });
    return { element: h("label", {}, "Why (for people, may be empty)", input), read: () => ({ reason: input.value }) };
  }
  if (change.do !== "seek") return { element: null, read: () => ({}) };
  const input = h("input", { name: "to", required: true, autocomplete: "off", list: "places", spellcheck: "false" });
  const places = h("datalist", { id: "places" },
    ...["LATEST", "TRIM_HORIZON", "1h", "24h"].map((value) => h("option", { value })));
  const hint = change.shard ? ", or a sequence number to read on after" : "";
  return {
    element: h("label", {}, `To: LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, how long ago like 2h${hint}`, input, places),
    read: () => ({ to: input.value.trim() }),
    foretold: true,
    missing: () => (input.value.trim() ? null : "Say where to read on. What is skipped or repeated is counted before you can confirm."),
  };
}
