// What pages are operated with: tooltip, tabs, switches, contents, the colours of the theme; and how one starts.

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

// Tabs that `select(at)` is called for, by pointer, by arrow keys, and from `data-select` links.
export function bindTabs(tabs, select) {
  tabs.forEach((tab, at) => {
    tab.addEventListener('click', () => select(at));
    tab.addEventListener('keydown', (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = (at + by + tabs.length) % tabs.length;
      select(next);
      tabs[next].focus({ preventScroll: true });
    });
  });
  for (const link of all('[data-select]')) link.addEventListener('click', () => select(Number(link.dataset.select)));
}

// Scrolls a tab into view among the others; the page itself stays where it is.
function showInBox(tab) {
  const [box, own] = [tab.parentElement.getBoundingClientRect(), tab.getBoundingClientRect()];
  tab.parentElement.scrollTop += Math.min(0, own.top - box.top) + Math.max(0, own.bottom - box.bottom);
}

// Only the selected one of `tabs` is reached by the Tab key; `panels` are shown whose `data-<name>` is its number.
export function markTab(tabs, at, name) {
  tabs.forEach((tab, place) => {
    tab.setAttribute('aria-selected', place === at);
    tab.tabIndex = place === at ? 0 : -1;
  });
  if (tabs[at]) showInBox(tabs[at]);
  for (const panel of all(`[data-${name}]`)) panel.hidden = Number(panel.dataset[name]) !== at;
}

// The list of sweeps beside the tabs, where the page has one: choosing a sweep chooses its first recording.
export function bindSweeps(tabs, select) {
  const list = one('#sweep');
  if (!list) return;
  const sweeps = [...new Set(tabs.map((tab) => tab.dataset.sweep))];
  list.append(...sweeps.map((sweep) => new Option(sweep || 'in no sweep', sweep)));
  list.addEventListener('change', () => select(tabs.findIndex((tab) => tab.dataset.sweep === list.value)));
}

// Only the tabs of the sweep of the one `at` are seen.
export function showSweep(tabs, at) {
  const list = one('#sweep');
  if (!list) return;
  list.value = tabs[at].dataset.sweep;
  for (const tab of tabs) tab.hidden = tab.dataset.sweep !== list.value;
}

// The button that changes between light and dark; paper is light.
export function bindTheme(page) {
  one('#theme').addEventListener('click', () => page.setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark'));
  let onScreen;
  addEventListener('beforeprint', () => { onScreen = root.dataset.theme; page.setTheme('light'); });
  addEventListener('afterprint', () => page.setTheme(onScreen));
}

export function showTheme(theme) {
  root.dataset.theme = theme;
  one('#theme').setAttribute('aria-pressed', theme === 'dark');
}

// Buttons that show all rows of a table.
export function bindMore() {
  for (const button of all('[data-more]')) {
    button.addEventListener('click', () => { button.closest('.table-block').classList.add('all'); button.remove(); });
  }
}

// Groups of buttons of which one is pressed; the group is told which by a `choose` event.
export function bindSwitches() {
  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('.switch button');
    if (!button) return;
    const group = button.closest('.switch');
    press(group, button);
    group.dispatchEvent(new CustomEvent('choose', { detail: button.value }));
  });
}

// The entry of the section that is being read is marked in the table of contents.
export function followSections() {
  const links = new Map(all('#contents a').map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const note = (entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? 'add' : 'delete'](entry.target.id);
    const current = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) link.classList.toggle('current', id === current);
  };
  let observer;
  onBarHeight((height) => {
    observer?.disconnect();
    observer = new IntersectionObserver(note, { rootMargin: `${-Math.ceil(height) - READ_BELOW}px 0px -55% 0px` });
    for (const id of links.keys()) observer.observe(document.getElementById(id));
  });
}

// So many pixels below the bar: a section of which no more is left has been read. Links jump to 12 below it.
const READ_BELOW = 28;

// The bar has more rows where the window is narrow or tabs are many.
function onBarHeight(told) {
  const observer = new ResizeObserver(([bar]) => told(bar.borderBoxSize[0].blockSize));
  observer.observe(one('.bar'), { box: 'border-box' });
}

// What a link jumps to stays clear of the bar.
function measureBar() {
  onBarHeight((height) => root.style.setProperty('--bar', `${height}px`));
}

// Shows the data that the document holds in a page of class `Kind`; charts, where there are any, follow, since Plotly
// takes a while.
export async function startPage(Kind) {
  const source = one('#profkit-data');
  const data = JSON.parse(await unpack(source.textContent, source.dataset.encoding));
  root.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  measureBar();
  const page = new Kind(data);
  page.start();
  const plotly = one('#plotly');
  if (plotly) {
    page.plotly = await loadPlotly(plotly);
    page.drawCharts();
  }
  root.dataset.ready = 'true';
}
