// Heads of tables, which sort the rows by the column that the user chooses.

import { h, keyed, set } from "./dom.js";

/** A row of heads: a column is sorted, then reversed, then in the given order again. */
export class SortableHeads {
  constructor(changed) {
    this.changed = changed;
    this.element = h("tr");
    this.columns = [];
    this.by = null;
    this.descending = false;
  }

  /** Show columns with a name, a class, and a function that returns an item's value to sort by. */
  update(columns) {
    this.columns = columns;
    keyed(this.element, columns, (column) => column.name, (column) => this.head(column),
      (head, { name }) => set(head, "aria-sort", name !== this.by ? null : this.descending ? "descending" : "ascending"));
  }

  head({ name, kind, value }) {
    return h("th", { scope: "col", class: kind },
      value ? h("button", { type: "button", class: "sort", onclick: () => this.choose(name) }, name)
        : h("span", { class: name ? null : "hidden" }, name || "Actions"));
  }

  choose(name) {
    const column = this.columns.find((known) => known.name === name);
    const first = column.kind === "number"; // the largest numbers are the most interesting ones
    if (this.by !== name) [this.by, this.descending] = [name, first];
    else if (this.descending === first) this.descending = !first;
    else this.by = null;
    this.update(this.columns);
    this.changed();
  }

  /** Return the items in the chosen order; unknown values come last. */
  sorted(items) {
    const column = this.columns.find((known) => known.name === this.by);
    if (!column) return items;
    const sign = this.descending ? -1 : 1;
    const rank = (value) => (value === null || value === undefined ? 1 : 0);
    return items.map((item) => [column.value(item), item])
      .sort(([one], [other]) => rank(one) - rank(other) || (rank(one) ? 0 : sign * compare(one, other)))
      .map(([, item]) => item);
  }
}

function compare(one, other) {
  return typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
}
