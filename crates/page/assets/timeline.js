// The decisions as they happen, and the slider that goes back in them.

import { isDark, palette } from './colours.js';
import { byId, element, show, swatch } from './dom.js';
import { clock, count, dayAndClock, plural } from './format.js';

const ROWS = 60;
const KEPT = 20000;
const BINS = 160;

export function createTimeline(on) {
  const [slider, list, about, histogram] = [byId('slider'), byId('decisions'), byId('decisions-about'), byId('histogram')];
  const line = { decisions: [], at: null, next: 0, log: null };

  const end = () => (line.at === null ? line.decisions.length : line.at);

  function draw() {
    const [all, until] = [line.decisions, end()];
    slider.max = String(all.length);
    slider.value = String(until);
    slider.disabled = all.length === 0;
    byId('now').setAttribute('aria-pressed', String(line.at === null));
    const last = all[until - 1];
    show(about, sentence(all, until, last));
    slider.setAttribute('aria-valuetext', last ? dayAndClock(last.at) : 'before the first decision');
    const rows = [];
    for (let index = until - 1; index >= 0 && rows.length < ROWS; index -= 1) rows.push(row(all[index], index));
    show(list, rows.length ? rows : element('li', { class: 'empty' }, 'No decision is known yet.'));
    drawHistogram();
  }

  function sentence(all, until, last) {
    const from = line.log ? 'from the decision log' : 'as the pods tell; without a decision log, earlier attempts are not known';
    if (!all.length) return from;
    if (line.at === null) return `${plural(all.length, 'decision')}, the last at ${clock(all.at(-1).at)}, ${from}`;
    const undone = all.length - until;
    return `as of ${last ? dayAndClock(last.at) : 'before the first'}: ${plural(undone, 'later decision')} taken back on the map`;
  }

  function row(decision, index) {
    const { colour, text } = outcome(decision);
    return element('li', {}, element('button', {
      type: 'button', class: 'decision', 'aria-current': line.at === index + 1 ? 'true' : undefined,
      onclick: () => on.select(decision, index + 1),
    },
    element('time', {}, clock(decision.at)),
    swatch(colour),
    element('span', { class: 'name' }, decision.pod),
    element('span', { class: 'soft' }, text)));
  }

  function outcome(decision) {
    switch (decision.outcome) {
      case 'placed': return { colour: palette().feasible, text: `→ ${decision.node}` };
      case 'left': return { colour: palette().unknown, text: `left ${decision.node}` };
      default: return { colour: palette().filters.TaintToleration, text: decision.message || 'no node takes it' };
    }
  }

  function drawHistogram() {
    const { width, height } = histogram.parentElement.getBoundingClientRect();
    const ratio = globalThis.devicePixelRatio || 1;
    if (width < 2) return;
    [histogram.width, histogram.height] = [Math.floor(width * ratio), Math.floor((height - 18) * ratio)];
    const context = histogram.getContext('2d');
    const all = line.decisions;
    if (!all.length) return;
    // By their number, as the slider counts: a burst is as wide as it was long in decisions, and as high as it was fast.
    const per = Math.max(1, Math.ceil(all.length / BINS));
    const bins = [];
    for (let from = 0; from < all.length; from += per) {
      const part = all.slice(from, from + per);
      const seconds = Math.max(0.2, (part.at(-1).at - part[0].at) / 1000);
      bins.push({ from, refused: part.filter((each) => each.outcome === 'refused').length / part.length, rate: part.length / seconds });
    }
    const most = Math.max(...bins.map((bin) => Math.sqrt(bin.rate)));
    const step = histogram.width / bins.length;
    for (const [index, bin] of bins.entries()) {
      const tall = Math.max(3 * ratio, (Math.sqrt(bin.rate) / most) * histogram.height);
      context.globalAlpha = bin.from < end() ? 1 : 0.25;
      context.fillStyle = palette().feasible;
      const wide = Math.max(1, step - ratio);
      context.fillRect(index * step, histogram.height - tall, wide, tall);
      context.fillStyle = palette().filters.TaintToleration;
      context.fillRect(index * step, histogram.height - tall * bin.refused, wide, tall * bin.refused);
    }
    histogram.dataset.theme = isDark() ? 'dark' : 'light';
  }

  function goTo(at) {
    line.at = at === null || at >= line.decisions.length ? null : Math.max(0, at);
    draw();
    on.time(line.at === null ? null : line.decisions.slice(line.at));
  }

  slider.addEventListener('input', () => goTo(Number(slider.value)));
  byId('earlier').addEventListener('click', () => goTo(end() - 1));
  byId('later').addEventListener('click', () => goTo(end() + 1));
  byId('now').addEventListener('click', () => goTo(null));
  new ResizeObserver(drawHistogram).observe(histogram.parentElement);

  return {
    // What is asked for next; an answer that begins elsewhere replaces what was known.
    next: () => line.next,
    add(answer) {
      if (answer.from !== line.next) line.decisions = [];
      line.decisions.push(...answer.decisions);
      const gone = Math.max(0, line.decisions.length - KEPT);
      line.decisions.splice(0, gone);
      if (line.at !== null) line.at = Math.max(0, line.at - gone);
      line.next = answer.next;
      draw();
      // What came meanwhile is later, too.
      if (line.at !== null) on.time(line.decisions.slice(line.at));
    },
    restart() {
      [line.decisions, line.next] = [[], 0];
    },
    // The decision log that decisions are from; none when the objects of pods tell them.
    from(log) {
      line.log = log ?? null;
      about.title = line.log ?? '';
    },
    step: (by) => goTo(end() + by),
    goTo,
    draw,
    total: () => count(line.decisions.length),
  };
}
