// Where each node's tile lies: groups one below the other, tiles in rows, as large as the room allows.

const HEADING = 26;
const GROUP_GAP = 10;
const PADDING = 14;
const TILE_MAX = 112;
const TILE_MIN = 4;

// The nodes in the order in which they are drawn, and where each group begins in it.
export function grouped(nodes, by) {
  const total = nodes.names.length;
  const keys = by === 'zone' ? nodes.zone : by === 'pool' ? nodes.pool : null;
  const labels = by === 'zone' ? nodes.zones : by === 'pool' ? nodes.pools : ['all nodes'];
  const sizes = new Uint32Array(labels.length);
  for (let node = 0; node < total; node += 1) sizes[keys ? keys[node] : 0] += 1;
  const starts = new Uint32Array(labels.length);
  for (let group = 1; group < labels.length; group += 1) starts[group] = starts[group - 1] + sizes[group - 1];
  const next = starts.slice();
  const order = new Uint32Array(total);
  for (let node = 0; node < total; node += 1) {
    const group = keys ? keys[node] : 0;
    order[next[group]] = node;
    next[group] += 1;
  }
  const groups = labels.map((label, group) => ({ label, start: starts[group], size: sizes[group], top: 0, rows: 0 }));
  return { order, groups: groups.filter((group) => group.size > 0) };
}

// The height that tiles of a size need; sets the groups' positions.
function place(groups, columns, tile) {
  let top = PADDING;
  for (const group of groups) {
    group.top = top + HEADING;
    group.rows = Math.ceil(group.size / columns);
    top = group.top + group.rows * tile + GROUP_GAP;
  }
  return top - GROUP_GAP + PADDING;
}

const columnsOf = (width, tile) => Math.max(1, Math.floor((width - 2 * PADDING) / tile));

// Lays the groups out; `zoom` is the size of a tile, or 0 for the largest with which all of them are seen.
export function layout(groups, width, height, zoom) {
  let tile = zoom || TILE_MAX;
  if (!zoom) {
    while (tile > TILE_MIN && place(groups, columnsOf(width, tile), tile) > height) {
      tile -= tile > 40 ? 4 : 1;
    }
  }
  const columns = columnsOf(width, tile);
  return { tile, columns, groups, left: PADDING, total: place(groups, columns, tile) };
}

// The position in the order at a point, or -1: arithmetic alone, however many nodes there are.
export function positionAt(placed, x, y) {
  const column = Math.floor((x - placed.left) / placed.tile);
  if (column < 0 || column >= placed.columns) return -1;
  for (const group of placed.groups) {
    if (y < group.top || y >= group.top + group.rows * placed.tile) continue;
    const within = Math.floor((y - group.top) / placed.tile) * placed.columns + column;
    return within < group.size ? group.start + within : -1;
  }
  return -1;
}

// The corner of the tile at a position in the order.
export function cornerOf(placed, position) {
  for (const group of placed.groups) {
    if (position < group.start || position >= group.start + group.size) continue;
    const within = position - group.start;
    const row = Math.floor(within / placed.columns);
    return { x: placed.left + (within % placed.columns) * placed.tile, y: group.top + row * placed.tile };
  }
  return { x: 0, y: 0 };
}

// The position one step away in a direction, for the arrow keys.
export function neighbour(placed, position, key) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -placed.columns, ArrowDown: placed.columns }[key];
  const last = placed.groups.length ? placed.groups.at(-1).start + placed.groups.at(-1).size - 1 : -1;
  return Math.max(0, Math.min(last, position + step));
}
