// The colours of the map and its legend. Each filter keeps its colour on every screen and in both themes.

const LIGHT = {
  feasible: '#2f9e63',
  unknown: '#c9d0d8',
  empty: '#dfe5ec',
  filters: {
    NodeResourcesFit: '#3b6fd4',
    TaintToleration: '#e07b2e',
    NodeAffinity: '#8a5cd1',
    PodTopologySpread: '#1a9aa8',
    InterPodAffinity: '#d6498f',
    NodeUnschedulable: '#6f7c8a',
    NodeName: '#9a8f12',
    NodePorts: '#b5503c',
    VolumeBinding: '#a9692c',
    VolumeZone: '#7f8f2a',
    VolumeRestrictions: '#c2527a',
    NodeVolumeLimits: '#5f7a2f',
    DynamicResources: '#4b4fb8',
  },
  others: ['#5a8f9e', '#b08ad6', '#cf9a3a', '#7a5a48', '#538a5f'],
  low: [226, 240, 233],
  high: [16, 94, 62],
  cool: [221, 230, 240],
  middle: [58, 125, 200],
  full: [226, 146, 40],
  over: [190, 44, 38],
};

const DARK = {
  feasible: '#3fbf7d',
  unknown: '#3a444f',
  empty: '#28313a',
  filters: {
    NodeResourcesFit: '#5b8ff0',
    TaintToleration: '#f0944a',
    NodeAffinity: '#a885ee',
    PodTopologySpread: '#35bccb',
    InterPodAffinity: '#ee6cae',
    NodeUnschedulable: '#8795a5',
    NodeName: '#c9bd3c',
    NodePorts: '#d9735e',
    VolumeBinding: '#cf8f4e',
    VolumeZone: '#a9ba4e',
    VolumeRestrictions: '#e07ca0',
    NodeVolumeLimits: '#86a653',
    DynamicResources: '#7d82ee',
  },
  others: ['#7fb5c4', '#c9a8ea', '#e3b45c', '#a58470', '#78b385'],
  low: [33, 52, 45],
  high: [86, 224, 152],
  cool: [37, 48, 61],
  middle: [72, 143, 222],
  full: [240, 171, 70],
  over: [240, 92, 80],
};

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen === 'dark';
  return matchMedia('(prefers-color-scheme: dark)').matches;
}

export function palette() {
  return isDark() ? DARK : LIGHT;
}

// The colour of a filter by name; filters of other people's plugins get one by their name's letters.
export function filterColour(plugin) {
  const colours = palette();
  if (colours.filters[plugin]) return colours.filters[plugin];
  let sum = 0;
  for (const letter of plugin) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return colours.others[sum % colours.others.length];
}

function mixed(from, to, share) {
  const at = (index) => Math.round(from[index] + (to[index] - from[index]) * share);
  return `rgb(${at(0)}, ${at(1)}, ${at(2)})`;
}

export function scoreColour(share) {
  const { low, high } = palette();
  return mixed(low, high, Math.max(0, Math.min(1, share)));
}

// Pale when idle, blue in use, and warm only where little is left.
export function useColour(share) {
  const { cool, middle, full, over } = palette();
  const bounded = Math.max(0, Math.min(1, share));
  if (bounded < 0.75) return mixed(cool, middle, bounded / 0.75);
  return bounded < 0.92 ? mixed(middle, full, (bounded - 0.75) / 0.17) : mixed(full, over, (bounded - 0.92) / 0.08);
}
