// The geometry of a band, in CSS pixels from the top.

export const RANGES = 24; // names and brackets of the clients' ranges
export const LAG = 72;
export const BAND = 44;
export const GAP = 12;
export const LANE = 26;
export const AXIS = 22;

const BEGIN_MILLIS = 100;
const DAY_MILLIS = 86_400_000;

/** Return a band's whole height. */
export function height(lanes) {
  return RANGES + LAG + BAND + (lanes - 1) * (GAP + LANE) + AXIS;
}

/** Return the top of a lane. */
export function top(lane) {
  return RANGES + LAG + (lane ? BAND + GAP + (lane - 1) * (GAP + LANE) : 0);
}

/** Return the height of a lag bar; the scale is the same in every band and ends at a day. */
export function lagHeight(millis) {
  const part = Math.log1p((millis ?? 0) / BEGIN_MILLIS) / Math.log1p(DAY_MILLIS / BEGIN_MILLIS);
  return Math.min(part, 1) * LAG;
}
