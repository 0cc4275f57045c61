// The page: asks, keeps what was answered, and hands it to the columns.

import { filterColour, isDark, palette, scoreColour, useColour } from './colours.js';
import { detail, placeholder } from './detail.js';
import { byId, element, show, swatch } from './dom.js';
import { count, dayAndClock, percent, plural } from './format.js';
import { createMap } from './map.js';
import { nodeDetail, tip, useOf, verdictOn } from './node.js';
import { createPending } from './pending.js';
import { ask, embedded, follow, send } from './server.js';
import { createTimeline } from './timeline.js';

const STEPS = 24;
const saved = embedded();
const page = {
  summary: null, nodes: null, shown: null, pod: null, answer: null, trial: null, node: null, nodeAnswer: null,
  colourBy: 'use', groupBy: 'zone', undone: null, asked: 0,
};

const map = createMap(byId('map'), {
  hover: showTip,
  select: (node) => openNode(page.nodes.names[node]),
});
const pending = createPending({ select: selectPod, find: (text) => (saved ? [] : ask('find', { text }).then((a) => a.pods)) });
const timeline = createTimeline({
  async select(decision, at) {
    // The explanation is of today; the map goes to the time of the decision.
    await selectPod(decision.pod);
    timeline.goTo(at);
    mark('chosen', decision.node);
  },
  time(undone) {
    page.undone = undone;
    page.shown = undone ? before(undone) : page.nodes;
    map.setNodes(page.shown);
    if (undone && page.colourBy !== 'use') page.colourBy = 'use';
    paint();
  },
});

function mark(what, name) {
  map.mark(what, name ? page.nodes?.names.indexOf(name) ?? -1 : -1);
}

// ---- what the server says

function typed(nodes) {
  const made = { ...nodes };
  for (const name of ['zone', 'pool']) made[name] = Uint32Array.from(nodes[name]);
  for (const name of ['cpu', 'cpuUsed', 'memory', 'memoryUsed', 'pods', 'podsMax']) made[name] = Float64Array.from(nodes[name]);
  made.flags = Uint8Array.from(nodes.flags);
  return made;
}

function takeSummary(summary) {
  page.summary = summary;
  const facts = [['nodes', summary.nodes], ['pods', summary.pods], ['pending', summary.pending]];
  show(byId('counts'), facts.map(([name, number]) => element('div', { class: `fact-${name}` },
    element('dt', {}, name), element('dd', {}, count(number)))));
  const { kind, time } = summary.source ?? {};
  const said = summary.live ? 'live' : `${kind ?? 'saved'}${time ? ` of ${dayAndClock(Date.parse(time))}` : ''}`;
  show(byId('source'), element('span', { class: summary.live ? 'dot live' : 'dot' }), element('span', {}, summary.name ?? ''),
    element('span', { class: 'soft' }, said));
  byId('source').title = [...(summary.notes ?? []),
    ...(summary.source?.missing?.length ? [`not known: ${summary.source.missing.join(', ')}`] : [])].join('\n');
}

// The nodes as they were before some decisions.
function before(undone) {
  const { nodes } = page;
  const then = { ...nodes };
  for (const name of ['cpuUsed', 'memoryUsed', 'pods']) then[name] = Float64Array.from(nodes[name]);
  const index = new Map(nodes.names.map((name, node) => [name, node]));
  for (const decision of undone) {
    const node = index.get(decision.node);
    const sign = { placed: -1, left: 1 }[decision.outcome] ?? 0;
    if (node === undefined || !sign) continue;
    then.cpuUsed[node] += sign * decision.cpu;
    then.memoryUsed[node] += sign * decision.memory;
    then.pods[node] += sign;
  }
  return then;
}

function takeNodes(nodes) {
  page.nodes = typed(nodes);
  page.shown = page.undone ? before(page.undone) : page.nodes;
  map.setNodes(page.shown);
  if (page.answer) mark('chosen', page.answer.explanation.node);
  if (page.node) mark('selected', page.node);
  paint();
}

async function refresh() {
  const [summary, groups, nodes, decisions] = await Promise.all([
    ask('summary'), ask('pending'), ask('nodes'), ask('decisions', { since: timeline.next() }),
  ]);
  takeSummary(summary);
  takeNodes(nodes);
  timeline.from(summary.decisionLog);
  timeline.add(decisions);
  pending.set(groups);
  if (page.pod) await explain(page.pod, true);
  else drawDetail();
}

const notices = { connection: '', trial: '' };

function notice(which, text) {
  notices[which] = text;
  const said = notices.connection || notices.trial;
  byId('notice').hidden = !said;
  byId('notice').dataset.kind = notices.connection ? 'connection' : 'trial';
  byId('notice').textContent = said;
}

// ---- a pod

async function selectPod(pod) {
  page.pod = pod;
  page.trial = null;
  notice('trial', '');
  closeNode();
  pending.select(pod);
  globalThis.history.replaceState(null, '', `#pod=${encodeURIComponent(pod)}`);
  const began = performance.now();
  await explain(pod, false);
  await new Promise((drawn) => { requestAnimationFrame(() => requestAnimationFrame(drawn)); });
  document.documentElement.dataset.answered = String(Math.round(performance.now() - began));
}

async function explain(pod, again) {
  page.asked += 1;
  const mine = page.asked;
  if (!again) byId('detail').setAttribute('aria-busy', 'true');
  let answer;
  try {
    answer = saved ? savedAnswer(pod) : await ask('why', { pod });
  } catch (error) {
    if (mine !== page.asked) return;
    page.answer = null;
    byId('detail').removeAttribute('aria-busy');
    show(byId('detail'), element('div', { class: 'welcome' }, element('h2', {}, pod), element('p', { class: 'failure' }, error.message)));
    paint();
    return;
  }
  if (mine !== page.asked) return;
  byId('detail').removeAttribute('aria-busy');
  page.answer = answer;
  if (!again) {
    page.colourBy = answer.tiles ? 'filter' : page.colourBy;
    if (page.undone) timeline.goTo(null);
  }
  // The nodes came and went between two answers: the tiles belong to others.
  if (answer.tiles && answer.tiles.filter.length !== page.nodes.names.length && !saved) takeNodes(await ask('nodes'));
  if (!page.trial) mark('chosen', answer.explanation.node);
  drawDetail();
  paint();
}

// A file explains the first pod of each group; the others have the same answer.
function savedAnswer(pod) {
  const group = saved.pending.groups.find((each) => each.pods.includes(pod));
  const answer = saved.why[pod] ?? saved.why[group?.pods[0]];
  if (!answer) throw new Error('This file does not explain the pod; a larger group took its place.');
  return answer;
}

function drawDetail() {
  const parent = byId('detail');
  if (page.nodeAnswer) {
    const index = page.nodes.names.indexOf(page.node);
    const verdict = page.answer?.tiles && index >= 0 ? verdictOn(shownTiles(), index) : null;
    show(parent, nodeDetail(page.nodeAnswer, verdict, { back: closeNode, pod: selectPod }));
  } else if (page.answer) {
    show(parent, detail(page.answer, page.trial, {
      canTry: !saved, light, node: openNode, copy, tryChange, untry,
    }));
  } else show(parent, placeholder(page.summary ?? { nodes: 0, pods: 0 }, page.summary?.pending ?? 0));
}

function light(rejection) {
  const tiles = shownTiles();
  if (!rejection || !tiles) return map.light(null);
  const filter = tiles.filters.indexOf(rejection.plugin);
  const lit = new Uint8Array(tiles.filter.length);
  for (let node = 0; node < lit.length; node += 1) {
    const reasons = tiles.reasons[tiles.reason[node]] ?? '';
    lit[node] = tiles.filter[node] === filter && reasons.includes(rejection.reason) ? 1 : 0;
  }
  return map.light(lit);
}

async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  button.textContent = 'copied';
}

async function tryChange(index) {
  const change = page.answer.explanation.changes[index];
  page.trial = { index };
  drawDetail();
  try {
    const { patches, deletes, adds } = change;
    const answer = await send('try', { pod: page.pod, patches, deletes, adds });
    if (page.trial?.index !== index) return;
    page.trial = { index, answer };
    mark('chosen', answer.explanation.node ?? answer.explanation.best?.[0] ?? answer.explanation.preemption?.acceptable?.[0]);
    notice('trial', `The map shows what would be after: ${change.summary}`);
  } catch (error) {
    page.trial = { index, failure: error.message };
  }
  drawDetail();
  paint();
  byId('detail').querySelector('[data-difference]')?.scrollIntoView({ block: 'nearest' });
}

function untry() {
  page.trial = null;
  notice('trial', '');
  mark('chosen', page.answer?.explanation.node);
  drawDetail();
  paint();
}

// ---- a node

async function openNode(name) {
  page.node = name;
  mark('selected', name);
  if (saved) return;
  try {
    const answer = await ask('node', page.pod ? { name, pod: page.pod } : { name });
    if (page.node !== name) return;
    page.nodeAnswer = answer;
    drawDetail();
    byId('detail').scrollTop = 0;
  } catch (error) {
    closeNode();
    notice('trial', error.message);
  }
}

function closeNode() {
  [page.node, page.nodeAnswer] = [null, null];
  mark('selected', null);
  drawDetail();
}

function showTip(node, x, y) {
  const box = byId('tip');
  box.hidden = node < 0;
  if (node < 0) return;
  show(box, tip(page.shown, node, page.answer && !page.undone ? shownTiles() : null));
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? y - height - 12 : y + 18}px`;
}

// ---- colours

function shownTiles() {
  return page.trial?.answer?.tiles ?? page.answer?.tiles ?? null;
}

function paint() {
  if (!page.nodes) return;
  const tiles = shownTiles();
  const usable = tiles && tiles.filter.length === page.nodes.names.length ? tiles : null;
  const by = !usable && page.colourBy !== 'use' ? 'use' : page.colourBy;
  for (const button of byId('colour-by').children) {
    button.setAttribute('aria-pressed', String(button.dataset.by === by));
    button.disabled = !usable && button.dataset.by !== 'use';
  }
  for (const button of byId('group-by').children) {
    button.setAttribute('aria-pressed', String(button.dataset.by === page.groupBy));
  }
  const { made, legend } = { filter: paintFilters, score: paintScores, use: paintUse }[by](usable);
  map.setPaint(made);
  show(byId('legend'), legend);
  show(byId('map-about'), usable && by !== 'use' ? `for ${page.pod}` : `${plural(page.nodes.names.length, 'node')}`);
}

function paintFilters(tiles) {
  const colours = [palette().feasible, palette().unknown, ...tiles.filters.map(filterColour)];
  const colourOf = new Uint16Array(tiles.filter.length);
  const sums = new Uint32Array(colours.length);
  for (let node = 0; node < colourOf.length; node += 1) {
    const filter = tiles.filter[node];
    colourOf[node] = filter === -1 ? 0 : filter < -1 ? 1 : filter + 2;
    sums[colourOf[node]] += 1;
  }
  const names = ['takes the pod', 'not asked', ...tiles.filters];
  const legend = names.map((name, index) => ({ name, index })).filter(({ index }) => sums[index] > 0)
    .sort((a, b) => sums[b.index] - sums[a.index])
    .map(({ name, index }) => element('button', {
      type: 'button', class: 'key',
      onpointerenter: () => lightColour(colourOf, index), onpointerleave: () => map.light(null),
      onfocus: () => lightColour(colourOf, index), onblur: () => map.light(null),
    }, swatch(colours[index]), name, element('span', { class: 'soft' }, count(sums[index]))));
  return { made: { colours, colourOf }, legend };
}

function lightColour(colourOf, colour) {
  map.light(Uint8Array.from(colourOf, (each) => (each === colour ? 1 : 0)));
}

function ramp(colour) {
  return Array.from({ length: STEPS }, (_, step) => colour(step / (STEPS - 1)));
}

function rampLegend(colours, low, high, ...more) {
  const strip = element('span', { class: 'ramp' });
  strip.style.background = `linear-gradient(90deg, ${colours.join(', ')})`;
  return [element('span', { class: 'key' }, low, strip, high), ...more];
}

function paintScores(tiles) {
  let [least, most] = [Infinity, -Infinity];
  for (const total of tiles.total) if (total >= 0) [least, most] = [Math.min(least, total), Math.max(most, total)];
  const colours = [palette().empty, ...ramp(scoreColour)];
  const colourOf = Uint16Array.from(tiles.total, (total) => {
    if (total < 0) return 0;
    return 1 + Math.round((most > least ? (total - least) / (most - least) : 1) * (STEPS - 1));
  });
  const refused = element('span', { class: 'key' }, swatch(palette().empty), 'refused');
  const legend = most < 0 ? ['No node has a score. ', refused]
    : rampLegend(colours.slice(1), `total ${count(least)}`, count(most), refused);
  return { made: { colours, colourOf, inkOf: inkOn(colours, colourOf) }, legend };
}

function paintUse() {
  const nodes = page.shown;
  const { cpuUsed, memoryUsed } = nodes;
  const colours = ramp(useColour);
  const colourOf = new Uint16Array(nodes.names.length);
  let [usedCpu, allCpu, usedMemory, allMemory] = [0, 0, 0, 0];
  for (let node = 0; node < colourOf.length; node += 1) {
    const share = useOf(nodes, node);
    colourOf[node] = Math.round(Math.max(0, Math.min(1, share)) * (STEPS - 1));
    usedCpu += cpuUsed[node];
    allCpu += nodes.cpu[node];
    usedMemory += memoryUsed[node];
    allMemory += nodes.memory[node];
  }
  const whole = element('span', { class: 'soft' },
    `cpu ${percent(allCpu ? usedCpu / allCpu : 0)}, memory ${percent(allMemory ? usedMemory / allMemory : 0)} requested`);
  return { made: { colours, colourOf, inkOf: inkOn(colours, colourOf) }, legend: rampLegend(colours, '0 %', '100 %', whole) };
}

// Names on pale tiles are dark.
function inkOn(colours, colourOf) {
  const bright = colours.map((colour) => {
    const parts = colour.match(/\d+/g);
    if (!colour.startsWith('rgb')) return !isDark();
    return 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] > 150;
  });
  return (node) => (bright[colourOf[node]] ? 'rgba(10, 20, 30, 0.85)' : 'rgba(255, 255, 255, 0.96)');
}

function colourBy(by) {
  page.colourBy = by;
  paint();
}

function groupBy(by) {
  page.groupBy = by;
  map.group(by);
  paint();
}

// ---- keys, theme, help

const KEYS = [
  ['/', 'search'], ['j k', 'next and previous pod'], ['Enter', 'in the search: the first match'],
  ['1 2 3', 'colour by refusing filter, score, utilisation'], ['g', 'group by zone, pool, nothing'],
  ['+ - 0', 'larger, smaller, fitting tiles'], ['m', 'to the map: arrows move, Enter opens the node'],
  ['y', 'try the first change; again for the next'], ['[ ]', 'one decision back and on'], ['n', 'back to now'],
  ['t', 'dark or light'], ['Esc', 'back'], ['?', 'this list'],
];

function tryNext() {
  const changes = page.answer?.explanation.changes ?? [];
  const next = page.trial ? page.trial.index + 1 : 0;
  if (saved || !changes.length) return;
  if (next < changes.length) tryChange(next);
  else untry();
}

function back() {
  if (byId('keys').open) byId('keys').close();
  else if (page.node) closeNode();
  else if (page.trial) untry();
  else if (page.undone) timeline.goTo(null);
  else document.activeElement?.blur?.();
}

function toggleTheme() {
  const theme = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem('theme', theme);
  } catch {
    // A browser that keeps nothing forgets the theme.
  }
  redraw();
}

function redraw() {
  pending.draw();
  pending.select(page.pod);
  timeline.draw();
  drawDetail();
  paint();
}

function showKeys() {
  const dialog = byId('keys');
  show(dialog, element('h2', {}, 'Keys'),
    element('dl', {}, KEYS.flatMap(([keys, meaning]) => [
      element('dt', {}, keys.split(' ').map((key) => element('kbd', {}, key))), element('dd', {}, meaning)])),
    element('button', { type: 'button', onclick: () => dialog.close() }, 'close'));
  dialog.showModal();
}

const GROUPS = ['zone', 'pool', 'none'];
const ON_KEY = {
  '/': () => pending.focus(), j: () => pending.step(1), k: () => pending.step(-1), 1: () => colourBy('filter'),
  2: () => colourBy('score'), 3: () => colourBy('use'),
  g: () => groupBy(GROUPS[(GROUPS.indexOf(page.groupBy) + 1) % GROUPS.length]), '+': () => map.zoom(1),
  '=': () => map.zoom(1), '-': () => map.zoom(-1), 0: () => map.zoom(0), m: () => byId('map').focus(), y: tryNext,
  '[': () => timeline.step(-1), ']': () => timeline.step(1), n: () => timeline.goTo(null), t: toggleTheme, '?': showKeys,
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') return void back();
  const typing = event.target.closest?.('input[type=search]');
  if (typing || byId('keys').open || !ON_KEY[event.key]) return;
  event.preventDefault();
  ON_KEY[event.key]();
});

for (const button of byId('colour-by').children) button.addEventListener('click', () => colourBy(button.dataset.by));
for (const button of byId('group-by').children) button.addEventListener('click', () => groupBy(button.dataset.by));
byId('smaller').addEventListener('click', () => map.zoom(-1));
byId('fit').addEventListener('click', () => map.zoom(0));
byId('larger').addEventListener('click', () => map.zoom(1));
byId('theme').addEventListener('click', toggleTheme);
byId('help').addEventListener('click', showKeys);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

function rememberedTheme() {
  try {
    return localStorage.getItem('theme');
  } catch {
    return null;
  }
}

async function start() {
  const theme = rememberedTheme();
  if (theme) document.documentElement.dataset.theme = theme;
  const [, linked] = location.hash.match(/^#pod=(.+)$/) ?? [];
  if (saved) {
    byId('slider').closest('footer').hidden = true;
    takeSummary(saved.summary);
    takeNodes(saved.nodes);
    pending.set(saved.pending);
    const first = pending.first();
    if (first) await selectPod(linked ? decodeURIComponent(linked) : first);
    document.documentElement.dataset.ready = 'true';
    return;
  }
  if (linked) page.pod = decodeURIComponent(linked);
  await follow({
    connected: () => notice('connection', ''),
    async changed() {
      const first = !page.summary;
      await refresh();
      if (first && page.pod) {
        pending.select(page.pod);
        colourBy(page.answer?.tiles ? 'filter' : 'use');
      }
      document.documentElement.dataset.ready = 'true';
    },
    disconnected: () => {
      timeline.restart();
      notice('connection', 'The server is gone. What you see is its last answer; the page reconnects by itself.');
    },
    waiting: (error) => notice('connection', `The server does not answer (${error.message}). Trying again …`),
  });
}

start();
