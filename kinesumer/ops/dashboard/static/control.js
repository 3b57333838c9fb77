// Changes: a preview, and a confirmation.

import { dialog, h, keyed, say } from "./dom.js";
import { duration, shown } from "./format.js";
import { mayChange, post } from "./token.js";

const TYPING_MILLIS = 700;
const COUNTING = "Counting what is skipped and re-read …";

/** Show the buttons of the possible changes in an element. */
export function actions(place, state, requested, name) {
  keyed(place, mayChange(state) ? requested : [], ([text]) => text,
    ([text]) => h("button", { type: "button", onclick: (event) => begin(event.currentTarget.requested) }, text),
    (button, [text, change]) => {
      button.requested = { text, change, name: shown(name) };
      button.setAttribute("aria-label", `${text} ${shown(name)}`);
    });
}

/** Preview a change, and ask for confirmation; a seek first needs a position. */
function begin({ text, change, name }) {
  const summary = h("p", { class: "summary", role: "status" });
  const changes = h("ul", { class: "changes", "aria-label": "What will change" });
  const skip = h("input", { type: "checkbox", name: "skip", onchange: () => allow() });
  const confirmSkip = h("label", { class: "confirm", hidden: true }, skip,
    "I confirm the skip: this app never receives the skipped records");
  const failed = h("p", { class: "failed", role: "alert" });
  const go = h("button", { type: "submit", class: "main" }, `${text} ${name}`);
  const entry = field(change);
  const form = h("form", {}, entry.element, entry.counts ? summary : null, changes, confirmSkip, failed, h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => opened.close() }, "Cancel"), go));
  const opened = dialog(`${text} ${name}?`, form);
  const requested = () => ({ ...change, ...entry.read() });
  const allow = () => { go.disabled = !confirmSkip.hidden && !skip.checked; };
  const forget = () => {
    go.disabled = confirmSkip.hidden = true;
    skip.checked = false;
    say(failed, "");
    changes.replaceChildren();
    say(summary, entry.missing?.() ?? "");
  };
  let previewed = null;
  const preview = async () => {
    if (previewed === JSON.stringify(requested())) return; // the field is unchanged
    forget();
    previewed = entry.missing?.() ? null : JSON.stringify(requested());
    if (previewed === null) return;
    const mine = previewed;
    const began = performance.now();
    const tick = () => say(summary, `${COUNTING} ${duration(performance.now() - began)}`);
    const ticking = entry.counts && setInterval(() => (previewed === mine && opened.open ? tick() : clearInterval(ticking)), 1000);
    if (entry.counts) say(summary, COUNTING);
    const answer = await post("preview", JSON.parse(mine));
    clearInterval(ticking);
    if (previewed !== mine) return; // the field has changed meanwhile
    changes.replaceChildren(...(answer.lines ?? []).map((line) => h("li", {}, shown(line))));
    say(summary, shown(answer.summary ? `In total: ${answer.summary}.` : ""));
    say(failed, shown(answer.error ?? ""));
    confirmSkip.hidden = !answer.skips;
    if (answer.lines) allow();
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    const done = await post("change", requested());
    if (done.error) {
      say(failed, shown(done.error));
      allow();
      return;
    }
    opened.close();
    say(document.getElementById("live"), shown(done.done));
  });
  if (entry.counts) {
    entry.element.addEventListener("change", preview);
    let typing;
    entry.element.addEventListener("input", () => {
      previewed = null; // the shown preview is of another position
      forget();
      if (!entry.missing()) say(summary, COUNTING);
      clearTimeout(typing);
      typing = setTimeout(preview, TYPING_MILLIS);
    });
  }
  preview();
}

/** Return the input field of a change, if it needs one. */
function field(change) {
  if (change.do === "pause") {
    const input = h("input", { name: "reason", maxlength: "200", autocomplete: "off" });
    return { element: h("label", {}, "Reason (optional)", input), read: () => ({ reason: input.value }) };
  }
  if (change.do !== "seek") return { element: null, read: () => ({}) };
  const input = h("input", { name: "to", required: true, autocomplete: "off", list: "places", spellcheck: "false" });
  const places = h("datalist", { id: "places" },
    ...["LATEST", "TRIM_HORIZON", "1h", "24h"].map((value) => h("option", { value })));
  const hint = change.shard ? ", or a sequence number to read on after" : "";
  return {
    element: h("label", {}, `To: LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, how long ago like 2h${hint}`, input, places),
    read: () => ({ to: input.value.trim() }),
    counts: true,
    missing: () => (input.value.trim() ? null : "Enter where to continue reading. Skipped and re-read records are counted before you can confirm."),
  };
}
