// Heat maps and tokens of a page, drawn with the view and the texts of page.js, which follows.

const heatLeft = 54;
const heatFooter = 22;

// The steps that a row's values stand for, (begin, end]: from the end of the value before, unless
// that is further than the values next to it are apart, so that records are missing.
function spans(begins, ends) {
  const gaps = begins.map((begin, i) => begin - (i > 0 ? ends[i - 1] : 0));
  return begins.map((begin, i) => {
    const most = Math.max(gaps[i - 1] ?? 0, gaps[i + 1] ?? 0) || gaps[i];
    return [begin - Math.min(gaps[i], most), ends[i]];
  });
}

class HeatFigure {
  constructor(place, data) {
    this.data = data;
    this.rowHeight = Math.min(16, Math.max(1.5, 150 / data.rows.length));
    this.height = Math.round(this.rowHeight * data.rows.length);
    this.chart = element("div", {class: "chart", role: "img",
                                 "aria-label": `${data.title}; the table below has its numbers`});
    this.chart.style.height = `${this.height + heatFooter}px`;
    this.canvas = element("canvas");
    this.where = element("p", {class: "values"}, data.note);
    const bar = element("div", {class: "bar"});
    bar.style.background = `linear-gradient(to right, ${page.palettes[data.palette].join(", ")})`;
    const ends = element("div", {class: "ends"}, ...this.scaleTexts().map((text) => element("span", {}, text)));
    place.querySelector("figcaption").after(this.chart, this.where, bar, ends);
    this.rows = data.rows.map((row) => ({...row, spans: spans(page.steps[row.begins],
                                                              page.steps[row.ends])}));
    this.canvas.addEventListener("mousemove", (event) => this.showValue(event));
    this.canvas.addEventListener("mouseleave", () => { this.where.textContent = data.note; });
  }

  moveWindow() { this.draw(); }

  scaleTexts() {
    const {low, high, palette, quantity} = this.data;
    const texts = [low, high].map((value) => shortText(value, quantity));
    return palette === "load" ? [`≤ ${texts[0]}`, "1 (even)", `≥ ${texts[1]}`] : texts;
  }

  // A load's distance from the even share counts in octaves.
  colourOf(value) {
    if (value === null) return "#808080";
    const {low, high, palette, logarithmic} = this.data;
    if (palette === "load" && value <= 0) return "#000";
    const scale = palette === "load" || logarithmic ? Math.log : (x) => x;
    const place = (scale(value) - scale(low)) / (scale(high) - scale(low) || 1);
    const colours = page.palettes[palette];
    return colours[Math.round(Math.min(1, Math.max(0, place)) * (colours.length - 1))];
  }

  draw() {
    const width = Math.max(1, this.chart.clientWidth - heatLeft - 8);
    const density = window.devicePixelRatio || 1;
    Object.assign(this.canvas, {width: width * density, height: this.height * density});
    Object.assign(this.canvas.style, {width: `${width}px`, height: `${this.height}px`});
    const context = this.canvas.getContext("2d");
    context.scale(density, density);
    context.fillStyle = "#808080";
    context.fillRect(0, 0, width, this.height);
    const [low, high] = shownWindow();
    const place = (step) => ((position(this.data.run, step) - low) / (high - low)) * width;
    this.rows.forEach((row, r) => {
      const top = Math.round(r * this.rowHeight);
      const bottom = Math.round((r + 1) * this.rowHeight);
      row.spans.forEach(([begin, end], k) => {
        const left = place(begin);
        context.fillStyle = this.colourOf(row.values[k]);
        context.fillRect(left, top, Math.max(0.5, place(end) - left + 0.3), bottom - top);
      });
    });
    if (this.data.split) {
      context.fillStyle = colour("--page");
      context.fillRect(0, Math.round(this.data.split * this.rowHeight) - 1, width, 2);
    }
    this.chart.replaceChildren(this.canvas, ...this.rowLabels(), ...this.stepLabels([low, high], width));
  }

  rowLabels() {
    const stride = Math.ceil(14 / this.rowHeight);
    return this.rows.filter((row, r) => r % stride === 0).map((row, i) => {
      const label = element("span", {class: "tick"}, row.label);
      const top = (i * stride + 0.5) * this.rowHeight - 7;
      label.style = `right: calc(100% - ${heatLeft - 6}px); top: ${top}px`;
      return label;
    });
  }

  stepLabels([low, high], width) {
    return ticks([low, high], Math.max(1, Math.floor(width / 90))).map((tick) => {
      const label = element("span", {class: "tick"}, view.unit === "hours" ? shortText(tick) : grouped(tick));
      const share = (tick - low) / (high - low);
      // Labels at the ends are shifted to stay within the figure.
      label.style = `left: ${heatLeft + share * width}px; top: ${this.height + 4}px; ` +
                    `transform: translateX(-${share > 0.9 ? 90 : share < 0.1 ? 10 : 50}%)`;
      return label;
    });
  }

  showValue(event) {
    const {rows, data} = this;
    const row = rows[Math.min(rows.length - 1, Math.floor(event.offsetY / this.rowHeight))];
    const [low, high] = shownWindow();
    const x = low + (event.offsetX / this.canvas.clientWidth) * (high - low);
    const k = row.spans.findIndex(([begin, end]) =>
      position(data.run, begin) < x && x <= position(data.run, end));
    const value = k < 0 || row.values[k] === null ? "nothing was logged"
                                                  : shortText(row.values[k], data.quantity);
    this.where.textContent = `${positionText(x)}, ${row.name}: ${value}`;
  }
}

// Tokens with a box for each layer, filled where the token attends.
class TokenFigure {
  constructor(place, data) {
    this.list = element("ol", {role: "list"});
    this.data = data;
    place.append(this.list);
  }

  draw() {
    const labelled = new Set(this.data.labelled);
    this.list.replaceChildren(...this.data.texts.map((text, i) => this.item(text, i, labelled.has(i))));
  }

  item(text, i, isLabelled) {
    const layers = this.data.open.map((bits, layer) => (bits[i] === "1" ? layer + 1 : 0));
    const open = layers.filter((layer) => layer > 0);
    const spoken = (isLabelled ? "labelled, " : "") +
                   (open.length > 0 ? `attends in layer ${open.join(", ")}` : "does not attend");
    const boxes = layers.map((layer) => (layer > 0 ? element("i", {class: "open"}, layer) : element("i")));
    return element("li", isLabelled ? {class: "labelled"} : {}, element("code", {}, text),
                   element("span", {class: "spoken"}, spoken),
                   element("span", {"aria-hidden": "true"}, ...boxes));
  }
}
