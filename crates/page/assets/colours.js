// The colours of the map and its legend. Each filter keeps its colour on every screen and in both themes.

// Each colour in light and in dark.
const COLOURS = {
  feasible: ['#2f9e63', '#3fbf7d'],
  unknown: ['#c9d0d8', '#3a444f'],
  empty: ['#dfe5ec', '#28313a'],
  filters: {
    NodeResourcesFit: ['#3b6fd4', '#5b8ff0'],
    TaintToleration: ['#e07b2e', '#f0944a'],
    NodeAffinity: ['#8a5cd1', '#a885ee'],
    PodTopologySpread: ['#1a9aa8', '#35bccb'],
    InterPodAffinity: ['#d6498f', '#ee6cae'],
    NodeUnschedulable: ['#6f7c8a', '#8795a5'],
    NodeName: ['#9a8f12', '#c9bd3c'],
    NodePorts: ['#b5503c', '#d9735e'],
    VolumeBinding: ['#a9692c', '#cf8f4e'],
    VolumeZone: ['#7f8f2a', '#a9ba4e'],
    VolumeRestrictions: ['#c2527a', '#e07ca0'],
    NodeVolumeLimits: ['#5f7a2f', '#86a653'],
    DynamicResources: ['#4b4fb8', '#7d82ee'],
  },
  others: [
    ['#5a8f9e', '#b08ad6', '#cf9a3a', '#7a5a48', '#538a5f'],
    ['#7fb5c4', '#c9a8ea', '#e3b45c', '#a58470', '#78b385'],
  ],
  low: [[226, 240, 233], [33, 52, 45]],
  high: [[16, 94, 62], [86, 224, 152]],
  cool: [[221, 230, 240], [37, 48, 61]],
  middle: [[58, 125, 200], [72, 143, 222]],
  full: [[226, 146, 40], [240, 171, 70]],
  over: [[190, 44, 38], [240, 92, 80]],
};

function inTheme(colours, theme) {
  const chosen = (value) => (Array.isArray(value) ? value[theme] : inTheme(value, theme));
  return Object.fromEntries(Object.entries(colours).map(([name, value]) => [name, chosen(value)]));
}

const [LIGHT, DARK] = [inTheme(COLOURS, 0), inTheme(COLOURS, 1)];

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
