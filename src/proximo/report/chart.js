"use strict";
// Draws the charts of a report. Every figure.chart contains an empty svg; #data contains the numbers as JSON.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { axis: "step", hidden: new Set() };
const views = [];
const margin = { top: 10, right: 14, bottom: 36 };
const mostRows = 12, nearLine = 12;

function add(parent, name, attributes, text) {
  const element = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

// Labels of the ticks of an axis, with as few digits as possible: each label differs from its value by at most a hundredth of a tick
// distance.
function labels(found) {
  const largest = Math.max(0, ...found.map(Math.abs)), step = found.length > 1 ? found[1] - found[0] : largest;
  let digits = 1;
  while (digits < 12 && found.some((value) => Math.abs(+value.toPrecision(digits) - value) > step * 0.01)) digits++;
  return found.map((value) => {
    const size = Math.abs(value);
    for (const [limit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= limit) return String(+(value / limit).toPrecision(digits)) + sign;
    }
    if (largest >= 1e-3 || !size) return String(+value.toPrecision(digits));
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    return +mantissa + "e" + power;
  });
}

function exact(value) {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size && size < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(4));
}

function clock(seconds) {
  if (seconds < 120) return +seconds.toPrecision(3) + " s";
  const minutes = Math.floor(seconds / 60), two = (n) => String(n).padStart(2, "0");
  if (minutes < 60) return minutes + ":" + two(Math.floor(seconds % 60)) + " min";
  return Math.floor(minutes / 60) + ":" + two(minutes % 60) + " h";
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) || 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

// The unit of time that fits a span: [its seconds, its name].
function unit(span) {
  return span < 180 ? [1, "s"] : span < 3 * 3600 ? [60, "min"] : [3600, "h"];
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return x - xs[low] < xs[high] - x ? low : high;
}

// The groups of a chart that are drawn on the current axis: those that are not hidden.
function shown(view) {
  return view.chart.groups.flatMap((group, index) => {
    if (state.hidden.has(view.section + ":" + index)) return [];
    const lines = group.lines.filter((line) => line[state.axis] !== undefined)
      .map((line) => ({ name: line.name, x: line[state.axis], y: line.y }));
    const found = group.middles[state.axis];
    const middle = found && { ...found, y: found.middle };
    return lines.length ? [{ index, lines, middle, label: data.sections[view.section].groups[index] }] : [];
  });
}

function extent(groups, view) {
  let right = -Infinity, low = Infinity, high = -Infinity;
  const see = (value) => {
    if (value === null) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const group of groups) {
    for (const line of group.lines) {
      right = Math.max(right, line.x[line.x.length - 1]);
      line.y.forEach(see);
    }
    if (group.middle) for (const bound of [group.middle.low, group.middle.high]) bound.forEach(see);
  }
  if (!(low <= high)) [low, high] = [0, 1];
  const pad = high > low ? (high - low) * 0.05 : Math.abs(high) * 0.1 || 1;
  // The axis ends a little after the data, so that a training of 999,424 steps has a tick at one million.
  const most = view.chart.most !== null && high <= view.chart.most ? view.chart.most : Infinity;
  return { left: 0, right: Math.max(right * 1.01, 1e-9), low: low - pad, high: Math.min(high + pad, most) };
}

function frame(view, range) {
  const { svg, width, height } = view, bottom = height - margin.bottom;
  const rows = ticks(range.low, range.high, height < 220 ? 4 : 6);
  const texts = labels(rows);
  view.left = 14 + 7 * Math.max(...texts.map((text) => text.length), 2);
  const across = width - view.left - margin.right;
  view.px = (x) => view.left + (x - range.left) / (range.right - range.left) * across;
  view.py = (y) => bottom - (y - range.low) / (range.high - range.low) * (bottom - margin.top);
  view.value = (px) => range.left + (px - view.left) / across * (range.right - range.left);
  rows.forEach((row, i) => {
    add(svg, "line", { x1: view.left, x2: width - margin.right, y1: view.py(row), y2: view.py(row), class: "grid" });
    add(svg, "text", { x: view.left - 6, y: view.py(row) + 4, class: "end" }, texts[i]);
  });
  const [size, name] = state.axis === "step" ? [1, ""] : unit(range.right);
  const columns = ticks(range.left / size, range.right / size, Math.max(2, Math.min(8, across / 80))), below = labels(columns);
  columns.forEach((at, i) => {
    const x = view.px(at * size);
    add(svg, "line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, class: "axis" });
    add(svg, "text", { x, y: bottom + 17, class: x > width - 26 ? "end" : "mid" }, below[i]);
  });
  add(svg, "line", { x1: view.left, x2: width - margin.right, y1: bottom, y2: bottom, class: "axis" });
  const caption = state.axis === "step" ? "environment steps" : { s: "seconds", min: "minutes", h: "hours" }[name] + " of training";
  add(svg, "text", { x: view.left + across / 2, y: height - 4, class: "mid caption" }, caption);
}

function path(view, x, y) {
  return x.map((value, i) => (i ? "L" : "M") + view.px(value).toFixed(1) + " " + view.py(y[i]).toFixed(1)).join("");
}

function bandPath(view, middle) {
  const at = middle.x.map((_, i) => i).filter((i) => middle.low[i] !== null);
  const point = (i, y) => view.px(middle.x[i]).toFixed(1) + " " + view.py(y[i]).toFixed(1);
  if (at.length < 2) return "";
  return "M" + at.map((i) => point(i, middle.high)).join("L") + "L" + at.reverse().map((i) => point(i, middle.low)).join("L") + "Z";
}

function draw(view) {
  view.width = view.figure.clientWidth;
  view.height = view.svg.clientHeight;
  view.svg.replaceChildren();
  view.svg.setAttribute("viewBox", `0 0 ${view.width} ${view.height}`);
  view.groups = shown(view);
  if (!view.groups.length) {
    add(view.svg, "text", { x: view.width / 2, y: view.height / 2, class: "mid" }, "nothing to show on this axis");
    return;
  }
  frame(view, extent(view.groups, view));
  const clip = "clip" + views.indexOf(view), right = view.width - margin.right;
  const box = { x: view.left, y: margin.top - 4, width: Math.max(0, right - view.left + 4), height: view.height - margin.bottom - margin.top + 6 };
  add(add(view.svg, "clipPath", { id: clip }), "rect", box);
  const canvas = add(view.svg, "g", { "clip-path": `url(#${clip})` });
  for (const group of view.groups) if (group.middle) add(canvas, "path", { d: bandPath(view, group.middle), class: "band g" + group.index % 8 });
  for (const group of view.groups) {
    const style = `g${group.index % 8} d${Math.floor(group.index / 8) % 3}`;
    for (const line of group.lines) add(canvas, "path", { d: path(view, line.x, line.y), class: (group.middle ? "thin " : "line ") + style });
    if (group.middle) add(canvas, "path", { d: path(view, group.middle.x, group.middle.y), class: "line " + style });
    for (const line of [group.middle, ...group.lines]) {
      if (line && line.x.length === 1) add(canvas, "circle", { cx: view.px(line.x[0]), cy: view.py(line.y[0]), r: 3, class: "dot g" + group.index % 8 });
    }
  }
  view.cursor = add(canvas, "g", {});
}
