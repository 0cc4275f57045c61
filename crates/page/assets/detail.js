// The right column: the selected pod with its verdict, filters, changes and scores.

import { filterColour } from './colours.js';
import { bar, element, swatch } from './dom.js';
import { count, dayAndClock, nameOf, plural, verdictText } from './format.js';
import { verdictPill } from './pending.js';

const SENTENCES = {
  Placed: (e) => ['It runs on ', strong(e.node), '. What follows is today’s state without it, not that of the time it was placed.'],
  WillPlace: (e) => e.node ? ['It fits: it goes to ', strong(e.node), '.'] : ['It fits now.'],
  NotYet: () => ['Nothing fits now. Pods that leave, or an object it waits for, can help.'],
  Never: () => ['No node takes it as it is specified: the pod, a node’s own properties or the set of nodes has to change.'],
  Gated: () => ['It is held back before it is tried.'],
};

const KINDS = {
  ReduceRequest: 'ask for less', Tolerate: 'tolerate', Relabel: 'label', RelaxConstraint: 'relax', DeletePods: 'delete pods',
  RaisePriority: 'raise priority', AddNode: 'add a node', AddObject: 'add an object',
};

function strong(text) {
  return element('strong', {}, text ?? '');
}

function section(title, ...content) {
  return element('section', { class: 'part' }, element('h3', {}, title), ...content);
}

export function placeholder(counts, pending) {
  return [element('div', { class: 'welcome' },
    element('h2', {}, pending ? 'Select a pod' : 'Nothing is pending'),
    element('p', {}, pending
      ? 'Choose a pending pod on the left to see which filter refuses it on which node, and what would let it in.'
      : 'Every pod has a node. Click a tile to see what runs there, or search for a pod by its name.'),
    element('p', { class: 'soft' }, `${plural(counts.nodes, 'node')}, ${plural(counts.pods, 'pod')}.`),
    element('p', { class: 'soft' }, 'Press ', element('kbd', {}, '?'), ' for the keys.'))];
}

export function detail(answer, trial, on) {
  const explanation = answer.explanation;
  return [
    heading(explanation),
    refusals(explanation, on),
    changes(explanation, trial, on),
    preemption(explanation),
    scores(explanation, on),
    waits(explanation),
    message(explanation, on),
    known(explanation),
  ];
}

function heading(explanation) {
  const { pod, verdict, nodes } = explanation;
  const sentence = (SENTENCES[verdict] ?? (() => []))(explanation);
  return element('header', { class: 'pod-heading' },
    element('p', { class: 'soft' }, pod.namespace),
    element('h2', {}, pod.name),
    element('p', {}, verdictPill(verdict), nodes && element('span', { class: 'soft' },
      ` ${count(nodes.feasible ?? 0)} of ${plural(nodes.total ?? 0, 'node')} would take it`)),
    element('p', { class: 'sentence' }, sentence),
    explanation.mustChange?.length > 0 && element('ul', { class: 'must' },
      explanation.mustChange.map((each) => element('li', {}, each))),
    lastAttempt(explanation.lastAttempt),
    explanation.error && element('p', { class: 'failure' }, explanation.error));
}

function lastAttempt(last) {
  if (!last?.since) return null;
  return element('p', { class: 'soft' }, `unschedulable since ${dayAndClock(Date.parse(last.since))}`);
}

// Which filter refused how many nodes; hovering lights those nodes on the map.
function refusals(explanation, on) {
  const ended = explanation.preEnqueue ?? explanation.preFilter;
  const rejections = [...(explanation.rejections ?? [])];
  if (!ended && !rejections.length) return null;
  const title = explanation.preEnqueue ? 'What holds it back' : 'Who refuses it';
  if (ended) {
    return section(title, element('p', {}, swatch(filterColour(ended.plugin)), strong(ended.plugin), ' ',
      (ended.reasons ?? []).join(', ')));
  }
  const total = explanation.nodes?.total || 1;
  const rows = rejections.map((each) => element('li', {
    class: 'refusal', tabindex: '0',
    onpointerenter: () => on.light(each), onpointerleave: () => on.light(null),
    onfocus: () => on.light(each), onblur: () => on.light(null),
  },
  element('div', { class: 'line' }, swatch(filterColour(each.plugin)), element('span', { class: 'plugin' }, each.plugin),
    element('span', { class: 'number' }, count(each.nodes))),
  bar(each.nodes / total, filterColour(each.plugin), `${each.nodes} of ${total} nodes`),
  element('div', { class: 'reason' }, each.reason),
  nearest(each, on)));
  return section(title, element('ul', { class: 'refusals' }, rows));
}

function nearest(rejection, on) {
  const near = rejection.nearest;
  if (!near) return null;
  const short = near.short ? `${near.short}${near.resource ? ` ${near.resource}` : ''} short on ` : '';
  return element('div', { class: 'near' }, `nearest: ${short}`, nodeLink(near.node, on));
}

function nodeLink(name, on) {
  return element('button', { class: 'link', type: 'button', onclick: () => on.node(name) }, name);
}

function changes(explanation, trial, on) {
  const list = explanation.changes ?? [];
  if (explanation.verdict === 'Placed' || explanation.verdict === 'WillPlace') return null;
  if (!list.length) {
    return section('What would let it in', element('p', { class: 'soft' },
      'No single change that was tried lets it in. Only what was proven by deciding again is shown here.'));
  }
  return section('What would let it in', element('ol', { class: 'changes' }, list.map((change, index) => {
    const tried = trial?.index === index ? trial : null;
    return element('li', { class: tried?.answer ? 'change tried' : 'change' },
      element('div', { class: 'line' },
        element('span', { class: 'kind' }, KINDS[change.kind] ?? change.kind),
        on.canTry && (tried?.answer
          ? element('button', { type: 'button', class: 'try', onclick: () => on.untry() }, 'back')
          : element('button', {
            type: 'button', class: 'try', 'data-try': index, disabled: Boolean(tried), onclick: () => on.tryChange(index),
          }, tried ? 'trying…' : 'try it'))),
      element('p', { class: 'summary' }, change.summary),
      element('p', { class: 'soft' }, effect(change)),
      tried?.failure && element('p', { class: 'failure' }, tried.failure),
      tried?.answer && difference(explanation, tried.answer, on),
      manifest(change));
  })));
}

function effect(change) {
  const parts = [];
  if (change.feasibleAfter) parts.push(`${plural(change.feasibleAfter, 'node')} would take it`);
  if (change.node) parts.push(`it goes to ${change.node}`);
  if (change.victims?.length) parts.push(`evicts ${change.victims.map(nameOf).join(', ')}`);
  if (change.pdbViolations) parts.push(`violates ${plural(change.pdbViolations, 'disruption budget')}`);
  return parts.join(' · ');
}

// Before and after, as the server decided it on the changed state.
function difference(before, answer, on) {
  const after = answer.explanation;
  const row = (name, was, is) => element('tr', {}, element('th', { scope: 'row' }, name), element('td', {}, was),
    element('td', {}, is));
  const evicting = after.verdict === 'WillPlace' ? null : after.preemption?.candidates?.[0];
  const target = after.node ?? after.best?.[0] ?? evicting?.node;
  const evicted = (evicting?.victims ?? []).map(nameOf);
  return element('div', { class: 'difference', 'data-difference': '' },
    element('table', {},
      element('thead', {}, element('tr', {}, element('td', {}), element('th', {}, 'today'), element('th', {}, 'then'))),
      element('tbody', {},
        row('verdict', verdictText(before.verdict), verdictText(after.verdict)),
        row('nodes that take it', count(before.nodes?.feasible ?? 0), count(after.nodes?.feasible ?? 0)),
        row('goes to', '–', target ? nodeLink(target, on) : '–'),
        evicted.length > 0 && row('evicted', '–', evicted.join(', ')))),
    element('p', { class: 'soft' }, 'Decided in memory and undone. Nothing was written to the cluster.'));
}

function manifest(change) {
  const shown = {};
  for (const field of ['patches', 'deletes', 'adds']) if (change[field]?.length) shown[field] = change[field];
  if (!Object.keys(shown).length) return null;
  return element('details', {}, element('summary', {}, 'the change itself'),
    element('pre', {}, JSON.stringify(shown, null, 2)));
}

function preemption(explanation) {
  const found = explanation.preemption;
  if (!found || explanation.verdict === 'WillPlace' || explanation.verdict === 'Placed') return null;
  const candidates = found.candidates ?? [];
  if (!candidates.length) {
    return section('Preemption', element('p', { class: 'soft' }, found.reason || found.message || 'It would not help.'));
  }
  return section('Preemption', element('ul', { class: 'plain' }, candidates.slice(0, 3).map((each) => element('li', {},
    'on ', strong(each.node), `: ${plural(each.victims?.length ?? 0, 'victim')} (`,
    (each.victims ?? []).map(nameOf).slice(0, 4).join(', '), ')',
    each.pdbViolations ? `, ${plural(each.pdbViolations, 'budget')} violated` : ''))));
}

// One row per node, one column per score plugin: raw → normalised and weighted.
function scores(explanation, on) {
  const rows = explanation.ranking ?? [];
  if (!rows.some((row) => row.scores?.length)) return null;
  const plugins = [...new Set(rows.flatMap((row) => (row.scores ?? []).map((score) => score.plugin)))];
  const decided = explanation.decidedBy;
  const best = Math.max(...rows.map((row) => row.total ?? 0));
  const head = element('tr', {}, element('th', {}, 'node'), element('th', { class: 'figure' }, 'total'),
    plugins.map((plugin) => element('th', { class: plugin === decided ? 'figure decided' : 'figure', title: plugin },
      abbreviated(plugin))));
  const body = rows.map((row) => element('tr', { class: row.total === best ? 'best' : '' },
    element('td', {}, nodeLink(row.node, on)),
    element('td', { class: 'figure' }, count(row.total ?? 0)),
    plugins.map((plugin) => {
      const score = (row.scores ?? []).find((each) => each.plugin === plugin);
      return element('td', {
        class: plugin === decided ? 'figure decided' : 'figure',
        title: score ? `${plugin}: ${score.raw} raw, ${score.score} normalised and weighted` : plugin,
      }, score ? [element('span', { class: 'raw' }, `${count(score.raw)} → `), count(score.score)] : '–');
    })));
  const tied = explanation.best?.length ?? 0;
  return section('Scores',
    element('div', { class: 'wide' }, element('table', { class: 'scores' }, element('thead', {}, head),
      element('tbody', {}, body))),
    element('p', { class: 'soft' }, tied > 1 ? `${plural(tied, 'node')} share the highest total. ` : '',
      decided ? `${decided} decided it. ` : '', 'Each cell: raw → normalised and weighted.'));
}

function abbreviated(plugin) {
  const known = {
    NodeResourcesBalancedAllocation: 'Balanced', NodeResourcesFit: 'Fit', PodTopologySpread: 'Spread',
    InterPodAffinity: 'PodAffinity', TaintToleration: 'Taints', ImageLocality: 'Image', NodeAffinity: 'NodeAffinity',
    VolumeBinding: 'Volumes', DynamicResources: 'Devices',
  };
  return known[plugin] ?? plugin;
}

function waits(explanation) {
  const events = explanation.wakesOn ?? [];
  if (!events.length && !explanation.retryAt) return null;
  const by = new Map();
  for (const { resource, action, plugin } of events) {
    const key = `${resource} ${action}`;
    by.set(key, [...(by.get(key) ?? []), plugin].filter(Boolean));
  }
  return section('It is tried again',
    element('ul', { class: 'plain' },
      [...by].map(([event, plugins]) => element('li', {}, 'when ', strong(event),
        plugins.length ? element('span', { class: 'soft' }, ` (${[...new Set(plugins)].join(', ')})`) : '')),
      explanation.retryAt && element('li', {}, 'without any of these at ', strong(dayAndClock(Date.parse(explanation.retryAt))))));
}

function message(explanation, on) {
  if (!explanation.message) return null;
  return section('Message',
    element('pre', { class: 'message' }, explanation.message),
    element('button', { type: 'button', class: 'copy', onclick: (event) => on.copy(explanation.message, event.target) }, 'copy'));
}

function known(explanation) {
  const absent = explanation.source?.missing ?? [];
  const notes = [...(explanation.notes ?? [])];
  if (absent.length) notes.push(`The source says nothing about ${absent.join(', ')}; that may change the answer.`);
  if (!notes.length) return null;
  return section('To know', element('ul', { class: 'plain soft' }, notes.map((note) => element('li', {}, note))));
}
