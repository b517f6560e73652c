"use strict";
// Draws the charts: hovering reads values, a click on the name of a group hides it. #data contains the curves; all of a chart have the
// same points x.
const data = JSON.parse(document.getElementById("data").textContent);
const margin = { left: 64, right: 14, top: 10, bottom: 36 }, maxRows = 12, nearLine = 12;
const hidden = new Set(), views = [];
let axis = "step";

function add(parent, name, attributes, text = "") {
  const element = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return parent.appendChild(element);
}

function text(value, digits = 4, notation = "standard") {
  return value.toLocaleString("en", { maximumSignificantDigits: digits, notation });
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => +((first + i) * step).toPrecision(12));
}

// The unit of the horizontal axis up to a value: its size, the name of the axis, and the name after a number.
function unit(last) {
  if (axis === "step") return [1, "environment steps", "steps"];
  if (last < 180) return [1, "seconds of training", "s"];
  return last < 3 * 3600 ? [60, "minutes of training", "min"] : [3600, "hours of training", "h"];
}

// A curve, as a dot if it has one point.
function path(view, parent, y, kind) {
  let pen = "M", d = "";
  y.forEach((value, i) => {
    if (value !== null) d += pen + view.px(i).toFixed(1) + " " + view.py(value).toFixed(1);
    pen = value === null ? "M" : "L";
  });
  const drawn = view.x.map((_, i) => i).filter((i) => y[i] !== null);
  if (drawn.length === 1) add(parent, "circle", { cx: view.px(drawn[0]), cy: view.py(y[drawn[0]]), r: 3, class: "dot " + kind });
  else add(parent, "path", { d, class: kind });
}

function band(view, group) {
  const at = view.x.map((_, i) => i).filter((i) => group.low[i] !== null);
  const edge = (bound) => at.map((i) => view.px(i).toFixed(1) + " " + view.py(bound[i]).toFixed(1));
  if (at.length) add(view.svg, "path", { d: "M" + edge(group.low).concat(edge(group.high).reverse()).join("L") + "Z", class: "band " + group.color });
}

function draw(view) {
  const { svg, chart, section } = view, width = view.width = view.figure.clientWidth, height = svg.clientHeight;
  const labels = data[section].groups;
  view.tip.hidden = true;
  view.x = chart[axis].x;
  view.groups = chart[axis].groups.map((group, i) => ({ ...group, label: labels[i], color: "g" + i % 8, dash: "d" + Math.floor(i / 8) % 3 }))
    .filter((group, i) => group.lines.length && !hidden.has(section + ":" + i));
  const values = view.groups.flatMap((group) => [...group.lines.map((line) => line.y), group.low, group.high].flat()).filter((y) => y !== null);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const pad = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1, right = width - margin.right, bottom = height - margin.bottom;
  // The axis ends a little after the data, so that a training of 999,424 steps has a tick at one million.
  const last = view.x[view.x.length - 1] * 1.01 || 1, [size, caption] = unit(last);
  const place = (x) => margin.left + x / last * (right - margin.left);
  view.px = (i) => place(view.x[i]);
  view.py = (y) => bottom - (y - low + pad) / (high - low + 2 * pad) * (bottom - margin.top);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (!values.length) return;
  for (const y of ticks(low - pad, high + pad, 6)) {
    add(svg, "line", { x1: margin.left, x2: right, y1: view.py(y), y2: view.py(y), class: "grid" });
    add(svg, "text", { x: margin.left - 6, y: view.py(y) + 4, class: "end" }, text(y, 6, "compact"));
  }
  for (const x of ticks(0, last / size, Math.max(2, Math.min(8, width / 90)))) {
    add(svg, "line", { x1: place(x * size), x2: place(x * size), y1: bottom, y2: bottom + 4, class: "axis" });
    add(svg, "text", { x: place(x * size), y: bottom + 17, class: "mid" }, text(x, 6, "compact"));
  }
  add(svg, "line", { x1: margin.left, x2: right, y1: bottom, y2: bottom, class: "axis" });
  add(svg, "text", { x: (margin.left + right) / 2, y: height - 4, class: "mid" }, caption);
  for (const group of view.groups) band(view, group);
  for (const group of view.groups) {
    if (group.lines.length > 1) for (const line of group.lines) path(view, svg, line.y, `thin ${group.color} ${group.dash}`);
    path(view, svg, group.middle, `line ${group.color} ${group.dash}`);
  }
  view.cursor = add(svg, "g", {});
}

function hide(view) {
  view.tip.hidden = true;
  view.cursor.replaceChildren();
}

// Shows the values at the point i; the run whose curve is nearest to the height y is named and highlighted.
function show(view, i, y = -Infinity) {
  views.forEach(hide);
  view.at = i;
  const { svg, tip, figure, cursor } = view, x = view.px(i), [size, , name] = unit(view.x[view.x.length - 1]);
  add(cursor, "line", { x1: x, x2: x, y1: margin.top, y2: svg.clientHeight - margin.bottom, class: "cursor" });
  let near = { distance: nearLine };
  const rows = [];
  for (const group of view.groups) {
    for (const line of group.lines) {
      const distance = line.y[i] === null ? Infinity : Math.abs(view.py(line.y[i]) - y);
      if (group.lines.length > 1 && distance < near.distance) near = { distance, line, group };
    }
    const value = group.middle[i], interval = group.low[i] === null ? "" : ` [${text(group.low[i])}, ${text(group.high[i])}]`;
    if (value === null) continue;
    const runs = group.lines.length > 1 ? `, ${group.count[i]} runs` : "";
    rows.push({ value, color: group.color, text: `${group.label}: ${text(value)}${interval}${runs}` });
    add(cursor, "circle", { cx: x, cy: view.py(value), r: 3.5, class: "dot " + group.color });
  }
  rows.sort((a, b) => b.value - a.value);
  if (near.line) {
    rows.unshift({ color: near.group.color + " strong", text: `${near.line.name}: ${text(near.line.y[i])}` });
    path(view, cursor, near.line.y, "line " + near.group.color);
  }
  tip.replaceChildren();
  add(tip, "b", {}, `${text(view.x[i] / size, axis === "step" ? 15 : 4)} ${name}`);
  for (const row of rows.slice(0, maxRows)) add(tip, "span", { class: row.color }, row.text);
  if (rows.length > maxRows) tip.append(`… ${rows.length - maxRows} more`);
  tip.hidden = false;
  tip.style.left = Math.max(0, x + 14 + tip.offsetWidth < view.width ? x + 14 : x - 14 - tip.offsetWidth) + "px";
  tip.style.top = svg.getBoundingClientRect().top - figure.getBoundingClientRect().top + margin.top + "px";
}

function move(view, event) {
  const box = view.svg.getBoundingClientRect(), x = event.clientX - box.left, away = (i) => Math.abs(view.px(i) - x);
  if (view.groups.length) show(view, view.x.reduce((best, _, i) => (away(i) < away(best) ? i : best), 0), event.clientY - box.top);
}

for (const figure of document.querySelectorAll("figure.chart")) {
  const { section, chart } = figure.dataset, svg = figure.querySelector("svg");
  const view = { figure, svg, section, tip: figure.querySelector(".tip"), chart: data[section].charts[chart], at: 0 };
  views.push(view);
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, (event) => move(view, event));
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(view); });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && view.groups.length) show(view, Math.max(0, Math.min(view.x.length - 1, view.at + by)));
  });
}
for (const choice of document.querySelectorAll("input[name=axis]")) {
  choice.addEventListener("change", () => { axis = choice.value; views.forEach(draw); });
}
for (const chip of document.querySelectorAll("button.chip")) {
  chip.addEventListener("click", () => {
    const key = chip.dataset.section + ":" + chip.dataset.group;
    if (!hidden.delete(key)) hidden.add(key);
    chip.setAttribute("aria-pressed", String(!hidden.has(key)));
    views.forEach(draw);
  });
}
axis = document.querySelector("input[name=axis]:checked").value; // a browser keeps the choice when the page is loaded again
views.forEach(draw);
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) views.filter((view) => view.figure === target && view.width !== target.clientWidth).forEach(draw);
});
for (const view of views) observer.observe(view.figure);
