// What a page must keep to at any width and in both schemes of colours. The value is a list of
// mistakes, each a text.
(() => {
  const mistakes = [];
  const named = (element) => {
    const text = (element.textContent || "").trim().slice(0, 40);
    return `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") || ""}"> '${text}'`;
  };
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const widest = [...document.querySelectorAll("body *")].filter(
      (e) => e.getBoundingClientRect().right > root.clientWidth + 0.5 && !e.closest(".scroll"));
    mistakes.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}: ` +
                  widest.slice(0, 3).map(named).join(", "));
  }

  // Contrast: WCAG 2, relative luminance.
  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return numbers.length > 3 ? numbers : [...numbers, 1];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const backgrounds = new Map([[null, [255, 255, 255]]]);
  const background = (element) => {
    if (!backgrounds.has(element)) {
      const own = parse(getComputedStyle(element).backgroundColor);
      backgrounds.set(element, over(own, background(element.parentElement)));
    }
    return backgrounds.get(element);
  };
  const is_shown = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && box.right > 0;
  };
  const texts = [...document.querySelectorAll("body *")].filter((e) => is_shown(e) &&
    [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));
  for (const element of texts) {
    const style = getComputedStyle(element);
    const colour = parse(element.closest("svg") ? style.fill : style.color);
    const behind = background(element);
    const ratio = contrast(over(colour, behind), behind);
    if (ratio < 4.5) mistakes.push(`contrast ${ratio.toFixed(2)} of ${named(element)}`);
  }
  for (const key of document.querySelectorAll(".key path")) {
    const behind = background(key.closest("li, label"));
    const ratio = contrast(over(parse(getComputedStyle(key).stroke), behind), behind);
    if (ratio < 3) mistakes.push(`contrast ${ratio.toFixed(2)} of a curve, ${key.outerHTML}`);
  }

  // Pictures: all are drawn, nothing is cut off, no labels lie on each other, text is large enough.
  for (const figure of document.querySelectorAll("figure.curves, figure.heat")) {
    const title = figure.querySelector("figcaption").textContent;
    const frame = figure.getBoundingClientRect();
    if (figure.querySelectorAll("canvas").length === 0) mistakes.push(`'${title}' is not drawn`);
    for (const canvas of figure.querySelectorAll("canvas")) {
      const box = canvas.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.width < 100) {
        mistakes.push(`the picture of '${title}' goes from ${box.left} to ${box.right}, its place ` +
                      `from ${frame.left} to ${frame.right}`);
      }
    }
    const labels = [...figure.querySelectorAll(".dygraph-axis-label, .tick")]
        .filter((label) => label.textContent !== "");  // small ticks of logarithmic axes have none
    if (labels.length < 3) mistakes.push(`'${title}' has ${labels.length} labels`);
    const boxes = labels.map((label) => {
      const range = document.createRange();
      range.selectNodeContents(label);  // the text, without the box that it is aligned in
      return [label.textContent, range.getBoundingClientRect()];
    });
    boxes.forEach(([text, a], i) => {
      if (a.left < frame.left - 2 || a.right > frame.right + 2) {
        mistakes.push(`'${text}' is cut off in '${title}'`);
      }
      if (a.height < 9) mistakes.push(`'${text}' is ${a.height} high in '${title}'`);
      for (const [other, b] of boxes.slice(i + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        // Lines of text have some room above and below their letters.
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 0.5 && down > 0.3 * a.height) {
          mistakes.push(`'${text}' and '${other}' lie on each other in '${title}'`);
        }
      }
    });
  }
  for (const figure of document.querySelectorAll("figure.tokens")) {
    if (!figure.querySelector("li")) mistakes.push(`'${figure.textContent.trim()}' is not drawn`);
  }
  for (const figure of document.querySelectorAll(".pictures figure")) {
    const title = figure.querySelector("figcaption").textContent;
    const frame = figure.getBoundingClientRect();
    let end = frame.left;  // of the image before
    for (const image of figure.querySelectorAll("img")) {
      const box = image.getBoundingClientRect();
      if (box.left < end - 1 || box.right > frame.right + 1 || box.width < 16 || box.height < 16) {
        mistakes.push(`an image of '${title}', ${box.width} x ${box.height}, goes from ${box.left} to ${box.right}, ` +
                      `its place from ${end} to ${frame.right}`);
      }
      end = box.right;
    }
    if (end === frame.left) mistakes.push(`'${title}' has no image`);
  }
  for (const image of document.querySelectorAll("img")) {
    if (image.naturalWidth === 0) mistakes.push(`a broken image: ${image.alt}`);
  }

  // Headings in order, tables with captions and heads, identifiers once.
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) mistakes.push(`${named(heading)} skips a level`);
    level = next;
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) mistakes.push(`a table without a caption: ${named(table)}`);
    if (!table.closest(".scroll[tabindex='0'][role=region][aria-label]")) {
      mistakes.push(`a table that keys do not scroll: ${named(table)}`);  // not in all browsers
    }
    for (const head of table.querySelectorAll("th")) {
      if (!head.scope) mistakes.push(`a head without a scope: ${named(head)}`);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) {
    mistakes.push(`two elements are called '${id}'`);
  }
  for (const link of document.querySelectorAll("a[href^='#']")) {
    if (!document.getElementById(link.hash.slice(1))) mistakes.push(`${link.hash} leads nowhere`);
  }
  if (!root.lang) mistakes.push("no language");
  return mistakes;
})()
