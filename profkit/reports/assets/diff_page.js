import { drawChart } from './charts.js';
import { DiffFlameView, widthsOf } from './diff_flame.js';
import { makeSortable } from './tables.js';
import { TimelineView } from './timeline_view.js';
import { Tip, all, followSections, one, press, root, startPage, style } from './widgets.js';

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
    const tabs = all('#pairs [role=tab]');
    tabs.forEach((tab, at) => {
      tab.addEventListener('click', () => this.select(at));
      tab.addEventListener('keydown', (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const next = (at + by + tabs.length) % tabs.length;
        this.select(next);
        tabs[next].focus();
      });
    });
    for (const link of all('[data-select]')) link.addEventListener('click', () => this.select(Number(link.dataset.select)));
    this.bindControls();
    all('table.sortable').forEach(makeSortable);
    followSections();
    this.select(0);
  }

  bindControls() {
    for (const group of all('.switch')) {
      group.addEventListener('click', (event) => {
        const button = event.target.closest('button');
        if (!button) return;
        press(group, button);
        group.dispatchEvent(new CustomEvent('choose', { detail: button.value }));
      });
    }
    one('#flame-width').addEventListener('choose', (event) => { this.width = event.detail; this.showFlame(); });
    one('#flame-search').addEventListener('input', (event) => this.flame.find(event.target.value));
    one('#flame-reset').addEventListener('click', () => this.flame.zoomTo(0));
    one('#timeline-by').addEventListener('choose', (event) => {
      for (const timeline of this.timelines) { timeline.by = event.detail; timeline.draw(); }
      for (const legend of all('[data-colours]')) legend.hidden = legend.dataset.colours !== event.detail;
    });
    one('#timeline-in').addEventListener('click', () => this.timelines[0].zoomBy(0.6));
    one('#timeline-out').addEventListener('click', () => this.timelines[0].zoomBy(1 / 0.6));
    one('#timeline-reset').addEventListener('click', () => this.timelines[0].reset());
    one('#theme').addEventListener('click', () => this.setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark'));
    addEventListener('beforeprint', () => { this.screenTheme = root.dataset.theme; this.setTheme('light'); });
    addEventListener('afterprint', () => this.setTheme(this.screenTheme));
    for (const button of all('[data-more]')) {
      button.addEventListener('click', () => { button.closest('.table-block').classList.add('all'); button.remove(); });
    }
  }

  select(pair) {
    this.pair = this.data.pairs[pair];
    all('#pairs [role=tab]').forEach((tab, at) => {
      tab.setAttribute('aria-selected', at === pair);
      tab.tabIndex = at === pair ? 0 : -1;
    });
    for (const panel of all('[data-pair]')) panel.hidden = Number(panel.dataset.pair) !== pair;
    one('#flame').hidden = !this.pair.flame;
    one('#timeline').hidden = !this.pair.timelines;
    one('#waterfall').hidden = !this.pair.flame;
    this.showFlame();
    this.showTimelines();
    this.drawCharts();
  }

  showFlame() {
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

  drawCharts() {
    if (!this.plotly) return;
    for (const host of all('.chart')) {
      const figure = this.data.charts[host.dataset.chart];
      if (figure && !host.closest('[hidden]')) drawChart(this.plotly, host, figure, style(), false);
    }
  }

  setTheme(theme) {
    root.dataset.theme = theme;
    one('#theme').setAttribute('aria-pressed', theme === 'dark');
    for (const timeline of this.timelines) { timeline.style = style(); timeline.draw(); }
    this.drawCharts();
  }
}

if (typeof document !== 'undefined') startPage(DiffPage);
