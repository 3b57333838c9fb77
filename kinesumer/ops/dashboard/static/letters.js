// The dead letters: a dialog that lists and shows them, and puts records back.

import { actions } from "./control.js";
import { dialog, h, keyed, say } from "./dom.js";
import { clock, count, short, shown, shownLines } from "./format.js";
import { binary, date } from "./records.js";
import { streamName } from "./state.js";
import { post } from "./token.js";

/** Open the list of dead letters. */
export async function letters(state) {
  const status = h("p", { class: "summary", role: "status" });
  const failed = h("p", { class: "failed", role: "alert" });
  const list = h("ol", { class: "records", tabindex: "0", "aria-label": "Dead letters" });
  const all = h("div", { class: "actions" });
  const again = h("button", { type: "button", class: "main", onclick: () => read() }, "List again");
  const opened = dialog("Dead letters", failed, status, list, h("div", { class: "buttons" }, all, again,
    h("button", { type: "button", onclick: () => opened.close() }, "Close")));
  opened.classList.add("wide");

  async function read() {
    again.disabled = true;
    say(status, "Reading …");
    const answer = await post("letters", {});
    again.disabled = false;
    const problems = [answer.error, ...(answer.unreadable ?? []).map((text) => `Unreadable: ${text}`)];
    say(failed, shown(problems.filter(Boolean).join(" ")));
    say(status, answer.letters ? shown(summary(answer)) : "");
    const found = answer.letters ?? [];
    keyed(list, found, (letter) => `${letter.id} ${letter.failed_at}`, (letter) => item(state, letter), () => {});
    actions(all, state, found.length ? [["Put back", redrive(found)]] : [], `the ${count(found.length)} listed letters`);
  }
  await read();
}

const redrive = (found) => ({ do: "redrive", letters: found.map((letter) => letter.id) });

function summary({ target, total, letters: found }) {
  const which = total > found.length ? `The last ${count(found.length)} of ${count(total)}` : count(total);
  return `${which} in ${target}`;
}

function item(state, letter) {
  const { id, error, attempts, copies } = letter;
  const at = Date.parse(letter.failed_at) / 1000; // in seconds
  const whole = h("div");
  const changes = h("span", { class: "actions" });
  actions(changes, state, [["Put back", redrive([letter])]], `letter ${id}`);
  const show = h("button", { type: "button", "aria-label": `Show letter ${id}`, onclick: async () => {
    show.disabled = true;
    const answer = await post("letters", { letter: id });
    whole.replaceChildren(...(answer.letters ? details(answer.letters[0]) : [h("p", { class: "failed" }, shown(answer.error))]));
  } }, "Show");
  return h("li", {},
    h("p", { class: "head" },
      h("time", { datetime: letter.failed_at }, `${date(at)} ${clock(at)}`),
      h("span", {}, `${shown(streamName(letter.stream_arn))} shard ${short(letter.shard_id)}`),
      h("span", {}, `${count(attempts)} ${attempts === 1 ? "attempt" : "attempts"}`),
      copies > 1 ? h("span", {}, `${count(copies)} copies`) : null,
      h("span", { class: "code" }, id), show, changes),
    h("p", {}, shown(error)), whole);
}

/** Return a letter's key, position, data and traceback. All values are inserted as text. */
function details({ partition_key: key, sequence_number: number, sub_sequence_number: sub, kind, text, traceback }) {
  const data = { json: shownLines, text: shownLines, binary: (base64) => binary(base64, "hex") }[kind];
  return [
    h("p", { class: "head" }, h("span", {}, "key ", h("b", {}, key === null ? "–" : shown(key))),
      h("span", { class: "code" }, shown(sub === null ? number : `${number}:${sub}`))),
    h("pre", {}, data ? data(text) : "The data was too large for the target. The stream has it at this position."),
    h("pre", {}, shownLines(traceback)),
  ];
}
