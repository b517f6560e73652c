// Handles pointer and keyboard: the tooltip, the legend, the choice of the axis.
function hide(view) {
  view.tip.hidden = true;
  if (view.cursor) view.cursor.replaceChildren();
}

function lineUnder(view, px, py) {
  let best = null;
  for (const group of view.groups) {
    for (const line of group.lines) {
      const i = nearest(line.x, view.value(px));
      const away = Math.hypot(Math.max(0, Math.abs(view.px(line.x[i]) - px) - 20), view.py(line.y[i]) - py);
      if (away < (best ? best.away : nearLine)) best = { away, group, line, i };
    }
  }
  return best;
}

// The tooltip is next to the cursor, in the half of the chart with fewer curves.
function tooltip(view, x, rows, px, py) {
  view.tip.replaceChildren();
  const head = document.createElement("b");
  head.textContent = state.axis === "step" ? exact(x) + " steps" : clock(x);
  view.tip.append(head);
  for (const row of rows.slice(0, mostRows)) {
    const line = document.createElement("span"), sign = document.createElement("i");
    sign.className = "g" + row.index % 8;
    line.append(sign, row.text);
    if (row.strong) line.className = "strong";
    view.tip.append(line);
  }
  if (rows.length > mostRows) view.tip.append(`… ${rows.length - mostRows} more`);
  view.tip.hidden = false;
  const width = view.tip.offsetWidth, right = px + 14 + width < view.width;
  view.tip.style.left = Math.max(0, right ? px + 14 : Math.min(px - 14 - width, view.width - width)) + "px";
  const above = py > view.height / 2, bottom = view.height - margin.bottom - view.tip.offsetHeight - 4;
  const top = view.svg.getBoundingClientRect().top - view.figure.getBoundingClientRect().top;
  view.tip.style.top = top + (above ? margin.top : Math.max(margin.top, bottom)) + "px";
}

function hover(view, px, py) {
  if (!view.groups.length) return;
  const x = view.value(px), cursor = view.cursor, rows = [];
  let stands = null;
  cursor.replaceChildren();
  const under = lineUnder(view, px, py);
  for (const group of view.groups) {
    const curve = group.middle || group.lines[0], i = nearest(curve.x, x);
    if (Math.abs(view.px(curve.x[i]) - px) > 40 && curve.x.length > 1) continue;
    if (stands === null || Math.abs(curve.x[i] - x) < Math.abs(stands - x)) stands = curve.x[i];
    const interval = group.middle && group.middle.low[i] !== null ? ` [${exact(group.middle.low[i])}, ${exact(group.middle.high[i])}]` : "";
    const runs = group.middle ? `, ${group.middle.count[i]} runs` : "";
    rows.push({ index: group.index, value: curve.y[i], text: `${group.label}: ${exact(curve.y[i])}${interval}${runs}` });
    add(cursor, "circle", { cx: view.px(curve.x[i]), cy: view.py(curve.y[i]), r: 3.5, class: "dot g" + group.index % 8 });
  }
  rows.sort((a, b) => b.value - a.value);
  if (under) {
    const { group, line, i } = under;
    add(cursor, "path", { d: path(view, line.x, line.y), class: "line g" + group.index % 8 });
    if (group.middle) rows.unshift({ index: group.index, strong: true, text: `${line.name}: ${exact(line.y[i])}` });
    if (stands === null) stands = line.x[i];
  }
  if (stands === null) return hide(view);
  const at = view.px(stands);
  add(cursor, "line", { x1: at, x2: at, y1: margin.top, y2: view.height - margin.bottom, class: "cursor" });
  view.at = at;
  const heights = rows.filter((row) => !row.strong).map((row) => view.py(row.value));
  tooltip(view, stands, rows, at, heights.reduce((sum, height) => sum + height, 0) / Math.max(1, heights.length));
}

function place(view, event) {
  const box = view.svg.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function redraw(section) {
  for (const view of views) if (section === undefined || view.section === section) { hide(view); draw(view); }
}

function listen(view) {
  const { svg } = view;
  svg.addEventListener("pointermove", (event) => hover(view, ...place(view, event)));
  svg.addEventListener("pointerdown", (event) => {
    for (const other of views) if (other !== view) hide(other);
    hover(view, ...place(view, event));
  });
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(view); });
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -8, ArrowRight: 8 }[event.key];
    if (event.key === "Escape") hide(view);
    if (!by || !view.groups.length) return;
    event.preventDefault();
    const at = Math.max(view.left, Math.min(view.width - margin.right, (view.keyed === undefined ? view.left : view.keyed) + by));
    view.keyed = at;
    hover(view, at, -100);
  });
}

for (const figure of document.querySelectorAll("figure.chart")) {
  const section = +figure.dataset.section;
  const view = {
    figure, section, svg: figure.querySelector("svg"), tip: figure.querySelector(".tip"),
    chart: data.sections[section].charts[+figure.dataset.chart], groups: [],
  };
  views.push(view);
  listen(view);
}
for (const choice of document.querySelectorAll("input[name=axis]")) {
  choice.addEventListener("change", () => { state.axis = choice.value; redraw(); });
}
for (const chip of document.querySelectorAll("button.chip")) {
  chip.addEventListener("click", () => {
    const key = chip.dataset.section + ":" + chip.dataset.group, hidden = state.hidden.has(key);
    if (hidden) state.hidden.delete(key); else state.hidden.add(key);
    chip.setAttribute("aria-pressed", String(hidden));
    redraw(+chip.dataset.section);
  });
}
const chosen = document.querySelector("input[name=axis]:checked");
if (chosen) state.axis = chosen.value;
// Draws each chart whose width has changed: at once, without waiting for the first frame, and again when the window or a phone's
// orientation changes.
function fit() {
  for (const view of views.filter((view) => view.figure.clientWidth && view.width !== view.figure.clientWidth)) {
    hide(view);
    draw(view);
  }
  document.body.dataset.drawn = views.filter((view) => view.width).length;
}
fit();
const observer = new ResizeObserver(fit);
for (const view of views) observer.observe(view.figure);
