// The labels of ranges: the client's name, or its index if the range is narrow.

import { colours } from "./palette.js";

const LEAST_NAME_WIDTH = 44;
const BASE_LINE = 9;

/** Draw a name above a range, shortened if necessary; return whether it is readable. */
export function drawName(context, name, box, width) {
  const [left, right] = [Math.max(box.x, 0) + 3, Math.min(box.right, width) - 3];
  if (right - left < LEAST_NAME_WIDTH) return false;
  let text = name;
  if (context.measureText(text).width > right - left) {
    // Names often share their beginning, so the end is shown.
    let end = name.length;
    while (end > 2 && context.measureText(`…${name.slice(-end)}`).width > right - left) end--;
    text = `…${name.slice(-end)}`;
  }
  context.fillStyle = colours().ink;
  context.textAlign = "left";
  context.fillText(text, left, BASE_LINE);
  return true;
}

/** Draw a client's index above its range, unless the last index ends there; return its end. */
export function drawIndex(context, index, box, width, end) {
  const middle = (box.x + box.right) / 2;
  if (index === null || index === undefined || middle < 0 || middle > width) return end;
  const font = context.font;
  context.font = `11px ${colours().sans}`;
  const half = context.measureText(index).width / 2;
  const isFree = middle - half >= end + 3;
  context.fillStyle = colours().soft;
  context.textAlign = "center";
  if (isFree) context.fillText(index, middle, BASE_LINE + 1);
  context.font = font;
  return isFree ? middle + half : end;
}
