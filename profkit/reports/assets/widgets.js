// What pages are operated with: tooltip, switches, contents, the colours of the theme; and how one starts.

import { loadPlotly } from './charts.js';
import { unpack } from './payload.js';

export const root = globalThis.document?.documentElement;
export const one = (selector) => document.querySelector(selector);
export const all = (selector) => [...document.querySelectorAll(selector)];

// A box beside the pointer: a name, and rows of [word, value].
export class Tip {
  constructor(element) { this.element = element; }

  show(event, name, rows) {
    const { element } = this;
    const title = document.createElement('strong');
    title.textContent = name.length > 300 ? `${name.slice(0, 300)}…` : name;
    const list = document.createElement('dl');
    for (const [word, value] of rows) {
      if (!value) continue;
      const [term, text] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = word;
      text.textContent = value;
      if (!word) text.className = 'wide';
      list.append(...(word ? [term, text] : [text]));
    }
    element.replaceChildren(title, list);
    element.hidden = false;
    const { width, height } = element.getBoundingClientRect();
    const [x, y] = [event.clientX + 14, event.clientY + 16];
    element.style.left = `${Math.max(8, Math.min(x, innerWidth - width - 12))}px`;
    element.style.top = `${y + height > innerHeight - 8 ? Math.max(8, event.clientY - height - 12) : y}px`;
  }

  hide() { this.element.hidden = true; }
}

export function style() {
  const of = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  return { ink: of('--ink'), muted: of('--muted'), line: of('--line'), panel: of('--raised'), lane: of('--lane'),
    select: of('--select'), faintest: Number(of('--faintest')), font: getComputedStyle(document.body).fontFamily };
}

export function press(group, button) {
  for (const other of group.querySelectorAll('button')) other.setAttribute('aria-pressed', other === button);
}

// The entry of the section that is being read is marked in the table of contents.
export function followSections() {
  const links = new Map(all('#contents a').map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? 'add' : 'delete'](entry.target.id);
    const current = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) link.classList.toggle('current', id === current);
  }, { rootMargin: '-80px 0px -55% 0px' });
  for (const id of links.keys()) observer.observe(document.getElementById(id));
}

// Shows the data that the document holds in a page of class `Kind`; charts follow, since Plotly takes a while.
export async function startPage(Kind) {
  const source = one('#profkit-data');
  const data = JSON.parse(await unpack(source.textContent, source.dataset.encoding));
  root.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const page = new Kind(data);
  page.start();
  page.plotly = await loadPlotly(one('#plotly'));
  page.drawCharts();
  root.dataset.ready = 'true';
}
