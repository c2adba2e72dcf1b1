#!/usr/bin/env python3
"""Renders pages of real runs in Chromium, at three widths and in both schemes of colours, and uses
them as a reader does.

Usage: report.py CHROMIUM SHOAL      works in the current folder; exit 1 with the mistakes found
"""
import json
import os
import shutil
import subprocess
import sys
import time

from chromium import Chromium

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "..", "cli", "recipes", "tiny.yaml")
WIDTHS = (400, 800, 1280)
with open(os.path.join(HERE, "page_checks.js"), encoding="utf-8") as file:
    CHECKS = file.read()

# A denoiser with experts, and a model with token gates, whose layers' norms are logged.
DENOISER = ("task={name: denoise}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}",
            "model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 16, pool: mean, "
            "moe: {router: {name: top_k, k: 1}, experts: {count: 2, hidden: 16}}}")
GATED = ("task={name: lm}",
         "data={source: mqar, sequence: 64, vocabulary: 128, pairs: 8, train: {samples: 256}, "
         "valid: {samples: 32}}",
         "model={backbone: hspmn, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, "
         "gate: {rate: 0.3, anchor_every: 16}}", "run.log_layers=1step")
# A model with Nexus layers, and one whose masks and permutations change.
NEXUS = ("train.duration=10step",
         "model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 16, nexus: {slots: 2, "
         "experts: {count: 2, hidden: 16}, memory: {count: 1, keys: 16}}}")
SPARSE = ("train.duration=20step", "checkpoint={every: 5step, keep_last: 4}",
          "sparsity={density: 0.5, layers: [channel_mlp, moe_c], pattern: {name: block, size: 4}, "
          "rule: {every: 5step}, permutation: {name: learned, until: 50%}}")

mistakes = []


def expect(holds, what):
    if not holds:
        mistakes.append(what)


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}, wanted {code}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def nine_name(i):
    """One of the names is too long for a line of a narrow screen."""
    return f"nine/run{i}" + "_of_a_sweep_over_learning_rates_and_weight_decays" * (i == 8)


def make_runs(shoal):
    """A run that was stopped and resumed, another one to compare it with, and other models'."""
    alone = ("run.root=.", "parallel.expert_ranks=1")
    run(shoal, "train", TINY, *alone, "run.name=resumed", "run.stop_after=15step", code=75)
    expect(os.path.exists("resumed/report.html"), "no report after a stop")
    run(shoal, "train", TINY, *alone, "run.name=resumed", "run.on_existing=resume")
    run(shoal, "train", TINY, *alone, "run.name=other", "run.seed=2", "optimizer.lr=5e-3")
    for name, changes in (("denoiser", DENOISER), ("gated", GATED), ("nexus", NEXUS), ("sparse", SPARSE)):
        run(shoal, "train", TINY, *alone, f"run.name={name}", *changes)
    expect(run(shoal, "report", "resumed", "other", "--out", "both.html") == "both.html\n",
           "report does not print its file")
    os.makedirs("nine", exist_ok=True)
    for i in range(9):
        shutil.copytree("other" if i % 2 else "resumed", nine_name(i))
    run(shoal, "report", "nine", "--out", "nine.html")
    write_long_run("long", 100_000)
    run(shoal, "report", "long")
    run(shoal, "inspect", "gated", "--gates", "gates.html")
    run(shoal, "inspect", "nexus", "--activation-maps", "activations", "--images", "3")
    run(shoal, "inspect", "denoiser", "--expert-maps", "experts", "--images", "3")
    run(shoal, "inspect", "sparse", "--sparsity", "-o", "sparsity.html")
    run(shoal, "inspect", "resumed", "--experts", "--heat-map", "loads.svg")


def write_long_run(folder, steps):
    os.makedirs(folder)
    with open(f"{folder}/resolved.yaml", "w", encoding="utf-8") as out:
        out.write("run:\n  name: long\n")
    with open(f"{folder}/metrics.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, steps + 1):
            out.write(json.dumps({"step": step, "samples": 8 * step, "loss": 3 / step ** 0.5,
                                  "lr": 1e-3 * (1 - step / steps), "grad_norm": 1 + step % 7 / 10,
                                  "samples_per_second": 800.0, "data_wait": step % 3 / 100,
                                  "memory_bytes": 2 ** 28 + step}) + "\n")
    with open(f"{folder}/experts.jsonl", "w", encoding="utf-8") as out:
        for step in range(1, steps + 1, 10):
            for layer in ("blocks.1.moe", "blocks.3.moe"):
                out.write(json.dumps({"step": step, "layer": layer, "load_cv": step % 5 / 10,
                                      "load": [(step * 7 + i * 13) % 31 for i in range(16)]}) + "\n")


def address(page):
    return "file://" + os.path.abspath(page)


def wait_for(browser, condition):
    """Pictures are drawn once they come into sight."""
    for _ in range(100):
        if browser.evaluate(condition):
            return True
        time.sleep(0.05)
    return False


DRAWN = "figures.every(figure => !figure.isOld)"


EVERYWHERE = [(width, scheme) for width in WIDTHS for scheme in ("light", "dark")]

INSPECTED = ("activations/index.html", "experts/index.html", "gates.html", "sparsity.html")


def check_looks(browser, page, looks):
    for width, scheme in looks:
        browser.open(address(page), width, scheme)
        where = f"{page}, {width} wide, {scheme}: "
        # Pictures far below and closed parts are looked at, too.
        browser.evaluate("figures.filter(figure => figure.isOld).forEach(drawFirst)")
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        mistakes.extend(where + what for what in browser.evaluate(CHECKS))
        expect(browser.complaints() == [], f"{where}{browser.complaints()}")
        elsewhere = [url for url in browser.requests() if not url.startswith(("file:", "data:"))]
        expect(elsewhere == [], f"{where}asks for {elsewhere}")


# Focus of the keyboard: whether it is at an element for the first time, and at which.
FOCUS = """(() => {
  const element = document.activeElement;
  const isNew = element !== document.body && !element.hasAttribute("data-reached");
  element.setAttribute("data-reached", "");
  return [isNew, element.tagName];
})()"""
# Captions of figures without a table of numbers that was reached: a curve's own, that of the section of other
# pictures, any of the page of tokens, which are texts themselves.
WITHOUT_TABLE = """[...document.querySelectorAll("figure")].filter((figure) => {
  const isTokens = figure.matches(".tokens"), isOwn = figure.matches(".curves, .heat");
  const place = isOwn ? figure : figure.closest(isTokens ? "main" : "section");
  return ![...place.querySelectorAll(".scroll[data-reached]")].some((table) => table.querySelector("tbody td"));
}).map((figure) => figure.querySelector("figcaption").textContent)"""


def check_keyboard(browser, page):
    """Tab, and Enter where something is folded, lead to a table of each figure."""
    browser.open(address(page), 800, "light")
    is_new = True
    while is_new:
        browser.press("Tab")
        is_new, name = browser.evaluate(FOCUS)
        if is_new and name == "SUMMARY":
            browser.press("Enter")
    lacking = browser.evaluate(WITHOUT_TABLE)
    expect(lacking == [], f"{page}: no table is reached by Tab for {lacking}")


def check_schemes(browser, page):
    colours = []
    for scheme in ("light", "dark"):
        browser.open("file://" + os.path.abspath(page), 800, scheme)
        colours.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    expect(colours[0] != colours[1], f"{page}: light and dark have the same background")


def figure(title):
    """The figure of this title, in scripts."""
    return f"figures.find(f => f.data.title === {json.dumps(title)})"


def legend(browser, title):
    return browser.evaluate(f"[...{figure(title)}.legend.children].map(e => e.textContent.trim())")


def place_in(browser, title, x, y):
    """A point of a chart, by shares of its width and height."""
    browser.evaluate(f"{figure(title)}.place.scrollIntoView({{block: 'center'}})")
    wait_for(browser, f"{figure(title)}.graph && !{figure(title)}.isOld")
    left, top, width, height = browser.evaluate(
        f"(() => {{ const b = {figure(title)}.chart.getBoundingClientRect(); "
        "return [b.left, b.top, b.width, b.height] })()")
    return left + x * width, top + y * height


def check_single(browser):
    browser.open(address("resumed/report.html"), 1280, "light")
    titles = browser.evaluate("figures.map(f => f.data.title)")
    for title in ("loss", "learning rate", "gradient norm before clipping", "top-1",
                  "blocks.1.moe_s", "resident memory of rank 0"):
        expect(title in titles, f"no picture of {title} among {titles}")
    expect([text.split()[0] for text in legend(browser, "loss")] == ["training", "validation"],
           f"legend: {legend(browser, 'loss')}")
    expect(browser.evaluate("page.runs[0].marks") == [15], "the resume is not known")
    nodes = browser.accessible_nodes()
    pictures = [name for role, name, _ in nodes if role in ("img", "image")]
    expect(len(pictures) >= len(titles), f"{len(pictures)} of {len(titles)} pictures are told of")
    expect(all(pictures), f"a picture without a name: {pictures}")
    tables = browser.evaluate("[...document.querySelectorAll('.plot')]"
                              ".map(p => p.querySelectorAll('details table tbody tr').length)")
    expect(len(tables) == len(titles) and all(tables), f"rows of the figures' tables: {tables}")
    browser.press("Tab")
    expect(browser.evaluate("document.activeElement.className") == "skip", "the skip link is not first")
    expect(browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0,
           "the skip link stays hidden")


def check_hover(browser):
    with open("resumed/metrics.jsonl", encoding="utf-8") as lines:
        logged = {record["step"]: record["loss"] for record in map(json.loads, lines)
                  if "event" not in record}
    browser.open(address("resumed/report.html"), 1280, "light")
    for share in (0.3, 0.6, 0.9):
        browser.mouse("Moved", *place_in(browser, "loss", share, 0.4))
        where, value = browser.evaluate(f"[{figure('loss')}.where.textContent, "
                                        f"{figure('loss')}.legend.querySelector('b').textContent]")
        step = int(where.split()[1].replace(",", ""))
        expect(step in logged and value == json.dumps(logged[step]),
               f"at {where} stands {value}, logged was {logged.get(step)}")
    browser.mouse("Moved", 1, 1)
    expect("last value" in browser.evaluate(f"{figure('loss')}.where.textContent"),
           "the hovered value stays")


def window_of(browser, title):
    wait_for(browser, f"{figure(title)}.graph && !{figure(title)}.isOld")
    return browser.evaluate(f"{figure(title)}.graph.xAxisRange()")


def check_zoom(browser):
    browser.open(address("resumed/report.html"), 1280, "light")
    whole = window_of(browser, "loss")
    browser.drag(place_in(browser, "loss", 0.4, 0.4), place_in(browser, "loss", 0.7, 0.45))
    low, high = window_of(browser, "loss")
    expect(whole[0] < low < high < whole[1], f"dragging zooms to {low} to {high} of {whole}")
    browser.evaluate(f"{figure('learning rate')}.place.scrollIntoView()")
    expect(wait_for(browser, f"!{figure('learning rate')}.isOld") and
           window_of(browser, "learning rate") == [low, high], "other charts do not follow")
    start, end = place_in(browser, "loss", 0.6, 0.4), place_in(browser, "loss", 0.7, 0.4)
    browser.drag(start, end, modifiers=8)
    moved = window_of(browser, "loss")
    expect(moved[0] < low and abs(moved[1] - moved[0] - high + low) < 1e-6 * high,
           f"dragging with Shift moves from {low}, {high} to {moved}")
    browser.evaluate("form.reset.click()")
    expect(window_of(browser, "loss") == whole, "the whole range is not shown again")
    browser.evaluate("form.from.value = 10; form.from.dispatchEvent(new Event('change'))")
    expect(window_of(browser, "loss") == [10, whole[1]], "the range is not what was entered")
    browser.evaluate("form.reset.click(); form.unit.value = 'samples'; "
                     "form.unit.dispatchEvent(new Event('change'))")
    expect(window_of(browser, "loss")[1] > 2 * whole[1], "the axis is not in samples")


def variation(browser, title):
    """The sum of the changes between neighbouring values that are drawn."""
    return browser.evaluate(
        f"(() => {{ const g = {figure(title)}.graph; let sum = 0; "
        "for (let i = 1; i < g.numRows(); ++i) "
        "sum += Math.abs((g.getValue(i, 1) || [0, 0])[1] - (g.getValue(i - 1, 1) || [0, 0])[1]); "
        "return sum })()")


def check_choices(browser):
    browser.open(address("resumed/report.html"), 1280, "dark")
    title = "gradient norm before clipping"
    place_in(browser, title, 0, 0)
    wait_for(browser, f"!{figure(title)}.isOld")
    rough = variation(browser, title)
    browser.evaluate("form.smoothing.value = 80; form.smoothing.dispatchEvent(new Event('input'))")
    expect(variation(browser, title) < 0.7 * rough, f"smoothing leaves {rough} as it is")
    browser.evaluate("form.scale.value = 'log'; form.scale.dispatchEvent(new Event('change'))")
    expect(browser.evaluate(f"{figure(title)}.graph.getOption('logscale')"), "no logarithmic axis")
    picture = f"{figure('loss')}.chart.querySelector('canvas').toDataURL()"
    place_in(browser, "loss", 0, 0)
    wait_for(browser, f"!{figure('loss')}.isOld")
    before = browser.evaluate(picture)
    browser.evaluate(f"{figure('loss')}.legend.querySelector('input').click()")
    expect(browser.evaluate(f"{figure('loss')}.graph.visibility()") == [False, True] and
           browser.evaluate(picture) != before, "a curve that is switched off stays")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(browser.evaluate(DRAWN) and
           browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)",
           "paper does not have all pictures on white")
    expect(len(browser.call("Page.printToPDF")["data"]) > 10_000, "nothing is printed")


def check_comparison(browser):
    browser.open(address("both.html"), 1280, "light")
    names = [text.split()[0].strip(",") for text in legend(browser, "loss")]
    expect(names == ["resumed", "resumed", "other", "other"], f"legend: {names}")
    rows = browser.evaluate("[...document.querySelectorAll('#recipe > .scroll tbody th')]"
                            ".map(e => e.textContent)")
    expect("optimizer.lr" in rows and "train.batch" not in rows, f"differing keys: {rows}")
    browser.open(address("nine.html"), 1280, "light")
    boxes = "[...form.runs.querySelectorAll('input')]"
    expect(browser.evaluate(f"{boxes}.map(b => b.checked)") == [True] * 8 + [False],
           "not eight of nine runs are chosen")
    expect(browser.evaluate(f"{boxes}[8].disabled"), "a ninth run can be chosen")
    browser.evaluate(f"{boxes}[0].click(); {boxes}[8].click()")
    names = [text.split()[0] for text in legend(browser, "learning rate")]
    expect(names == [os.path.basename(nine_name(i)) for i in range(1, 9)], f"legend: {names}")
    slots = browser.evaluate("[...view.slotOfRun.values()].sort()")
    expect(slots == list(range(8)), f"colours: {slots}")


def check_long(browser):
    size = os.path.getsize("long/report.html")
    expect(size <= 1_000_000, f"{size} bytes for 100,000 steps")
    browser.open(address("long/report.html"), 1280, "light")
    browser.mouse("Moved", *place_in(browser, "gradient norm before clipping", 0.5, 0.4))
    value = browser.evaluate(f"{figure('gradient norm before clipping')}.legend.textContent")
    expect("mean 1.3" in value and "1 to 1.6" in value, f"a mean and its range: {value}")


def check_without_scripts(browser):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(address("resumed/report.html"), 800, "light")
    browser.screenshot("without_scripts.png")
    told = browser.accessible_nodes()
    texts = " ".join(name for _, name, _ in told)
    expect("scripts, which draw them, are off" in texts, "nothing tells why pictures are missing")
    expect("Environment" in texts and "Keys that were set" in texts, "the tables are missing")
    summaries = [name for _, name, _ in told if name.endswith("in numbers")]
    expect("loss in numbers" in summaries, f"figures without tables: {summaries}")
    expect("slider" not in [role for role, _, _ in told], "controls without effect are shown")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def check_denoiser(browser):
    for width in WIDTHS:
        browser.open(address("denoiser/report.html"), width, "light")
        sheet = browser.evaluate("(() => { const b = document.querySelector('.heads + .images img')"
                                 ".getBoundingClientRect(); return [b.left, b.right, b.height] })()")
        expect(sheet[0] >= 0 and sheet[1] <= width and sheet[2] > 100, f"pictures at {sheet}")
        heads = browser.evaluate("[...document.querySelectorAll('.heads span')]"
                                 ".map(e => e.getBoundingClientRect().left)")
        # Pictures of 16 pixels, with gaps of one.
        wanted = [sheet[0] + i * 17 / 67 * (sheet[1] - sheet[0]) for i in range(4)]
        expect(len(heads) == 4 and all(abs(a - b) < 1 for a, b in zip(heads, wanted)),
               f"heads at {heads}, not above their pictures at {wanted}")
    told = [name for role, name, _ in browser.accessible_nodes() if role in ("img", "image")]
    expect(any("From the left: clean, noisy, restored" in name for name in told),
           f"the pictures are not described: {told}")
    rows = browser.evaluate("document.querySelectorAll('#pictures > .scroll tbody tr').length")
    expect(rows == 6, f"{rows} rows of PSNRs")


def check_gates(browser):
    browser.open(address("gated/report.html"), 1280, "light")
    titles = browser.evaluate("figures.filter(f => f.rowHeight && f.data.quantity === 'share')"
                              ".map(f => f.data.title)")
    expect(titles == ["blocks.0.gate", "blocks.1.gate"], f"maps: {titles}")
    # The mean of the logarithms has the middle colour.
    middles = browser.evaluate(
        "figures.filter(f => f.data.logarithmic).map(f => { const {low, high, palette} = f.data; "
        "const colours = page.palettes[palette]; "
        "return colours.indexOf(f.colourOf(Math.sqrt(low * high))) / (colours.length - 1) })")
    expect(len(middles) == 4 and all(abs(middle - 0.5) < 0.1 for middle in middles),
           f"middles of the norms' colours: {middles}")
    browser.open(address("gates.html"), 1280, "light")
    wait_for(browser, DRAWN)
    tokens, boxes = browser.evaluate("[document.querySelectorAll('.tokens li').length, "
                                     "document.querySelectorAll('.tokens li i').length]")
    expect(tokens == 8 * 64 and boxes == 2 * tokens, f"{tokens} tokens with {boxes} boxes")


def check_pictures(browser):
    """How many pictures the pages of `inspect` have, and of how many images."""
    for page, pictures, images in (("activations/index.html", 3, 9), ("experts/index.html", 3, 6),
                                   ("sparsity.html", 40, 80)):
        browser.open(address(page), 1280, "light")
        found = browser.evaluate("['.pictures figure', '.pictures img']"
                                 ".map(which => document.querySelectorAll(which).length)")
        expect(found == [pictures, images], f"{page}: {found} pictures and images, not {[pictures, images]}")
    titles = browser.evaluate("figures.map(f => f.data.title)")
    expect(len(titles) == 4 and all(title.startswith("Permutation of ") for title in titles), f"curves: {titles}")


# The pictures of an SVG, and its texts that are cut off or lie on each other.
HEAT_MAP = """(() => {
  const page = document.documentElement.getBoundingClientRect();
  const boxes = [...document.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const wrong = boxes.filter(([, a], i) => a.left < page.left || a.right > page.right || a.bottom > page.bottom ||
    boxes.slice(i + 1).some(([, b]) => Math.min(a.right, b.right) > Math.max(a.left, b.left) + 0.5 &&
                                       Math.min(a.bottom, b.bottom) > Math.max(a.top, b.top) + 0.3 * a.height));
  return [document.querySelectorAll("image").length, boxes.length, wrong.map(([text]) => text)];
})()"""


def check_heat_map(browser):
    """`inspect --experts --heat-map`: two layers, and the two pictures of the scale."""
    browser.open(address("loads.svg"), 1280, "dark")
    pictures, texts, wrong = browser.evaluate(HEAT_MAP)
    expect(pictures == 4 and texts > 20 and wrong == [],
           f"loads.svg: {pictures} pictures, {texts} texts, cut off or on each other: {wrong}")
    expect(browser.complaints() == [], f"loads.svg: {browser.complaints()}")


def main():
    chromium, shoal = sys.argv[1:3]
    make_runs(shoal)
    with Chromium(chromium) as browser:
        for page in ("resumed/report.html", "nine.html"):
            check_looks(browser, page, EVERYWHERE)
            check_schemes(browser, page)
        for page in INSPECTED:
            check_looks(browser, page, EVERYWHERE)
            check_keyboard(browser, page)
        for page in ("both.html", "denoiser/report.html", "gated/report.html", "long/report.html"):
            check_looks(browser, page, (EVERYWHERE[0], EVERYWHERE[-1]))
        for check in (check_single, check_hover, check_zoom, check_choices, check_comparison,
                      check_long, check_denoiser, check_gates, check_pictures, check_heat_map, check_without_scripts):
            check(browser)
    for mistake in mistakes:
        print(mistake)
    print(f"{len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
