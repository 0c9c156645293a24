import { drawChart } from './charts.js';
import { FlameView } from './flame_view.js';
import { makeSortable } from './tables.js';
import { TimelineView } from './timeline_view.js';
import {
  Tip, all, bindMore, bindSweeps, bindSwitches, bindTabs, bindTheme, followSections, markTab, one, press, showSweep,
  showTheme, startPage, style,
} from './widgets.js';

class Page {
  constructor(data) {
    this.data = data;
    this.tip = new Tip(one('#tip'));
    const palette = { ...data.colours, words: data.words, meanings: data.meanings, titles: data.titles, skew: data.skew };
    this.flame = new FlameView(one('#flame-graph'), one('#flame-found'), one('#flame-trail'), this.tip, palette);
    this.timeline = new TimelineView(one('#timeline-canvas'), this.tip, palette);
    this.kind = 'gpu';
    this.trace = 0;
  }

  start() {
    this.tabs = all('#traces [role=tab]');
    bindTabs(this.tabs, (trace) => this.select(trace));
    bindSweeps(this.tabs, (trace) => this.select(trace));
    this.bindSwitches();
    this.bindFlame();
    this.bindTimeline();
    all('table.sortable').forEach(makeSortable);
    bindTheme(this);
    bindMore();
    followSections();
    this.select(0);
  }

  // One trace at a time in the sections that speak of a single one.
  select(trace) {
    this.trace = trace;
    showSweep(this.tabs, trace);
    markTab(this.tabs, trace, 'trace');
    for (const name of all('[data-trace-name]')) name.textContent = this.data.traces[trace].name;
    this.fillDevices();
    this.showFlame();
    this.showTimeline();
    this.drawCharts();
  }

  // `data-panel` elements follow the pressed button of their switch.
  bindSwitches() {
    bindSwitches();
    for (const group of all('.switch[data-switch]')) {
      group.addEventListener('choose', (event) => {
        for (const panel of all(`[data-panel^="${group.dataset.switch}:"]`)) {
          panel.hidden = panel.dataset.panel !== `${group.dataset.switch}:${event.detail}`;
        }
      });
    }
    for (const group of all('.switch[data-scale]')) {
      group.addEventListener('choose', () => this.drawCharts());
    }
  }

  bindFlame() {
    one('#flame-kind').addEventListener('choose', (event) => { this.kind = event.detail; this.showFlame(); });
    one('#flame-device').addEventListener('choose', (event) => { this.device = event.detail; this.showFlame(); });
    one('#flame-search').addEventListener('input', (event) => this.flame.find(event.target.value));
    one('#flame-reset').addEventListener('click', () => this.flame.zoomTo(0));
  }

  bindTimeline() {
    one('#timeline-by').addEventListener('choose', (event) => {
      this.timeline.by = event.detail;
      this.timeline.draw();
    });
    one('#timeline-in').addEventListener('click', () => this.timeline.zoomBy(0.6));
    one('#timeline-out').addEventListener('click', () => this.timeline.zoomBy(1 / 0.6));
    one('#timeline-reset').addEventListener('click', () => this.timeline.reset());
  }

  fillDevices() {
    const { ranks } = this.data.traces[this.trace];
    const devices = Object.keys(ranks).sort((a, b) => ranks[a] - ranks[b]);
    const group = one('#flame-device');
    group.replaceChildren(...devices.map((device) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.value = device;
      button.textContent = `rank ${ranks[device]}`;
      return button;
    }));
    [this.device] = devices;
    if (devices.length) press(group, group.firstElementChild);
    group.hidden = devices.length < 2;
  }

  showFlame() {
    const { flames: ofDevices, inferred } = this.data.traces[this.trace];
    const flames = ofDevices[this.device];
    if (!flames) return;
    this.flame.inferred = inferred;
    this.flame.unit = this.kind === 'gpu' ? 'ops' : 'launch calls';
    this.flame.show(flames[this.kind]);
  }

  showTimeline() {
    const trace = this.data.traces[this.trace];
    this.timeline.inferred = trace.inferred;
    this.timeline.show(trace.timeline, style());
  }

  drawCharts() {
    if (!this.plotly) return;
    for (const host of all('.chart')) {
      const figure = this.data.charts[host.dataset.chart];
      if (!figure || host.closest('[hidden]')) continue;
      const group = one(`.switch[data-scale="${host.dataset.chart}"] [aria-pressed=true]`);
      drawChart(this.plotly, host, figure, style(), group?.value === 'share');
    }
  }

  setTheme(theme) {
    showTheme(theme);
    this.timeline.style = style();
    this.timeline.draw();
    this.drawCharts();
  }
}

if (typeof document !== 'undefined') startPage(Page);
