// The pure functions of the page of a comparison: node --test tests/diff/test_diff_page.mjs
import assert from 'node:assert/strict';
import { test } from 'node:test';

globalThis.ResizeObserver ??= class { observe() {} };
const asset = new URL('../../profkit/reports/assets/diff_flame.js', import.meta.url);
const { FASTER, SLOWER, changeColour, relative, signed, widthsOf } = await import(asset);

const plain = (text) => text.replace(/[\u00a0\u202f]/g, ' ');

test('changes have a sign', () => {
  assert.equal(plain(signed(1500)), '+1.50 µs');
  assert.equal(plain(signed(-122050679)), '−122 ms');
  assert.equal(plain(signed(0)), '0 ns');
});

test('red is longer, blue is shorter, and full colour twice or half', () => {
  assert.equal(changeColour(10, 20), SLOWER);
  assert.equal(changeColour(20, 10), FASTER);
  assert.equal(changeColour(7, 7), changeColour(0, 0));
  assert.notEqual(changeColour(100, 107), changeColour(100, 93));
});

test('what only one side has is neither longer nor shorter', () => {
  assert.equal(changeColour(0, 5), changeColour(7, 7));
  assert.equal(changeColour(5, 0), changeColour(7, 7));
});

test('changes are shares of A, and factors from ten times on', () => {
  assert.deepEqual([[100, 105], [100, 50], [100, 1100], [7, 1000], [0, 5], [5, 0]].map(([a, b]) => plain(relative(a, b))),
    ['+5.0 %', '−50 %', '11.0 times', '143 times', 'new', 'gone']);
});

test('widths are those of one side', () => {
  const flame = { a: [4, 1], b: [6, 3], a_count: [2, 1], b_count: [3, 2], parent: [-1, 0] };
  assert.deepEqual(widthsOf(flame, 'a').total, [4, 1]);
  assert.deepEqual(widthsOf(flame, 'b').count, [3, 2]);
  assert.equal(widthsOf(flame, 'b').steps, 1);
});
