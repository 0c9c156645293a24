import { drawChart } from './charts.js';
import { FlameView } from './flame_view.js';
import { makeSortable } from './tables.js';
import { TimelineView } from './timeline_view.js';
import { Tip, all, followSections, one, press, root, startPage, style } from './widgets.js';

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
    this.bindTabs();
    this.bindSwitches();
    this.bindFlame();
    this.bindTimeline();
    all('table.sortable').forEach(makeSortable);
    one('#theme').addEventListener('click', () => this.setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark'));
    addEventListener('beforeprint', () => { this.screenTheme = root.dataset.theme; this.setTheme('light'); });
    addEventListener('afterprint', () => this.setTheme(this.screenTheme));
    for (const button of all('[data-more]')) {
      button.addEventListener('click', () => {
        button.closest('.table-block').classList.add('all');
        button.remove();
      });
    }
    followSections();
    this.select(0);
  }

  // Tabs: one trace at a time in the sections that speak of a single one.
  bindTabs() {
    const tabs = all('#traces [role=tab]');
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
  }

  select(trace) {
    this.trace = trace;
    all('#traces [role=tab]').forEach((tab, at) => {
      tab.setAttribute('aria-selected', at === trace);
      tab.tabIndex = at === trace ? 0 : -1;
    });
    for (const panel of all('[data-trace]')) panel.hidden = Number(panel.dataset.trace) !== trace;
    for (const name of all('[data-trace-name]')) name.textContent = this.data.traces[trace].name;
    this.fillDevices();
    this.showFlame();
    this.showTimeline();
    this.drawCharts();
  }

  // Groups of buttons of which one is pressed; `data-panel` elements follow them.
  bindSwitches() {
    document.addEventListener('click', (event) => {
      const button = event.target.closest?.('.switch button');
      if (!button) return;
      const group = button.closest('.switch');
      press(group, button);
      for (const panel of all(`[data-panel^="${group.dataset.switch}:"]`)) {
        panel.hidden = panel.dataset.panel !== `${group.dataset.switch}:${button.value}`;
      }
      group.dispatchEvent(new CustomEvent('choose', { detail: button.value }));
    });
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
    root.dataset.theme = theme;
    one('#theme').setAttribute('aria-pressed', theme === 'dark');
    this.timeline.style = style();
    this.timeline.draw();
    this.drawCharts();
  }
}

if (typeof document !== 'undefined') startPage(Page);
