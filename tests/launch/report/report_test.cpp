#include "launch/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/pages/page.h"
#include "launch/report/sections.h"
#include "tests/launch/runs/run_folder_fixture.h"
#include "tests/support/markup.h"

namespace shoal {
namespace {

using testing::count_of;
using testing::DrawnRun;
using testing::markup_mistake;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_drawn_run;
using testing::write_file;

using Json = Page::Json;

Json page_of(const DrawnRun& run) {
  const ScratchFolder scratch;
  return report_page({read_run(write_drawn_run(scratch, run))}).json();
}

/// EXPECT_THAT would print the page.
bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}
bool has(const Json& page, const std::string& text) { return has(page.dump(), text); }

/// The blocks of a section; null without it.
Json section(const Json& page, const std::string& id) {
  for (const Json& one : page["sections"]) {
    if (one["id"] == id) return one["blocks"];
  }
  return {};
}

/// The content of the first block of a kind whose title or caption is `name`.
Json block(const Json& blocks, const char* kind, const std::string& name) {
  for (const Json& one : blocks) {
    if (!one.contains(kind)) continue;
    const Json& content = one[kind];
    if (content.value("title", "") == name || content.value("caption", "") == name) return content;
  }
  return {};
}

/// What the overview tells of one run.
std::string fact(const Json& page, const std::string& name) {
  const Json overview = section(page, "overview");
  for (const Json& one : overview[0]["facts"]) {
    if (one[0] == name) return one[1];
  }
  return "";
}

/// What is not accessible in it: tables without captions, levels of headings that are left out.
std::string access_mistake(const std::string& page) {
  if (count_of(page, "<table>") != count_of(page, "<caption>")) return "a table without a caption";
  if (count_of(page, "<th ") != count_of(page, "<th scope=")) return "a head without a scope";
  if (count_of(page, "<img ") != count_of(page, "<img alt=\"")) return "an image without a text";
  if (count_of(page, "<figure class=\"plot") != count_of(page, " in numbers</summary>")) {
    return "a figure without a table";
  }
  return count_of(page, "<h1>") == 1 ? "" : "not one first heading";
}

TEST(RunReport, HasASectionForEachKindOfData) {
  const ScratchFolder scratch;
  const Page page = report_page(
      {read_run(write_drawn_run(scratch, {.gates = 2, .permutations = 2, .norms = 2}))});
  const std::string html = page.html();
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_EQ(access_mistake(html), "");
  const Json json = page.json();
  for (const char* id : {"overview", "notes", "training", "evaluations", "layers", "speed",
                         "experts", "gates", "sparsity", "checkpoints", "recipe", "environment"}) {
    EXPECT_FALSE(section(json, id).is_null()) << id;
  }
  EXPECT_EQ(json["title"], "Run drawn");
  EXPECT_TRUE(has(html, "<li>a note &lt;b&gt;</li>"));
  EXPECT_EQ(fact(json, "training loss"), "0.5");
  EXPECT_EQ(fact(json, "a task score"), "0.9");
  EXPECT_EQ(fact(json, "state"), "finished");
  EXPECT_EQ(fact(json, "started"), "2026-01-02 03:04:05 UTC");
  EXPECT_EQ(fact(json, "parameters"), "12,345");
  for (const char* heading : {"Load of each unit", "Load of each expert rank"}) {
    EXPECT_TRUE(has(json, heading)) << heading;
  }
}

TEST(RunReport, HoldsWhatWasLogged) {
  const Json page = page_of({.lines = 8, .layers = 1});
  const Json loss = block(section(page, "training"), "curves", "loss");
  ASSERT_EQ(loss["lines"].size(), 2u);
  const Json training = loss["lines"][0], validation = loss["lines"][1];
  EXPECT_EQ(training["name"], "training");
  EXPECT_EQ(page["steps"][training["steps"].get<size_t>()], (Json{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(training["y"], (Json{2.25, 2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5}));
  EXPECT_TRUE(validation["has_points"]);
  EXPECT_EQ(page["steps"][validation["steps"].get<size_t>()], (Json{2, 4, 6, 8}));
  EXPECT_EQ(validation["y"], (Json{1.25, 1.0, 0.75, 0.5}));
  EXPECT_TRUE(block(section(page, "evaluations"), "curves", "validation loss").is_null());
  const Json memory = block(section(page, "speed"), "curves", "resident memory of rank 0");
  EXPECT_EQ(memory["quantity"], "bytes");
  EXPECT_EQ(memory["lines"][0]["y"][7], 200'000'008.0);
}

TEST(RunReport, HasTheStepsInOtherUnits) {
  const Json run = page_of({.lines = 4})["runs"][0];
  EXPECT_EQ(run["step"], (Json{1, 2, 3, 4}));
  EXPECT_EQ(run["samples"], (Json{64, 128, 192, 256}));
  EXPECT_EQ(run["tokens"], (Json{6400, 12800, 19200, 25600}));
  // 64 samples a step, at 3201 samples per second and more.
  const double hours = (64 / 3201.0 + 64 / 3202.0 + 64 / 3203.0 + 64 / 3204.0) / 3600;
  EXPECT_NEAR(run["hours"][3].get<double>(), hours, 1e-12);
  EXPECT_EQ(page_of({.lines = 100'000, .layers = 0})["runs"][0]["samples"].back(), 6'400'000.0);
}

TEST(RunReport, ShowsLongCurvesAsMeansAndRanges) {
  const Json page = page_of({.lines = 100'000, .layers = 0});
  const Json line =
      block(section(page, "training"), "curves", "gradient norm before clipping")["lines"][0];
  EXPECT_EQ(line["y"].size(), line["low"].size());
  EXPECT_GT(line["y"].size(), 500u);
  for (size_t i = 0; i < line["y"].size(); ++i) {
    ASSERT_EQ(line["low"][i], 1.0);
    ASSERT_EQ(line["high"][i], 1.6);
    ASSERT_NEAR(line["y"][i].get<double>(), 1.3, 0.05);
  }
}

TEST(RunReport, ShowsConfusionsAndTellsOfOtherFiles) {
  const ScratchFolder scratch;
  const std::string run = write_drawn_run(scratch, {});
  EXPECT_TRUE(section(report_page({read_run(run)}).json(), "confusion").is_null());
  write_file(run + "/confusion.json", R"({"step": 7, "classes": [
    {"class": 0, "class_name": "c<t", "samples": 3, "recall": 0.5, "precision": 1.0, "f1": 0.66},
    {"class": 1, "class_name": "dog", "samples": 1, "recall": 1.0, "precision": 0.25, "f1": 0.4}],
    "matrix": [[2, 1], [0, 1]], "worst": [{"label": 0, "predicted": 1, "samples": 1}],
    "mistakes": [{"sample": 5, "file": "a.png", "label": 0, "predicted": 1, "probability": 0.875}]})");
  const std::string page = report_page({read_run(run)}).html();
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_EQ(access_mistake(page), "");
  for (const char* part : {"step 7", "<td>c&lt;t</td><td>3</td><td>50.00%</td>", "<td>87.50%</td>",
                           "a.png", "<th scope=\"row\">0 c&lt;t</th><td>2</td><td>1</td>"}) {
    EXPECT_TRUE(has(page, part)) << part;
  }
  for (const char* other : {"{\"classes\": []}", "{\"a\": 1}", "{\"step\": 1, \"classes\": [1]}"}) {
    write_file(run + "/confusion.json", other);
    EXPECT_TRUE(has(report_page({read_run(run)}).json(), "confusion.json: not as")) << other;
  }
}

TEST(RunReport, NamesTheClassesOfTheMatrixByTheirBeginningsIfThoseDiffer) {
  const auto rows_of = [](const std::vector<std::string>& names) {
    nlohmann::ordered_json confusion{{"worst", Json::array()}, {"mistakes", Json::array()}};
    for (const std::string& name : names) {
      confusion["classes"].push_back({{"class", 0}, {"class_name", name}});
    }
    confusion["matrix"] = {{5, 1}, {2, 7}};
    return confusion_tables(confusion).at(1).rows;
  };
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(rows_of({"airplane", "dog"}),
            (Rows{{"label", "airp", "dog"}, {"0 airplane", "5", "1"}, {"1 dog", "2", "7"}}));
  EXPECT_EQ(rows_of({"naïve", "été"})[0], (std::vector<std::string>{"label", "naï", "ét"}));
  EXPECT_EQ(rows_of({"shape_a", "shape_b"}),
            (Rows{{"label", "0", "1"}, {"0 shape_a", "5", "1"}, {"1 shape_b", "2", "7"}}));
  EXPECT_EQ(rows_of({"", ""}), (Rows{{"label", "0", "1"}, {"0", "5", "1"}, {"1", "2", "7"}}));
}

TEST(RunReport, DrawsNoMatrixOfManyClasses) {
  nlohmann::ordered_json confusion{
      {"step", 1}, {"worst", nlohmann::json::array()}, {"mistakes", nlohmann::json::array()}};
  for (int i = 0; i < 31; ++i) confusion["classes"].push_back({{"class", i}, {"recall", 0.01 * i}});
  confusion["matrix"] = std::vector<std::vector<int>>(31, std::vector<int>(31));
  const auto tables = confusion_tables(confusion);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].rows.size(), 32u);  // the head, and all classes
}

TEST(RunReport, LeavesOutSectionsWithoutData) {
  const Json page = page_of({.layers = 0, .evaluations = 0});
  for (const char* id : {"evaluations", "layers", "experts", "gates", "sparsity", "other"}) {
    EXPECT_TRUE(section(page, id).is_null()) << id;
  }
}

TEST(RunReport, NeedsNothingFromElsewhere) {
  const ScratchFolder scratch;
  const std::string page = report_page({read_run(write_drawn_run(scratch, {}))}).html();
  for (const char* part : {"src=\"http", "src=\"//", "href=\"http", "@import", "url(", "fetch("}) {
    EXPECT_FALSE(has(page, part)) << part;
  }
}

TEST(RunReport, OfARunInProgressSaysSo) {
  EXPECT_EQ(fact(page_of({.is_finished = false}), "state"),
            "in progress, or ended without a summary");
}

TEST(RunReport, TellsASummaryFromBeforeAResume) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  write_file(folder + "/summary.json", R"({"exit_code": 75, "steps": 40, "seconds": 1.0})");
  write_file(folder + "/env.json",
             R"({"starts": [{"step": 0}, {"step": 70}, {"step": 40, "world": 4}]})");
  const Json page = report_page({read_run(folder)}).json();
  EXPECT_EQ(fact(page, "state"), "resumed, in progress or ended without a summary");
  // The resume at step 70 was undone by the one at 40.
  EXPECT_EQ(page["runs"][0]["marks"], Json::array({40.0}));
}

TEST(RunReport, ShowsRunsSideBySide) {
  const ScratchFolder scratch;
  const std::vector<RunData> runs{
      read_run(write_drawn_run(scratch, {.name = "a", .loss = 0.5})),
      read_run(write_drawn_run(scratch, {.name = "b", .lines = 50, .loss = 0.25}))};
  const Page page = report_page(runs);
  EXPECT_EQ(markup_mistake(page.html()), "");
  EXPECT_EQ(access_mistake(page.html()), "");
  const Json json = page.json();
  EXPECT_EQ(json["title"], "2 runs: a, b");
  const Json rows = section(json, "overview")[0]["table"]["rows"];
  EXPECT_EQ(rows[0][3], "training loss");
  EXPECT_EQ(rows[1][3], "0.5");
  EXPECT_EQ(rows[2][3], "0.25");
  const Json lines = block(section(json, "training"), "curves", "loss")["lines"];
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["name"], "a, validation");
  EXPECT_EQ(lines[2]["run"], 1);
  const Json keys = block(section(json, "recipe"), "table", "Keys whose values differ")["rows"];
  EXPECT_EQ(keys, (Json{{"key", "a", "b"}, {"run.name", "a", "b"}}));
}

TEST(RunReport, TellsRunsOfOneNameApart) {
  const ScratchFolder x, y;
  const std::string a = write_drawn_run(x, {.lines = 5}), b = write_drawn_run(y, {.lines = 5});
  EXPECT_EQ(report_page({read_run(a), read_run(b)}).json()["title"], "2 runs: " + a + ", " + b);
}

TEST(RunReport, StaysSmallForAHundredThousandLines) {
  const auto size_of = [](const DrawnRun& run) {
    const ScratchFolder scratch;
    return report_page({read_run(write_drawn_run(scratch, run))}).html().size();
  };
  EXPECT_LT(size_of({.lines = 100'000, .layers = 2, .gates = 1}), 1'000'000u);
  EXPECT_LT(size_of({.lines = 2'000, .layers = 24, .units = 64, .permutations = 30}),
            size_t{3} << 20);
  EXPECT_LT(size_of({.lines = 1'000, .layers = 0, .norms = 100}), 1'000'000u);
}

TEST(RunReport, DrawsManyLayersAsRows) {
  const Json heat = block(section(page_of({.permutations = 12}), "sparsity"), "heat",
                          "distance from the identity");
  ASSERT_EQ(heat["rows"].size(), 12u);
  EXPECT_EQ(heat["rows"][11]["name"], "blocks.11.fc1");
  EXPECT_EQ(heat["rows"][11]["label"], "12");
  EXPECT_EQ(heat["high"], 1.0);
}

TEST(RunReport, HasTheNormsOfEachLayer) {
  const Json few = section(page_of({.lines = 500, .layers = 0, .norms = 2}), "layers");
  const Json ratio = block(few, "curves", "update norm over weight norm");
  ASSERT_EQ(ratio["lines"].size(), 2u);
  EXPECT_EQ(ratio["lines"][1]["name"], "blocks.1.fc1");
  const Json page = page_of({.lines = 500, .layers = 0, .norms = 100});
  for (const char* title : {"weight norm", "gradient norm, before clipping", "update norm",
                            "update norm over weight norm"}) {
    EXPECT_EQ(block(section(page, "layers"), "heat", title)["rows"].size(), 100u) << title;
  }
  // 30,000 numbers for the 400 rows: 500 steps are joined by seven.
  const Json heat = block(section(page, "layers"), "heat", "weight norm");
  const Json values = heat["rows"][2]["values"],
             ends = page["steps"][heat["rows"][2]["ends"].get<size_t>()];
  ASSERT_EQ(values.size(), 72u);
  EXPECT_EQ(ends[0], 7);
  EXPECT_EQ(values[0], 0.01008);  // (1 + 4 / 500) / 100
  EXPECT_TRUE(heat["logarithmic"]);
  // Zero has no logarithm.
  const Json update = block(section(page, "layers"), "heat", "update norm");
  EXPECT_EQ(update["rows"][99]["values"][0], 0.0);
  EXPECT_GT(update["low"], 0.0);
}

TEST(RunReport, HoldsLoadsOverAnEvenShare) {
  const Json page = page_of({.lines = 2, .layers = 1, .units = 6, .memory_units = 4});
  const Json heat = block(section(page, "experts"), "heat", "blocks.0.moe");
  ASSERT_EQ(heat["rows"].size(), 6u);
  // At step 1 loads 113, 100, 137, 124, 111 and 148: 122.1667 in the mean.
  EXPECT_EQ(heat["rows"][0]["values"][0], 0.925);
  EXPECT_EQ(heat["rows"][1]["values"][0], 0.8186);
  EXPECT_EQ(page["steps"][heat["rows"][0]["ends"].get<size_t>()], (Json{1, 2}));
  EXPECT_EQ(heat["split"], 2);
  EXPECT_EQ(heat["note"], "above the line experts, below it memory units (2 to 5)");
  EXPECT_EQ(heat["low"].get<double>() * heat["high"].get<double>(), 1.0);
}

TEST(RunReport, HoldsWhereInTheTextGatesOpen) {
  const Json page = page_of({.lines = 2, .gates = 3});
  const Json heat = block(section(page, "gates"), "heat", "blocks.2.gate");
  EXPECT_EQ(heat["quantity"], "share");
  // Half of both parts, then none of the first and all of the second.
  EXPECT_EQ(heat["rows"][0]["values"], (Json{0.5, 0.0}));
  EXPECT_EQ(heat["rows"][1]["values"], (Json{0.5, 1.0}));
}

TEST(RunReport, ShowsPicturesOfSamples) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {.has_pictures = true});
  const Page page = report_page({read_run(folder)});
  EXPECT_EQ(markup_mistake(page.html()), "");
  EXPECT_EQ(access_mistake(page.html()), "");
  const Json blocks = section(page.json(), "pictures");
  const Json picture = blocks[0]["pictures"][0];
  EXPECT_EQ(picture["caption"], "At step 100: the first 2 samples of the validation data");
  EXPECT_EQ(picture["heads"], (Json{"clean", "restored <b>"}));
  EXPECT_EQ(picture["images"][0]["alt"],
            "2 samples, a row each. From the left: clean, restored <b>.");
  EXPECT_EQ(picture["images"][0]["src"], png_address(read_file(folder + "/pictures.png")));
  EXPECT_EQ(blocks[1]["table"]["rows"][2], (Json{"2", "24.5"}));
}

TEST(RunReport, TellsADamagedCheckpoint) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  std::filesystem::create_directories(folder + "/ckpt/step-00000050");
  write_file(folder + "/ckpt/step-00000050/manifest.json", "{}");
  const Json page = report_page({read_run(folder)}).json();
  EXPECT_EQ(fact(page, "newest checkpoint"), "step 50, damaged");
  EXPECT_TRUE(has(section(page, "checkpoints"), "damaged: "));
}

TEST(RunReport, IsWrittenBesideTheRun) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  PosixFileSystem files;
  EXPECT_EQ(report_file(folder + "/"), report_file(folder));
  write_run_report({folder}, report_file(folder), files);
  EXPECT_TRUE(has(read_file(folder + "/report.html"), "</html>"));
}

TEST(RunReport, TakesFoldersOfRuns) {
  const ScratchFolder scratch;
  for (const char* name : {"a", "b", "c"}) write_drawn_run(scratch, {.name = name, .lines = 3});
  std::ostringstream out;
  EXPECT_EQ(report({.runs = {scratch.path()}, .json = true}, out), ExitCode::kOk);
  const Json page = Json::parse(out.str());
  ASSERT_EQ(page["runs"].size(), 3u);
  EXPECT_EQ(page["runs"][2]["name"], "c");
}

}  // namespace
}  // namespace shoal
