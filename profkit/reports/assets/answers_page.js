import { drawChart } from './charts.js';
import { all, bindMore, bindTheme, followSections, showTheme, startPage, style } from './widgets.js';

// A page of the answers of a workspace's analyzers, without a recording.
class AnswersPage {
  constructor(data) { this.data = data; }

  start() {
    bindTheme(this);
    bindMore();
    followSections();
  }

  drawCharts() {
    if (!this.plotly) return;
    for (const host of all('.chart')) drawChart(this.plotly, host, this.data.charts[host.dataset.chart], style(), false);
  }

  setTheme(theme) {
    showTheme(theme);
    this.drawCharts();
  }
}

if (typeof document !== 'undefined') startPage(AnswersPage);
