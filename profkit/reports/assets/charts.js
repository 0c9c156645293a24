import { unpack } from './payload.js';

// Plotly's own script is evaluated once the page stands; it is the largest part of the file.
export async function loadPlotly(element) {
  const script = document.createElement('script');
  script.textContent = await unpack(element.textContent, 'gzip+base64');
  element.remove();
  document.head.append(script);
  return globalThis.Plotly;
}

// A figure's layout with the colours and letters of the page.
export function themed(layout, style) {
  const axis = (own) => ({
    ...own,
    gridcolor: style.line,
    linecolor: style.line,
    title: { ...own?.title, font: { color: style.muted, size: 12 } },
    tickfont: { size: 12 },
  });
  return {
    ...layout,
    annotations: (layout.annotations ?? []).map((note) => ({ ...note, font: { size: 12.5, color: style.ink } })),
    font: { family: style.font, color: style.ink, size: 12 },
    hoverlabel: { bgcolor: style.panel, bordercolor: style.line, font: { color: style.ink, family: style.font } },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
  };
}

export function drawChart(plotly, host, figure, style, asShare) {
  const layout = themed(figure.layout, style);
  // The wall times stand behind the bars, which then all end at 100.
  const data = figure.data.map((trace) => (
    asShare && trace.mode === 'text' ? { ...trace, x: trace.x.map(() => 100) } : trace
  ));
  if (asShare) {
    layout.barnorm = 'percent';
    layout.xaxis = { ...layout.xaxis, range: [0, 100], ticksuffix: '\u00a0%', title: { ...layout.xaxis.title, text: 'share of the step; its length behind each bar' } };
  }
  return plotly.react(host, data, layout, { displayModeBar: false, responsive: true });
}
