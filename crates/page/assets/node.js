// What the map says about one node: in the tip under the pointer, and in the right column after a click.

import { filterColour, palette, useColour } from './colours.js';
import { bar, element, swatch } from './dom.js';
import { count, cpu, memory, percent, plural } from './format.js';

const PODS_SHOWN = 200;

export function useOf(nodes, node) {
  const share = (used, most) => (most > 0 ? used / most : 0);
  return Math.max(share(nodes.cpuUsed[node], nodes.cpu[node]), share(nodes.memoryUsed[node], nodes.memory[node]));
}

// What the selected pod is answered on a node: a colour and a sentence.
export function verdictOn(tiles, node) {
  const filter = tiles.filter[node];
  if (filter === -1) {
    const total = tiles.total[node];
    return { colour: palette().feasible, text: total >= 0 ? `takes it, total ${count(total)}` : 'takes it' };
  }
  if (filter === undefined || filter < -1) return { colour: palette().unknown, text: 'was not asked' };
  const plugin = tiles.filters[filter];
  return { colour: filterColour(plugin), text: `${plugin}: ${tiles.reasons[tiles.reason[node]] ?? 'refused'}` };
}

export function tip(nodes, node, tiles) {
  const verdict = tiles ? verdictOn(tiles, node) : null;
  return [
    element('strong', {}, nodes.names[node]),
    verdict && element('div', { class: 'line' }, swatch(verdict.colour), verdict.text),
    element('div', { class: 'soft' },
      `cpu ${cpu(nodes.cpuUsed[node])} of ${cpu(nodes.cpu[node])} · memory ${memory(nodes.memoryUsed[node])} of `
      + `${memory(nodes.memory[node])} · ${plural(nodes.pods[node], 'pod')}`),
    nodes.flags[node] & 1 ? element('div', { class: 'soft' }, 'cordoned') : null,
    nodes.flags[node] & 2 ? element('div', { class: 'soft' }, 'not ready') : null,
  ];
}

export function nodeDetail(answer, verdict, on) {
  const line = (name, used, most, text) => element('div', { class: 'usage' },
    element('span', {}, name), bar(most > 0 ? used / most : 0, useColour(most > 0 ? used / most : 0), name),
    element('span', { class: 'figure' }, `${text(used)} of ${text(most)}`, element('span', { class: 'soft' },
      ` ${percent(most > 0 ? used / most : 0)}`)));
  const usage = answer.resources.map(({ name, requested, allocatable }) => line(name, requested, allocatable,
    name === 'cpu' ? cpu : /memory|storage|hugepages/.test(name) ? memory : count));
  return [
    element('header', { class: 'pod-heading' },
      element('button', { type: 'button', class: 'back', onclick: on.back }, '← back'),
      element('p', { class: 'soft' }, 'node'), element('h2', {}, answer.node),
      verdict && element('p', { class: 'line' }, swatch(verdict.colour), verdict.text)),
    refusing(answer.filters),
    element('section', { class: 'part' }, element('h3', {}, 'Requested'), usage),
    answer.taints.length > 0 && element('section', { class: 'part' }, element('h3', {}, 'Taints'),
      element('ul', { class: 'chips' }, answer.taints.map((taint) => element('li', {}, taint)))),
    element('section', { class: 'part' }, element('h3', {}, plural(answer.pods.length, 'pod')), podTable(answer.pods, on)),
    element('section', { class: 'part' }, element('h3', {}, 'Labels'),
      element('ul', { class: 'chips' }, Object.entries(answer.labels).map(([key, value]) =>
        element('li', {}, `${key}=${value}`)))),
  ];
}

// Every filter that refuses the selected pod here, not the first alone.
function refusing(filters) {
  if (!filters?.length) return null;
  return element('section', { class: 'part' }, element('h3', {}, 'All that refuses the pod here'),
    element('ul', { class: 'plain' }, filters.map(({ plugin, reasons }) => element('li', { class: 'line' },
      swatch(filterColour(plugin)), element('strong', {}, plugin), ` ${reasons.join(', ')}`))));
}

function podTable(pods, on) {
  const rows = pods.slice(0, PODS_SHOWN).map((pod) => element('tr', {},
    element('td', {}, element('button', { class: 'link', type: 'button', onclick: () => on.pod(pod.pod) }, pod.pod)),
    element('td', { class: 'figure' }, cpu(pod.cpu)), element('td', { class: 'figure' }, memory(pod.memory)),
    element('td', { class: 'figure' }, String(pod.priority))));
  return [
    element('div', { class: 'wide' }, element('table', { class: 'scores' },
      element('thead', {}, element('tr', {}, element('th', {}, 'pod'), element('th', { class: 'figure' }, 'cpu'),
        element('th', { class: 'figure' }, 'memory'), element('th', { class: 'figure' }, 'priority'))),
      element('tbody', {}, rows))),
    pods.length > PODS_SHOWN && element('p', { class: 'soft' }, `${count(pods.length - PODS_SHOWN)} more`),
  ];
}
