// Draws the figures of a page. Its data are what Page::json (page.h) says: `runs`, lists of `steps`
// that figures refer to by index, `palettes` and `figures`, one for each .plot in order.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const mostColours = 8;
const dashes = [[], [7, 3], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 2, 2, 2, 2], [2, 6], [7, 2, 7, 6]];
const units = {step: "steps", samples: "samples", tokens: "tokens", hours: "hours"};

// What the controls choose. `window`: the range of the horizontal axis; null: all.
const view = {unit: "step", scale: "auto", smoothing: 0, window: null, slotOfRun: new Map()};

// Texts of values

const grouped = (value) => Math.round(value).toLocaleString("en-US");

function bytesText(bytes, digits) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(names.length - 1, Math.floor(Math.log2(Math.max(1, Math.abs(bytes))) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(Math.max(3, digits)))} ${names[power]}`;
}

// A value in few digits, as value_text (known_metrics.h) formats it.
function shortText(value, quantity, digits = 4) {
  if (!Number.isFinite(value)) return "not finite";
  if (quantity === "bytes") return bytesText(value, digits - 1);
  if (quantity === "share") return `${Number((100 * value).toPrecision(digits - 1))} %`;
  const size = Math.abs(value);
  if (size >= 1e9 || (size < 1e-3 && size > 0)) {
    return Number(value.toPrecision(digits - 1)).toExponential();
  }
  return size >= 1e3 && digits < 6 ? grouped(value) : String(Number(value.toPrecision(digits)));
}

// A value on an axis of this range: with as many digits as tell neighbours apart.
function axisText(value, quantity, [low, high]) {
  const share = Math.max(Math.abs(low), Math.abs(high)) / (high - low || 1);
  return shortText(value, quantity, Math.max(4, 3 + Math.ceil(Math.log10(share))));
}

// A value with all digits that were logged.
function loggedText(value, quantity) {
  if (!Number.isFinite(value)) return "not finite";
  if (quantity === "bytes") return `${grouped(value)} B`;
  return quantity === "share" ? `${Number((100 * value).toPrecision(15))} %` : String(value);
}

function positionText(x) {
  const text = view.unit === "hours" ? Number(x.toPrecision(4)) : grouped(x);
  return `${view.unit === "step" ? "step" : units[view.unit]} ${text}`;
}

// The horizontal axis

// The index of the last of ascending `values` that is at most `x`, or -1.
function lastAtMost(values, x) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function nearest(values, x) {
  const before = lastAtMost(values, x);
  if (before < 0) return 0;
  const isNext = before + 1 < values.length && values[before + 1] - x < x - values[before];
  return isNext ? before + 1 : before;
}

// Where a run's step lies in the unit that is chosen; NaN if the run does not tell.
function position(run, step) {
  if (view.unit === "step") return step;
  const {step: steps, [view.unit]: values} = page.runs[run];
  if (!values || steps.length === 0) return NaN;
  const next = Math.min(lastAtMost(steps, step) + 1, steps.length - 1);
  const [x, y] = next > 0 ? [steps[next - 1], values[next - 1]] : [0, 0];
  return y + ((step - x) / (steps[next] - x || 1)) * (values[next] - y);
}

function fullWindow() {
  const ends = page.runs.map((run, i) => position(i, run.last_step));
  return [0, Math.max(0, ...ends.filter(Number.isFinite)) || 1];
}

const shownWindow = () => view.window || fullWindow();

// About `count` round numbers within a range.
function ticks([low, high], count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const result = [];
  for (let i = Math.ceil(low / step); i * step <= high; ++i) result.push(i * step);
  return result;
}

// Elements

function element(name, attributes = {}, ...children) {
  const isDrawing = ["svg", "path", "circle"].includes(name);
  const space = isDrawing ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A sample of the line that is drawn in a slot: its colour, its dashes, and a dot if it has points.
function lineKey(slot, hasPoints) {
  const style = `stroke: var(--c${slot}); fill: var(--c${slot})`;
  const line = element("path", {d: "M0 4H28", style, "stroke-width": 2.5,
                                "stroke-dasharray": dashes[slot].join(" ")});
  const dots = hasPoints ? [element("circle", {cx: 14, cy: 4, r: 3.5, style})] : [];
  return element("svg", {class: "key", viewBox: "0 0 28 8", "aria-hidden": "true"}, line, ...dots);
}

// Curves

const isComparison = page.runs.length > 1;

// Running means with exponential weights, free of a bias to the first values.
function smooth(values) {
  if (view.smoothing === 0) return values;
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = view.smoothing * sum + (1 - view.smoothing) * value;
    weight = view.smoothing * weight + 1 - view.smoothing;
    return sum / weight;
  });
}

class CurveFigure {
  constructor(place, data) {
    this.data = data;
    this.isByRun = isComparison && data.by_run;
    this.hidden = new Set();
    this.chart = element("div", {class: "chart", role: "img",
                                 "aria-label": `${data.title}; the table below has its numbers`});
    this.where = element("p", {class: "values"});
    this.legend = element("ul", {class: "legend"});
    place.querySelector("figcaption").after(this.chart, this.where, this.legend);
    this.lines = data.lines.map((line) => ({...line, steps: page.steps[line.steps],
                                            y: line.y.map((value) => value ?? NaN)}));
    this.chooseLines();
  }

  slot(index) {
    return this.isByRun ? view.slotOfRun.get(this.lines[index].run) : index % mostColours;
  }

  // Takes the lines of chosen runs, and makes their legend.
  chooseLines() {
    this.shown = [...this.lines.keys()].filter((i) => !this.isByRun || this.slot(i) !== undefined);
    this.values = new Map();
    this.legend.replaceChildren(...this.shown.map((i) => {
      const value = element("b");
      this.values.set(i, value);
      const toggle = element("input", {type: "checkbox"});
      toggle.checked = !this.hidden.has(i);
      toggle.addEventListener("change", () => {
        if (toggle.checked) this.hidden.delete(i);
        else this.hidden.add(i);
        this.draw();
      });
      const {name, has_points: hasPoints} = this.lines[i];
      if (this.lines.length === 1) return element("li", {}, value);
      return element("li", {}, element("label", {}, toggle, lineKey(this.slot(i), hasPoints), name),
                     " ", value);
    }));
    this.showLast();
  }

  showLast() {
    this.where.textContent = `over ${units[view.unit]}, last value` +
                             (this.isLogarithmic ? "; logarithmic" : "");
    for (const [i, value] of this.values) {
      const last = this.lines[i].y.filter(Number.isFinite).at(-1);
      value.textContent = shortText(last ?? NaN, this.data.quantity);
    }
  }

  // The logged values next to `x`.
  showValues(x) {
    this.where.textContent = positionText(x);
    for (const [i, value] of this.values) {
      const {low, high, y} = this.lines[i];
      const k = nearest(this.x[i] || [], x);
      const text = loggedText(y[k], this.data.quantity);
      const end = (bound) => shortText(bound[k], this.data.quantity);
      value.textContent = low ? `mean ${text}, ${end(low)} to ${end(high)}` : text;
    }
  }

  // Rows of dygraphs: a position, then for each line its lower end, value and upper end.
  rows() {
    this.x = [];
    const rows = new Map();
    this.shown.forEach((i, column) => {
      const line = this.lines[i];
      this.x[i] = line.steps.map((step) => position(line.run, step));
      const y = smooth(line.y);
      const low = line.low ? smooth(line.low) : y;
      const high = line.high ? smooth(line.high) : y;
      this.x[i].forEach((x, k) => {
        if (!Number.isFinite(x)) return;
        if (!rows.has(x)) rows.set(x, [x, ...this.shown.map(() => null)]);
        rows.get(x)[column + 1] = [low[k] ?? NaN, y[k], high[k] ?? NaN];
      });
    });
    return [...rows.values()].sort((a, b) => a[0] - b[0]);
  }

  // Whether the values differ so much that only their logarithms can be told apart.
  wantsLogarithm() {
    if (view.scale !== "auto") return view.scale === "log";
    const values = this.shown.flatMap((i) => this.lines[i].y).filter(Number.isFinite);
    values.sort((a, b) => a - b);
    return values[0] > 0 && values.at(-1) > 50 * values[values.length >> 1];
  }

  draw() {
    if (this.graph) this.graph.destroy();
    this.graph = null;
    this.isLogarithmic = this.wantsLogarithm();
    this.showLast();
    const rows = this.rows();
    if (rows.length > 0) this.graph = new Dygraph(this.chart, rows, this.options());
  }

  options() {
    const series = {};
    this.shown.forEach((i) => {
      series[`line${i}`] = {color: colour(`--c${this.slot(i)}`), strokePattern: dashes[this.slot(i)],
                            drawPoints: this.lines[i].has_points, pointSize: 3};
    });
    const {quantity} = this.data;
    return {
      labels: ["x", ...this.shown.map((i) => `line${i}`)],
      series,
      visibility: this.shown.map((i) => !this.hidden.has(i)),
      customBars: true,
      connectSeparatedPoints: true,
      dateWindow: shownWindow(),
      logscale: this.isLogarithmic,
      legend: "never",
      strokeWidth: 1.6,
      xAxisHeight: 28,
      fillAlpha: this.shown.length > 3 ? 0.06 : 0.2,
      gridLineColor: colour("--line") + "59",
      axisLineColor: colour("--line"),
      axes: {
        x: {axisLabelFormatter: (x) => (view.unit === "hours" ? shortText(x) : grouped(x)),
            pixelsPerLabel: 80},
        y: {axisLabelFormatter: (y, _, __, graph) => axisText(y, quantity, graph.yAxisRange()),
            axisLabelWidth: 56},
      },
      interactionModel: {...Dygraph.defaultInteractionModel, dblclick: () => chooseWindow(null)},
      highlightCallback: (event, x) => this.showValues(x),
      unhighlightCallback: () => this.showLast(),
      underlayCallback: (context, area, graph) => this.drawMarks(context, area, graph),
      drawCallback: (graph, isFirst) => {
        const [low, high] = graph.xAxisRange();
        const [a, b] = shownWindow();
        if (!isFirst && (low !== a || high !== b)) chooseWindow([low, high], this);
      },
    };
  }

  // Dashed vertical lines where a run was resumed.
  drawMarks(context, area, graph) {
    if (isComparison) return;
    context.save();
    context.strokeStyle = colour("--text");
    context.setLineDash([3, 3]);
    for (const step of page.runs[this.lines[0].run].marks) {
      const x = graph.toDomXCoord(position(0, step));
      context.beginPath();
      context.moveTo(x, area.y);
      context.lineTo(x, area.y + area.h);
      context.stroke();
    }
    context.restore();
  }

  moveWindow() {
    if (this.graph) this.graph.updateOptions({dateWindow: shownWindow()});
  }
}

// The page

const kinds = {curves: CurveFigure, heat: HeatFigure, tokens: TokenFigure};
const figures = [];

// Draws what can be seen; other figures are drawn once they can be.
function redraw(change = (figure) => figure.draw(), except = null) {
  for (const figure of figures) {
    if (figure === except) continue;
    if (figure.isVisible && !figure.isOld) change(figure);
    else figure.isOld = true;
    if (figure.isVisible && figure.isOld) drawFirst(figure);
  }
}

function drawFirst(figure) {
  figure.isOld = false;
  figure.draw();
}

const form = document.getElementById("controls");

// Shows a range of the horizontal axis in all figures; null: all of it.
function chooseWindow(range, from = null) {
  view.window = range;
  const ends = range ? range.map((end) => Number(end.toPrecision(6))) : ["", ""];
  [form.from.value, form.to.value] = ends;
  if (range === null) redraw();
  else redraw((figure) => figure.moveWindow?.(), from);
}

function chooseRun(run, isWanted) {
  const {slotOfRun} = view;
  if (isWanted) {
    const used = new Set(slotOfRun.values());
    slotOfRun.set(run, [...dashes.keys()].find((slot) => !used.has(slot)));
  } else {
    slotOfRun.delete(run);
  }
}

function makeRunChoice() {
  if (!isComparison) return;
  const boxes = page.runs.map((run, i) => {
    const box = element("input", {type: "checkbox"});
    box.checked = i < mostColours;
    if (box.checked) chooseRun(i, true);
    box.addEventListener("change", () => {
      chooseRun(i, box.checked);
      update();
      for (const figure of figures) figure.chooseLines?.();
      redraw();
    });
    form.runs.append(element("label", {}, box, element("span"), run.name));
    return box;
  });
  function update() {
    boxes.forEach((box, i) => {
      box.disabled = !box.checked && view.slotOfRun.size === mostColours;
      box.nextSibling.replaceChildren(...(box.checked ? [lineKey(view.slotOfRun.get(i))] : []));
    });
  }
  update();
  form.runs.hidden = false;
}

function makeControls() {
  for (const [unit, name] of Object.entries(units)) {
    if (page.runs.some((run) => run[unit])) form.unit.append(element("option", {value: unit}, name));
  }
  makeRunChoice();
  form.hidden = !page.figures.some((figure) => figure.curves);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.unit.addEventListener("change", () => {
    view.unit = form.unit.value;
    chooseWindow(null);
  });
  form.scale.addEventListener("change", () => {
    view.scale = form.scale.value;
    redraw();
  });
  form.smoothing.addEventListener("input", () => {
    view.smoothing = Number(form.smoothing.value) / 100;
    redraw();
  });
  for (const end of [form.from, form.to]) {
    end.addEventListener("change", () => {
      const [low, high] = shownWindow();
      const range = [Number(form.from.value || low), Number(form.to.value || high)];
      if (range[0] < range[1]) chooseWindow(range);
    });
  }
  form.reset.addEventListener("click", () => chooseWindow(null));
}

// Paper is white, and has all figures.
function printAll(isPrinting) {
  document.documentElement.classList.toggle("paper", isPrinting);
  for (const figure of figures) drawFirst(figure);
}

function start() {
  makeControls();
  const observer = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) {
      const figure = figures.find(({place}) => place === target);
      figure.isVisible = isIntersecting;
      if (isIntersecting && figure.isOld) drawFirst(figure);
    }
  }, {rootMargin: "400px"});
  document.querySelectorAll(".plot").forEach((place, i) => {
    const [[kind, data]] = Object.entries(page.figures[i]);
    const figure = new kinds[kind](place, data);
    figure.place = place;
    figure.isOld = true;
    figures.push(figure);
    observer.observe(place);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  addEventListener("resize", () => redraw());
  addEventListener("beforeprint", () => printAll(true));
  addEventListener("afterprint", () => printAll(false));
}

start();
