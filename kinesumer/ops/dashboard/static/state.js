// The server's state: the group's report, with colours and places on the page.

const DIGITS = 13; // of a hash key; more don't fit into a number
const KEYS = 16 ** DIGITS;

/** Return the name in a stream's ARN: "table/NAME" for the stream of a table. */
export const streamName = (arn) => arn.match(/:(table\/[^/]+)/)?.[1] ?? arn.slice(arn.lastIndexOf("/") + 1);

/** Return a state whose clients and streams have what the page adds to them. */
export function joined({ report, info, slots, bands, ...state }) {
  const members = report.members.map((member) => ({ ...member, slot: slots[member.client_id] }));
  const streams = report.streams.map((stream) => ({ ...stream, ...bands[stream.stream_arn], ...drawn(stream, bands[stream.stream_arn], members) }));
  return { ...report, ...info, ...state, members, streams };
}

/** Return a stream's name, its visible shards and the clients' ranges, with their places. */
function drawn({ stream_arn: arn, shards }, { lane }, members) {
  const known = new Map(shards.map((shard) => [shard.shard_id, shard]));
  return {
    name: streamName(arn),
    place: arn.split(":").slice(3, 5).reverse().join(", "),
    shards: widened(Object.entries(lane).map(([id, number]) => ({ ...known.get(id), ...place(known.get(id)), lane: number }))),
    parts: members.flatMap(({ client_id: client, range }) => (range ?? [])
      .filter((part) => part.stream_arn === arn).map((part) => ({ client_id: client, ...place(part) })))
      .sort((one, other) => one.x - other.x),
  };
}

/** Return shards in the order of their places. Those without hash keys reach to the next one of their lane. */
function widened(shards) {
  const ends = new Map(); // of the space that is left in each lane
  for (const shard of [...shards].reverse()) {
    if (shard.first_hash === shard.last_hash) shard.width = (ends.get(shard.lane) ?? 1) - shard.x;
    ends.set(shard.lane, shard.x);
  }
  return shards;
}

/** Return where hash keys begin in the hash space and how much they are of it, 0 to 1. */
function place({ first_hash: first, last_hash: last }) {
  const [begin, end] = [first, last].map((key) => parseInt(key.slice(0, DIGITS), 16));
  return { x: begin / KEYS, width: (end + 1 - begin) / KEYS };
}
