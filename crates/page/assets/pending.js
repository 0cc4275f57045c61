// The left column: pending pods grouped by cause, the largest group first.

import { filterColour, palette } from './colours.js';
import { byId, element, show, swatch } from './dom.js';
import { count, nameOf, plural, verdictText } from './format.js';

const SHOWN_FIRST = 5;
const SHOWN_MORE = 100;

// The filter that refuses most nodes: its colour is the group's.
function mainFilter(explanation) {
  const ended = explanation.preEnqueue ?? explanation.preFilter;
  if (ended) return ended.plugin;
  const first = [...(explanation.rejections ?? [])].sort((a, b) => b.nodes - a.nodes)[0];
  return first?.plugin;
}

export function causeColour(explanation) {
  const plugin = mainFilter(explanation);
  if (plugin) return filterColour(plugin);
  return explanation.verdict === 'WillPlace' ? palette().feasible : palette().unknown;
}

export function verdictPill(verdict) {
  return element('span', { class: `pill verdict-${verdict}` }, verdictText(verdict));
}

export function createPending(on) {
  const list = byId('groups');
  const search = byId('search');
  const left = { groups: [], selected: null, shown: new Map(), found: null };

  const matches = (name, group, words) => words.every((word) =>
    name.toLowerCase().includes(word) || group.cause.toLowerCase().includes(word)
    || verdictText(group.explanation.verdict).includes(word));

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const cards = [];
    for (const [index, group] of left.groups.entries()) {
      const pods = words.length ? group.pods.filter((pod) => matches(pod, group, words)) : group.pods;
      if (pods.length) cards.push(card(group, index, pods));
    }
    if (left.found) cards.push(foundCard(left.found));
    show(list, cards.length ? cards : emptyCard(words.length > 0));
  }

  function emptyCard(searched) {
    if (searched) return element('p', { class: 'empty' }, 'No pending pod matches. Enter looks for a placed one by its name.');
    return element('p', { class: 'empty' }, 'No pod is pending.');
  }

  function foundCard(pods) {
    return element('section', { class: 'group' },
      element('h3', {}, pods.length ? 'Placed pods that match' : 'No pod has this name'),
      element('ul', { class: 'pods' }, pods.map(row)));
  }

  function card(group, index, pods) {
    const limit = left.shown.get(group.cause) ?? SHOWN_FIRST;
    const colour = causeColour(group.explanation);
    const made = element('section', { class: 'group', 'data-group': index },
      element('header', {},
        element('span', { class: 'number' }, count(pods.length)),
        element('div', { class: 'cause' },
          element('h3', {}, swatch(colour), group.cause),
          verdictPill(group.explanation.verdict))),
      element('ul', { class: 'pods' }, pods.slice(0, limit).map(row)),
      pods.length > limit && element('button', {
        class: 'more', type: 'button',
        onclick: () => {
          left.shown.set(group.cause, limit + SHOWN_MORE);
          draw();
        },
      }, `${count(pods.length - limit)} more`));
    made.style.setProperty('--cause', colour);
    return made;
  }

  function row(pod) {
    const [namespace, name] = pod.split('/');
    const isSelected = pod === left.selected;
    return element('li', {}, element('button', {
      class: 'pod', type: 'button', 'data-pod': pod, 'aria-current': isSelected ? 'true' : undefined,
      onclick: () => on.select(pod),
    }, element('span', { class: 'name' }, name), element('span', { class: 'namespace' }, namespace)));
  }

  function step(by) {
    const rows = [...list.querySelectorAll('button.pod')];
    if (!rows.length) return;
    const at = rows.findIndex((each) => each.dataset.pod === left.selected);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
    next.scrollIntoView({ block: 'nearest' });
    on.select(next.dataset.pod);
  }

  search.addEventListener('input', () => {
    left.found = null;
    draw();
  });
  search.addEventListener('keydown', async (event) => {
    if (event.key === 'ArrowDown') step(1);
    else if (event.key === 'ArrowUp') step(-1);
    else if (event.key === 'Enter' && search.value.trim()) {
      const first = list.querySelector('button.pod');
      if (first) on.select(first.dataset.pod);
      else {
        left.found = await on.find(search.value.trim());
        draw();
      }
    } else return;
    event.preventDefault();
  });

  return {
    set(answer) {
      left.groups = (answer.groups ?? []).map((group) => ({ ...group, pods: group.pods.map(nameOf) }));
      left.groups.sort((a, b) => b.pods.length - a.pods.length);
      const total = left.groups.reduce((sum, group) => sum + group.pods.length, 0);
      show(byId('pending-count'), plural(total, 'pod'), ` in ${plural(left.groups.length, 'group')}`);
      draw();
    },
    select(pod) {
      left.selected = pod;
      for (const each of list.querySelectorAll('button.pod')) {
        if (each.dataset.pod === pod) each.setAttribute('aria-current', 'true');
        else each.removeAttribute('aria-current');
      }
    },
    first: () => left.groups[0]?.pods[0] ?? null,
    step,
    draw,
    focus: () => search.focus(),
  };
}
