import { childrenOf, layout, neighbour, pathTo, search } from './flame.js';
import { count, duration, inkOn, mix, percent } from './format.js';

const ROW = 21;
const NARROWEST = 0.6;
const GREY = '#8d95a3';

// A flame graph of page elements: click or Enter to zoom, Escape to reset, arrow keys to walk.
export class FlameView {
  constructor(host, status, trail, tip, palette) {
    Object.assign(this, { host, status, trail, tip, palette, text: '' });
    host.addEventListener('click', (event) => this.zoomTo(this.frameOf(event.target)));
    host.addEventListener('keydown', (event) => this.key(event));
    host.addEventListener('mousemove', (event) => this.hover(event));
    host.addEventListener('mouseleave', () => tip.hide());
    host.addEventListener('focusin', (event) => { this.focused = this.frameOf(event.target) ?? this.focused; });
    trail.addEventListener('click', (event) => {
      if (event.target.dataset.frame !== undefined) this.zoomTo(Number(event.target.dataset.frame));
    });
    new ResizeObserver(() => { if (host.clientWidth !== this.width) this.draw(); }).observe(host);
  }

  show(flame) {
    this.flame = flame;
    this.children = childrenOf(flame);
    this.zoom = 0;
    this.focused = 0;
    this.colours = this.colourAll();
    this.find(this.text);
  }

  frameOf(element) {
    const frame = element.closest?.('[data-frame]')?.dataset.frame;
    return frame === undefined ? undefined : Number(frame);
  }

  zoomTo(frame) {
    if (frame === undefined) return;
    this.zoom = frame;
    this.focused = frame;
    this.tip.hide();
    this.draw();
  }

  find(text) {
    this.text = text;
    this.found = search(this.flame, text);
    const { matches, share } = this.found;
    this.status.textContent = text.trim()
      ? `${count(matches.size)} frame${matches.size === 1 ? '' : 's'} match: ${percent(share)} of the time`
      : '';
    this.draw();
  }

  // A phase colours its ranges, a class its kernels.
  colourAll() {
    const { flame, palette } = this;
    const { levels } = palette.words;
    const own = new Array(flame.parent.length);
    flame.parent.forEach((parent, frame) => {
      const level = levels[flame.level[frame]];
      const label = flame.strings[flame.label[frame]];
      if (level === 'root' || level === 'step') own[frame] = GREY;
      else if (level === 'phase') own[frame] = palette.phases[label];
      else if (level === 'class') own[frame] = palette.classes[label];
      else if (level === 'api') own[frame] = mix(own[parent], GREY, 0.6);
      else own[frame] = level === 'range' || level === 'module' ? mix(own[parent], '#ffffff', 0.22) : mix(own[parent], '#ffffff', 0.35);
    });
    return own;
  }

  draw() {
    if (!this.flame) return;
    const { flame, host } = this;
    this.width = host.clientWidth;
    const frames = layout(flame, this.children, this.zoom, NARROWEST / Math.max(this.width, 1));
    const hadFocus = host.contains(document.activeElement);
    const rows = Math.max(0, ...frames.map((frame) => frame.depth)) + 1;
    host.style.height = `${rows * ROW}px`;
    host.replaceChildren(...frames.map((placed) => this.element(placed)));
    if (!flame.total[0]) host.append(note('Nothing was recorded that could be drawn here.'));
    this.drawTrail();
    if (hadFocus) this.focus(this.focused);
  }

  element({ frame, x, width, depth }) {
    const { flame, found, colours } = this;
    const box = document.createElement('div');
    const label = this.labelOf(frame);
    box.className = 'frame';
    box.dataset.frame = frame;
    box.setAttribute('role', 'treeitem');
    box.setAttribute('aria-level', depth + 1);
    box.setAttribute('aria-label', `${label}, ${this.amount(frame)}`);
    box.tabIndex = frame === this.focused ? 0 : -1;
    box.style.cssText = `left:${100 * x}%;width:${100 * width}%;top:${depth * ROW}px`;
    box.style.background = colours[frame];
    box.style.color = inkOn(colours[frame]);
    if (depth < pathTo(flame, this.zoom).length - 1) box.classList.add('above');
    if (this.text.trim()) box.classList.add(found.matches.has(frame) ? 'match' : 'dim');
    // Padding would make narrow frames wider than their time.
    if (width * this.width > 24) box.textContent = label;
    else box.classList.add('narrow');
    return box;
  }

  // A phase that was told from structure says so.
  labelOf(frame) {
    const { flame } = this;
    const label = flame.strings[flame.label[frame]];
    const phase = this.palette.words.levels[flame.level[frame]] === 'phase';
    return this.inferred && phase && label !== 'prefill' ? `${label} (inferred)` : label;
  }

  drawTrail() {
    const path = pathTo(this.flame, this.zoom);
    this.trail.replaceChildren(...path.map((frame) => {
      const link = document.createElement('button');
      link.type = 'button';
      link.dataset.frame = frame;
      link.textContent = this.labelOf(frame);
      return link;
    }));
    this.trail.hidden = path.length < 2;
  }

  amount(frame) {
    const { flame } = this;
    const steps = Math.max(flame.steps, 1);
    return `${duration(flame.total[frame] / steps)} per step, ${percent(flame.total[frame] / flame.total[0])}`;
  }

  hover(event) {
    const frame = this.frameOf(event.target);
    if (frame === undefined) { this.tip.hide(); return; }
    const { flame, palette } = this;
    const steps = Math.max(flame.steps, 1);
    const zoomed = this.zoom && frame >= this.zoom
      ? `${percent(flame.total[frame] / flame.total[this.zoom])} of what is zoomed to` : '';
    this.tip.show(event, flame.strings[flame.name[frame]], [
      ['level', palette.words.levels[flame.level[frame]]],
      ['per step', duration(flame.total[frame] / steps)],
      ['share', percent(flame.total[frame] / flame.total[0])],
      [this.unit, `${count(Math.round((10 * flame.count[frame]) / steps) / 10)} per step`],
      ['', zoomed],
    ]);
  }

  key(event) {
    if (event.key === 'Enter' || event.key === ' ') this.zoomTo(this.frameOf(event.target));
    else if (event.key === 'Escape') this.zoomTo(0);
    else if (event.key.startsWith('Arrow')) {
      this.focus(neighbour(this.flame, this.children, this.frameOf(event.target) ?? 0, event.key));
    } else return;
    event.preventDefault();
  }

  focus(frame) {
    const box = this.host.querySelector(`[data-frame="${frame}"]`);
    if (!box) return;
    this.host.querySelector('[tabindex="0"]')?.setAttribute('tabindex', '-1');
    box.tabIndex = 0;
    box.focus({ preventScroll: true });
  }
}

function note(text) {
  const line = document.createElement('p');
  line.className = 'empty';
  line.textContent = text;
  return line;
}
