// All nodes as tiles on one canvas. Drawn only when something changed, and then once per frame.

import { palette } from './colours.js';
import { count } from './format.js';
import { cornerOf, grouped, layout, neighbour, positionAt } from './layout.js';

const NAMED_TILE = 62;
const ZOOMS = [0, 6, 10, 16, 24, 40, 64, 96];
const DIMMED = 0.16;

export function createMap(canvas, on) {
  const context = canvas.getContext('2d');
  const base = document.createElement('canvas');
  const map = {
    nodes: null, paint: null, by: 'zone', zoom: 0, scroll: 0, hover: -1, cursor: -1, selected: -1, chosen: -1, lit: null,
    order: new Uint32Array(0), positions: new Uint32Array(0), placed: null, width: 0, height: 0, drawnIn: 0,
  };
  let baseStale = true;
  let waiting = false;

  function request(stale) {
    baseStale = baseStale || stale;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(draw);
  }

  function regroup() {
    if (!map.nodes) return;
    const { order, groups } = grouped(map.nodes, map.by);
    map.order = order;
    map.positions = new Uint32Array(order.length);
    for (let position = 0; position < order.length; position += 1) map.positions[order[position]] = position;
    map.groups = groups;
    relayout();
  }

  function relayout() {
    if (!map.groups || !map.width) return;
    map.placed = layout(map.groups, map.width, map.height, ZOOMS[map.zoom]);
    scrollTo(map.scroll);
    request(true);
  }

  function scrollTo(to) {
    const most = Math.max(0, (map.placed?.total ?? 0) - map.height);
    map.scroll = Math.max(0, Math.min(most, to));
    request(true);
  }

  function resize() {
    const { width, height } = canvas.parentElement.getBoundingClientRect();
    const ratio = globalThis.devicePixelRatio || 1;
    [map.width, map.height] = [Math.floor(width), Math.floor(height)];
    for (const each of [canvas, base]) {
      each.width = Math.max(1, Math.floor(map.width * ratio));
      each.height = Math.max(1, Math.floor(map.height * ratio));
    }
    canvas.style.width = `${map.width}px`;
    canvas.style.height = `${map.height}px`;
    relayout();
  }

  function draw() {
    waiting = false;
    if (!map.placed || !map.nodes) return;
    const began = performance.now();
    const ratio = globalThis.devicePixelRatio || 1;
    if (baseStale) drawBase(base.getContext('2d'), ratio);
    baseStale = false;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(base, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, -map.scroll * ratio);
    const style = getComputedStyle(canvas);
    ring(map.chosen, style.getPropertyValue('--chosen'), 2.5);
    ring(map.selected, style.getPropertyValue('--ink'), 2);
    ring(map.hover >= 0 ? map.hover : map.cursor, style.getPropertyValue('--accent'), 2);
    map.drawnIn = performance.now() - began;
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
  }

  function drawBase(to, ratio) {
    to.setTransform(1, 0, 0, 1, 0, 0);
    to.clearRect(0, 0, base.width, base.height);
    to.setTransform(ratio, 0, 0, ratio, 0, -map.scroll * ratio);
    const { tile, groups } = map.placed;
    const style = getComputedStyle(canvas);
    to.textBaseline = 'alphabetic';
    for (const group of groups) {
      if (group.top - 30 > map.scroll + map.height || group.top + group.rows * tile < map.scroll) continue;
      to.font = `600 12px ${style.fontFamily}`;
      to.fillStyle = style.getPropertyValue('--ink');
      to.fillText(group.label, map.placed.left, group.top - 9);
      const labelled = to.measureText(group.label).width;
      to.font = `12px ${style.fontFamily}`;
      to.fillStyle = style.getPropertyValue('--soft');
      to.fillText(count(group.size), map.placed.left + labelled + 8, group.top - 9);
    }
    drawTiles(to, style);
  }

  // Tiles of one colour are drawn together: changing the colour costs more than a tile.
  function drawTiles(to, style) {
    const { tile, columns, groups, left } = map.placed;
    const gap = tile >= 40 ? 6 : tile >= 16 ? 3 : tile >= 8 ? 2 : 1;
    const size = tile - gap;
    const { colours, colourOf } = map.paint ?? { colours: [palette().empty], colourOf: null };
    const buckets = colours.map(() => []);
    for (const group of groups) {
      const first = Math.max(0, Math.floor((map.scroll - group.top) / tile));
      const last = Math.min(group.rows, Math.ceil((map.scroll + map.height - group.top) / tile));
      for (let row = first; row < last; row += 1) {
        const end = Math.min(group.size, (row + 1) * columns);
        for (let within = row * columns; within < end; within += 1) {
          const position = group.start + within;
          const colour = colourOf ? colourOf[map.order[position]] : 0;
          buckets[colour].push(left + (within - row * columns) * tile, group.top + row * tile, position);
        }
      }
    }
    const round = size >= 12 ? Math.min(8, size / 7) : 0;
    for (let colour = 0; colour < colours.length; colour += 1) {
      const bucket = buckets[colour];
      to.fillStyle = colours[colour];
      for (const dimmed of [false, true]) {
        to.globalAlpha = dimmed ? DIMMED : 1;
        to.beginPath();
        for (let at = 0; at < bucket.length; at += 3) {
          if (isDimmed(map.order[bucket[at + 2]]) !== dimmed) continue;
          if (round) to.roundRect(bucket[at], bucket[at + 1], size, size, round);
          else to.rect(bucket[at], bucket[at + 1], size, size);
        }
        to.fill();
      }
    }
    to.globalAlpha = 1;
    if (tile >= 10) for (const bucket of buckets) drawMarks(to, bucket, size, style);
  }

  const isDimmed = (node) => Boolean(map.lit && !map.lit[node]);

  // What a large tile says besides its colour: a cordon, and on the largest the name and the usage.
  function drawMarks(to, bucket, size, style) {
    const { flags, names, cpu, cpuUsed, memory, memoryUsed } = map.nodes;
    for (let at = 0; at < bucket.length; at += 3) {
      const [x, y, node] = [bucket[at], bucket[at + 1], map.order[bucket[at + 2]]];
      to.globalAlpha = isDimmed(node) ? DIMMED : 1;
      if (flags[node] & 1) {
        to.strokeStyle = style.getPropertyValue('--ground');
        to.lineWidth = Math.max(1, Math.min(2.5, size / 12));
        const inset = Math.max(2, size * 0.3);
        to.beginPath();
        to.moveTo(x + inset, y + size - inset);
        to.lineTo(x + size - inset, y + inset);
        to.stroke();
      }
      if (size + 6 < NAMED_TILE) continue;
      to.fillStyle = 'rgba(0, 0, 0, 0.28)';
      to.fillRect(x + 7, y + size - 17, size - 14, 4);
      to.fillRect(x + 7, y + size - 10, size - 14, 4);
      to.fillStyle = 'rgba(255, 255, 255, 0.92)';
      to.fillRect(x + 7, y + size - 17, (size - 14) * Math.min(1, cpuUsed[node] / (cpu[node] || 1)), 4);
      to.fillRect(x + 7, y + size - 10, (size - 14) * Math.min(1, memoryUsed[node] / (memory[node] || 1)), 4);
      to.font = `600 11px ${style.fontFamily}`;
      to.fillStyle = map.paint?.inkOf?.(node) ?? 'rgba(255, 255, 255, 0.96)';
      to.fillText(shortened(to, names[node], size - 12), x + 7, y + 18);
    }
    to.globalAlpha = 1;
  }

  function shortened(to, name, width) {
    if (to.measureText(name).width <= width) return name;
    let end = name.length;
    while (end > 1 && to.measureText(`…${name.slice(-end)}`).width > width) end -= 1;
    return `…${name.slice(-end)}`;
  }

  function ring(node, colour, width) {
    if (node < 0 || node >= map.positions.length) return;
    const { x, y } = cornerOf(map.placed, map.positions[node]);
    const gap = map.placed.tile >= 40 ? 6 : map.placed.tile >= 16 ? 3 : map.placed.tile >= 8 ? 2 : 1;
    const size = Math.max(map.placed.tile - gap, 7);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect(x - 2, y - 2, size + 4, size + 4, size >= 12 ? Math.min(9, size / 6) : 1.5);
    context.stroke();
  }

  function nodeAt(event) {
    const bounds = canvas.getBoundingClientRect();
    if (!map.placed) return -1;
    const position = positionAt(map.placed, event.clientX - bounds.left, event.clientY - bounds.top + map.scroll);
    return position < 0 ? -1 : map.order[position];
  }

  function hoverOver(node, x, y) {
    if (node !== map.hover) {
      map.hover = node;
      request(false);
    }
    on.hover(node, x, y);
  }

  canvas.addEventListener('pointermove', (event) => hoverOver(nodeAt(event), event.clientX, event.clientY));
  canvas.addEventListener('pointerleave', () => hoverOver(-1, 0, 0));
  canvas.addEventListener('click', (event) => {
    const node = nodeAt(event);
    if (node >= 0) on.select(node);
  });
  canvas.addEventListener('wheel', (event) => {
    if ((map.placed?.total ?? 0) <= map.height) return;
    event.preventDefault();
    scrollTo(map.scroll + event.deltaY);
  }, { passive: false });
  canvas.addEventListener('keydown', (event) => {
    if (!map.placed || !map.order.length) return;
    if (event.key === 'Enter' && map.cursor >= 0) on.select(map.cursor);
    if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
    event.stopPropagation();
    const position = map.cursor < 0 ? 0 : neighbour(map.placed, map.positions[map.cursor], event.key);
    map.cursor = map.order[position];
    const { x, y } = cornerOf(map.placed, position);
    if (y < map.scroll || y + map.placed.tile > map.scroll + map.height) scrollTo(y - map.height / 2);
    const bounds = canvas.getBoundingClientRect();
    on.hover(map.cursor, bounds.left + x + map.placed.tile, bounds.top + y - map.scroll + map.placed.tile);
    request(false);
  });
  canvas.addEventListener('blur', () => {
    map.cursor = -1;
    on.hover(-1, 0, 0);
    request(false);
  });
  new ResizeObserver(resize).observe(canvas.parentElement);

  return {
    setNodes(nodes) {
      const keep = (node) => (node >= 0 && map.nodes ? nodes.names.indexOf(map.nodes.names[node]) : -1);
      [map.selected, map.chosen, map.hover, map.cursor] = [keep(map.selected), keep(map.chosen), -1, -1];
      map.nodes = nodes;
      [map.paint, map.lit] = [null, null];
      regroup();
    },
    setPaint(paint) {
      map.paint = paint;
      request(true);
    },
    light(lit) {
      map.lit = lit;
      request(true);
    },
    group(by) {
      map.by = by;
      regroup();
    },
    zoom(step) {
      map.zoom = step === 0 ? 0 : Math.max(0, Math.min(ZOOMS.length - 1, map.zoom + step));
      relayout();
    },
    mark(what, node) {
      map[what] = node;
      request(false);
    },
    repaint: () => request(true),
    drawnIn: () => map.drawnIn,
  };
}
