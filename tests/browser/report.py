#!/usr/bin/env python3
"""Renders reports of real runs in Chromium, at three widths and in both schemes of colours.

Usage: report.py CHROMIUM SHOAL      works in the current folder; exit 1 with the mistakes found
"""
import os
import subprocess
import sys

from chromium import Chromium

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "..", "cli", "recipes", "tiny.yaml")
WIDTHS = (360, 800, 1600)
with open(os.path.join(HERE, "page_checks.js"), encoding="utf-8") as file:
    CHECKS = file.read()

# A denoiser, and a model with token gates.
DENOISER = ("task={name: denoise}", "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}",
            "model={backbone: vit, patch: 4, width: 16, depth: 1, heads: 2, hidden: 16, pool: mean}")
GATED = ("task={name: lm}",
         "data={source: mqar, sequence: 64, vocabulary: 128, pairs: 8, train: {samples: 256}, "
         "valid: {samples: 32}}",
         "model={backbone: hspmn, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, "
         "gate: {rate: 0.3, anchor_every: 16}}")

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


def make_runs(shoal):
    """A run that was stopped and resumed, another one to compare it with, and other models'."""
    alone = ("run.root=.", "parallel.expert_ranks=1")
    run(shoal, "train", TINY, *alone, "run.name=resumed", "run.stop_after=15step", code=75)
    expect(os.path.exists("resumed/report.html"), "no report after a stop")
    run(shoal, "train", TINY, *alone, "run.name=resumed", "run.on_existing=resume")
    run(shoal, "train", TINY, *alone, "run.name=other", "run.seed=2", "optimizer.lr=5e-3")
    for name, changes in (("denoiser", DENOISER), ("gated", GATED)):
        run(shoal, "train", TINY, *alone, f"run.name={name}", *changes)
    expect(run(shoal, "report", "resumed", "other", "--out", "both.html") == "both.html\n",
           "report does not print its file")


def check_everywhere(browser, page):
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            browser.open("file://" + os.path.abspath(page), width, scheme)
            where = f"{page}, {width} wide, {scheme}: "
            # Closed parts are looked at, too.
            browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            mistakes.extend(where + what for what in browser.evaluate(CHECKS))
            expect(browser.complaints() == [], f"{where}{browser.complaints()}")
            elsewhere = [url for url in browser.requests() if not url.startswith(("file:", "data:"))]
            expect(elsewhere == [], f"{where}asks for {elsewhere}")


def check_schemes(browser, page):
    colours = []
    for scheme in ("light", "dark"):
        browser.open("file://" + os.path.abspath(page), 800, scheme)
        colours.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    expect(colours[0] != colours[1], f"{page}: light and dark have the same background")


def columns(browser):
    """How many pictures stand side by side in the first row."""
    return browser.evaluate(
        "(() => { const tops = [...document.querySelector('.plots').children]"
        ".map(e => e.getBoundingClientRect().top); return tops.filter(t => t === tops[0]).length })()")


def check_single(browser):
    for width, most in zip(WIDTHS, (1, 2, 4)):
        browser.open("file://" + os.path.abspath("resumed/report.html"), width, "light")
        expect(columns(browser) <= most, f"{columns(browser)} pictures in a row of {width}")
    titles = browser.evaluate("[...document.querySelectorAll('figure svg title')].map(t => t.textContent)")
    for title in ("loss", "learning rate", "gradient norm before clipping", "validation loss",
                  "top-1", "blocks.1.moe_s", "resident memory of rank 0"):
        expect(f"{title} over steps" in titles, f"no picture of {title} among {titles}")
    lines = browser.evaluate("document.querySelectorAll('.plot path.l0:not(.dot)').length")
    expect(lines >= 20, f"{lines} curves")
    expect(browser.evaluate("document.querySelectorAll('.plots .mark').length") > 0,
           "no resume is marked")
    nodes = browser.accessible_nodes()
    pictures = [node for node in nodes if node[0] in ("img", "image")]
    expect(len(pictures) >= len(titles), f"{len(pictures)} of {len(titles)} pictures are told of")
    expect(all(name for _, name, _ in pictures), f"a picture without a name: {pictures}")
    described = [node for node in pictures if "at step" in node[2].lower()]
    expect(len(described) >= lines, f"{len(described)} of {lines} curves are described")
    browser.press("Tab")
    expect(browser.evaluate("document.activeElement.className") == "skip", "the skip link is not first")
    expect(browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0,
           "the skip link stays hidden")


def check_comparison(browser):
    browser.open("file://" + os.path.abspath("both.html"), 1600, "light")
    first = "document.querySelector('.plots figure')"
    expect(browser.evaluate(f"{first}.querySelectorAll('path.l0, path.l1').length") >= 2,
           "the runs are not in one picture")
    legend = browser.evaluate(f"[...{first}.querySelectorAll('.legend li')].map(e => e.textContent)")
    expect([text.split()[0] for text in legend] == ["resumed", "other"], f"legend: {legend}")
    rows = browser.evaluate("[...document.querySelectorAll('#recipe ~ .scroll tbody th')]"
                            ".map(e => e.textContent)")
    expect("optimizer.lr" in rows and "train.batch" not in rows, f"differing keys: {rows}")


def check_denoiser(browser):
    for width in WIDTHS:
        browser.open("file://" + os.path.abspath("denoiser/report.html"), width, "light")
        sheet = browser.evaluate("(() => { const b = document.querySelector('.sheet img')"
                                 ".getBoundingClientRect(); return [b.left, b.right, b.height] })()")
        expect(sheet[0] >= 0 and sheet[1] <= width and sheet[2] > 100, f"pictures at {sheet}")
        heads = browser.evaluate("[...document.querySelectorAll('.sheet .heads span')]"
                                 ".map(e => e.getBoundingClientRect().left)")
        # Pictures of 16 pixels, with gaps of one.
        wanted = [sheet[0] + i * 17 / 67 * (sheet[1] - sheet[0]) for i in range(4)]
        expect(len(heads) == 4 and all(abs(a - b) < 1 for a, b in zip(heads, wanted)),
               f"heads at {heads}, not above their pictures at {wanted}")
    told = [name for role, name, _ in browser.accessible_nodes() if role in ("img", "image")]
    expect(any("From the left: clean, noisy, restored" in name for name in told),
           f"the pictures are not described: {told}")
    rows = browser.evaluate("document.querySelectorAll('#pictures ~ .scroll tbody tr').length")
    expect(rows == 6, f"{rows} rows of PSNRs")


def check_gates(browser):
    browser.open("file://" + os.path.abspath("gated/report.html"), 1600, "light")
    headings = browser.evaluate("[...document.querySelectorAll('h3')].map(e => e.textContent)")
    expect("Gate rate by position in the text" in headings, f"headings: {headings}")
    titles = browser.evaluate("[...document.querySelectorAll('.heat title')].map(e => e.textContent)")
    expect(titles == ["blocks.0.gate over steps", "blocks.1.gate over steps"], f"maps: {titles}")


def main():
    chromium, shoal = sys.argv[1:3]
    make_runs(shoal)
    with Chromium(chromium) as browser:
        for page in ("resumed/report.html", "both.html", "denoiser/report.html",
                     "gated/report.html"):
            check_everywhere(browser, page)
            check_schemes(browser, page)
        check_single(browser)
        check_comparison(browser)
        check_denoiser(browser)
        check_gates(browser)
    for mistake in mistakes:
        print(mistake)
    print(f"{len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
