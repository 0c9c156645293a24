import { DiffFlameView, widthsOf } from './diff_flame.js';
import { makeSortable } from './tables.js';
import { TimelineView } from './timeline_view.js';
import {
  Tip, all, bindMore, bindSwitches, bindTabs, bindTheme, followSections, markTab, one, showTheme, startPage, style,
} from './widgets.js';

// A timeline that shows the same stretch of time as its partner.
class LinkedTimeline extends TimelineView {
  draw() {
    super.draw();
    const { partner, view } = this;
    if (!partner?.data || !view || (partner.view[0] === view[0] && partner.view[1] === view[1])) return;
    partner.view = [...view];
    partner.draw();
  }
}

class DiffPage {
  constructor(data) {
    this.data = data;
    this.tip = new Tip(one('#tip'));
    const palette = { ...data.colours, words: data.words, meanings: data.meanings, titles: data.titles, skew: data.skew };
    this.flame = new DiffFlameView(one('#flame-graph'), one('#flame-found'), one('#flame-trail'), this.tip, palette);
    this.timelines = ['a', 'b'].map((side) => new LinkedTimeline(one(`#timeline-${side}`), this.tip, palette));
    this.width = 'b';
  }

  start() {
    this.tabs = all('#pairs [role=tab]');
    bindTabs(this.tabs, (pair) => this.select(pair));
    bindSwitches();
    bindTheme(this);
    bindMore();
    this.bindFlame();
    this.bindTimelines();
    all('table.sortable').forEach(makeSortable);
    followSections();
    this.select(0);
  }

  bindFlame() {
    one('#flame-width').addEventListener('choose', (event) => { this.width = event.detail; this.showFlame(); });
    one('#flame-search').addEventListener('input', (event) => this.flame.find(event.target.value));
    one('#flame-reset').addEventListener('click', () => this.flame.zoomTo(0));
  }

  bindTimelines() {
    one('#timeline-by').addEventListener('choose', (event) => {
      for (const timeline of this.timelines) { timeline.by = event.detail; timeline.draw(); }
      for (const legend of all('[data-colours]')) legend.hidden = legend.dataset.colours !== event.detail;
    });
    one('#timeline-in').addEventListener('click', () => this.timelines[0].zoomBy(0.6));
    one('#timeline-out').addEventListener('click', () => this.timelines[0].zoomBy(1 / 0.6));
    one('#timeline-reset').addEventListener('click', () => this.timelines[0].reset());
  }

  select(pair) {
    this.pair = this.data.pairs[pair];
    markTab(this.tabs, pair, 'pair');
    for (const name of ['waterfall', 'parts', 'flame', 'timeline', 'ranks', 'kernels']) {
      const empty = this.pair.empty.includes(name);
      one(`#${name}`).hidden = empty;
      one(`#contents a[href="#${name}"]`).hidden = empty;
    }
    this.showFlame();
    this.showTimelines();
  }

  showFlame() {
    one('#flame-only').textContent = `only in ${this.width.toUpperCase()}`;
    if (this.pair.flame) this.flame.show(widthsOf(this.pair.flame, this.width));
  }

  showTimelines() {
    const [a, b] = this.timelines;
    [a.partner, b.partner] = [null, null];
    this.timelines.forEach((timeline, at) => {
      timeline.inferred = this.pair.inferred[at];
      timeline.show(this.pair.timelines?.[at] ?? null, style());
    });
    [a.partner, b.partner] = [b, a];
  }

  setTheme(theme) {
    showTheme(theme);
    for (const timeline of this.timelines) { timeline.style = style(); timeline.draw(); }
  }
}

if (typeof document !== 'undefined') startPage(DiffPage);
