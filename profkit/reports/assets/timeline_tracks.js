// Tracks of hardware counters above the lanes: steps of the mean over each interval, on a scale from 0.

import { amount, duration, figures, seenOn } from './format.js';
import { above } from './timeline.js';

export const TRACK = 36;
const COLOURS = ['#2A5DB8', '#D1600A'];

// Steps of a line in view, as stretches without a hole: lists of { at, from, to } in pixels.
export function stretches({ start, length }, [from, to], width) {
  const scale = width / (to - from);
  const found = [];
  let end = -Infinity;
  for (let at = Math.max(above(start, from) - 1, 0); at < start.length && start[at] < to; at++) {
    if (start[at] + length[at] <= from) continue;
    if (start[at] > end || !found.length) found.push([]);
    end = start[at] + length[at];
    found.at(-1).push({ at, from: Math.max((start[at] - from) * scale, -1), to: Math.min((end - from) * scale, width + 1) });
  }
  return found;
}

// The interval of a line that holds `time`; -1 where no sample lies.
export function sampleAt({ start, length }, time) {
  const at = above(start, time) - 1;
  return at >= 0 && time < start[at] + length[at] ? at : -1;
}

// What the counters of a track are at `time`, as rows of [word, value]; none where no sample lies.
export function valuesAt(track, time) {
  const rows = [];
  for (const line of track.lines) {
    const at = sampleAt(line, time);
    if (at < 0) continue;
    rows.push([line.name, amount(line.mean[at], track.unit) + range(line, at, track.unit)]);
    if (line === track.lines.at(-1)) rows.push(['mean over', duration(line.length[at])]);
  }
  if (rows.length && track.limit) rows.push(['limit', amount(track.limit, track.unit)]);
  return rows;
}

function range({ low, high }, at, unit) {
  if (!high || figures(low[at]) === figures(high[at])) return '';
  return ` (${figures(low[at])} to ${amount(high[at], unit)})`;
}

// Title and scale beside a track.
export function drawAxis(pen, track, style, left, plot) {
  pen.fillStyle = style.lane;
  pen.fillRect(left, track.y, plot, TRACK);
  pen.fillStyle = style.muted;
  pen.textAlign = 'right';
  pen.font = `10px ${style.font}`;
  pen.fillText(amount(track.scale, track.unit), left - 10, track.y + 5);
  pen.fillText('0', left - 10, track.y + TRACK - 4);
  pen.font = `11px ${style.font}`;
  pen.fillText(track.title, left - 66, track.y + TRACK / 2);
}

// The lines of a track, and its limit.
export function drawTrack(pen, track, view, style) {
  const { left, plot, lane } = style;
  const yOf = (value) => track.y + TRACK - (Math.min(value, track.scale) / track.scale) * (TRACK - 1);
  track.lines.forEach((line, number) => {
    const colour = seenOn(lane, COLOURS[number % COLOURS.length]);
    for (const steps of stretches(line, view, plot)) drawSteps(pen, line, steps, { left, colour, yOf, bottom: track.y + TRACK });
  });
  if (track.limit > track.scale) drawLimitAbove(pen, track, style);
  else if (track.limit) drawLimit(pen, Math.round(yOf(track.limit)) + 0.5, style);
}

function drawLimit(pen, y, { left, plot, ink }) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.setLineDash([2, 3]);
  pen.beginPath();
  pen.moveTo(left, y);
  pen.lineTo(left + plot, y);
  pen.stroke();
  pen.setLineDash([]);
}

function drawLimitAbove(pen, track, { left, plot, lane, muted, font }) {
  const text = `limit ${amount(track.limit, track.unit)}, above the scale`;
  pen.font = `10px ${font}`;
  const room = pen.measureText(text).width + 8;
  pen.fillStyle = lane;
  pen.fillRect(left + plot - room, track.y, room, 13);
  pen.fillStyle = muted;
  pen.fillText(text, left + plot - room + 4, track.y + 7);
}

function drawSteps(pen, line, steps, { left, colour, yOf, bottom }) {
  const path = new Path2D();
  const area = new Path2D();
  pen.fillStyle = colour;
  steps.forEach(({ at, from, to }, place) => {
    const y = yOf(line.mean[at]);
    if (place) path.lineTo(left + from, y);
    else path.moveTo(left + from, y);
    path.lineTo(left + to, y);
    area.rect(left + from, y, to - from, bottom - y);
    if (line.high) area.rect(left + from, yOf(line.high[at]), to - from, yOf(line.low[at]) - yOf(line.high[at]));
  });
  pen.globalAlpha = 0.22;
  pen.fill(area);
  pen.globalAlpha = 1;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.stroke(path);
}
