// Elements are made from text alone: nothing that a cluster says is ever read as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') made.className = value;
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
}

// A square in the colour of a filter, as the legend and the map have it.
export function swatch(colour) {
  const made = element('span', { class: 'swatch', 'aria-hidden': 'true' });
  made.style.background = colour;
  return made;
}

// A horizontal bar that is filled to a share from 0 to 1.
export function bar(share, colour, label) {
  const fill = element('span', { class: 'bar-fill' });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  if (colour) fill.style.background = colour;
  return element('span', { class: 'bar', role: 'img', 'aria-label': label }, fill);
}
