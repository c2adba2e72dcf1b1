#include "launch/runs/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/runs/run_lock.h"
#include "tests/support/failing_reads.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ScratchFolder;
using testing::write_file;
using Json = nlohmann::ordered_json;

const std::string kEnv = R"({"world": 2, "starts": [{"step": 0}, {"step": 0, "time":
  "2026-01-02 03:04:05 UTC", "total_steps": 40, "score": "top1"}]})";
const std::string kMetrics = R"({"step": 9, "loss": 1.5}
{"step": 10, "event": "eval", "loss": 1.25, "top1": 0.75}
{"step": 20, "loss": 1.0}
)";

class Runs : public ::testing::Test {
 protected:
  ScratchFolder root_;
  std::ostringstream out_;

  /// Writes files into a run's folder, which it returns; a text for each name.
  std::string write(const std::string& run, const std::map<std::string, std::string>& files) {
    for (const auto& [name, text] : files) {
      const fs::path path = root_.file(run + "/" + name);
      fs::create_directories(path.parent_path());
      write_file(path, text);
    }
    return root_.file(run);
  }
  std::string make_run(const std::string& run, const std::string& summary = "") {
    write(run, {{"resolved.yaml", ""}, {"env.json", kEnv}, {"metrics.jsonl", kMetrics}});
    if (!summary.empty()) write(run, {{"summary.json", summary}});
    return root_.file(run);
  }
  std::string print(RunsArguments arguments) {
    arguments.folders = {root_.path()};
    out_.str("");
    EXPECT_EQ(runs(arguments, out_), ExitCode::kOk);
    return out_.str();
  }
  Json list(RunsArguments arguments = {}) {
    arguments.json = true;
    return Json::parse(print(arguments))["runs"];
  }
  std::vector<std::string> names(const std::string& sort,
                                 const std::vector<std::string>& words = {}) {
    std::vector<std::string> names;
    for (const Json& run : list({.words = words, .sort = sort})) names.push_back(run["name"]);
    return names;
  }
  std::string state(const std::string& name) {
    for (const Json& run : list()) {
      if (run["name"] == name) return run["state"];
    }
    return "not listed";
  }
};

std::string summary(int exit_code, int first_step, int steps) {
  const Json json{
      {"exit_code", exit_code}, {"first_step", first_step}, {"steps", steps}, {"seconds", 61.5}};
  return json.dump();
}

TEST_F(Runs, AreFoundAtAnyDepthWithWhatTheirRecordsSay) {
  make_run("a/b/c", summary(75, 0, 21));
  write("a/notes", {{"readme", "no run"}});
  write("a/b/c/inside", {{"resolved.yaml", ""}});
  write("a/.hidden", {{"resolved.yaml", ""}});
  const Json found = list();
  ASSERT_EQ(found.size(), 1u);
  const Json& run = found[0];
  EXPECT_EQ(run["name"], "a/b/c");
  EXPECT_EQ(run["path"], root_.file("a/b/c"));
  EXPECT_EQ(run["state"], "stopped");
  EXPECT_EQ(run["step"], 21);
  EXPECT_EQ(run["total_steps"], 40);
  EXPECT_EQ(run["metric"], "top1");
  EXPECT_EQ(run["score"], 0.75);
  EXPECT_EQ(run["time"], 61.5);
  EXPECT_EQ(run["ranks"], 2);
  EXPECT_EQ(run["size"], kEnv.size() + kMetrics.size() + summary(75, 0, 21).size());
  EXPECT_THAT(run["change"].get<std::string>(), HasSubstr(" UTC"));
  EXPECT_THAT(print({}), HasSubstr("a/b/c  stopped  21    40           top1    0.75   1m02s  2"));
}

TEST_F(Runs, HaveTheStateThatSummaryLockAndCheckpointsGive) {
  make_run("done", summary(0, 0, 40));
  make_run("failed", summary(30, 0, 20));
  make_run("crashed");
  make_run("crashed_after_a_stop", summary(75, 0, 10));
  const std::string resumed = make_run("crashed_after_a_resume", summary(75, 0, 20));
  write_file(resumed + "/env.json", R"({"starts": [{"step": 0}, {"step": 20}]})");
  write("failed_start",
        {{"log/rank-00000.log", "no such data"}, {"ckpt/.tmp-step-00000001-0/a", ""}});
  write("imported", {{"resolved.yaml", ""}, {"ckpt/step-00000000/manifest.json", "{}"}});
  make_run("damaged", "{\"exit_code\": 0,");
  const std::string running = make_run("running");
  PosixFileSystem files;
  const RunLock lock(running, files, [](const std::string&) {});
  LockOwner owner = LockOwner::self();
  owner.host = "elsewhere";
  write_file(make_run("running_elsewhere") + "/.lock", owner.text());
  write_file(make_run("damaged_elsewhere", "{\"exit_code\": 0,") + "/.lock", owner.text());
  owner = LockOwner::self();
  owner.started -= 1;
  write_file(make_run("killed") + "/.lock", owner.text());
  EXPECT_EQ(state("done"), "done");
  EXPECT_EQ(state("failed"), "failed");
  EXPECT_EQ(state("crashed"), "crashed");
  EXPECT_EQ(state("crashed_after_a_stop"), "crashed");
  EXPECT_EQ(state("crashed_after_a_resume"), "crashed");
  EXPECT_EQ(state("failed_start"), "failed");
  EXPECT_EQ(state("imported"), "weights");
  EXPECT_EQ(state("damaged"), "?");
  EXPECT_EQ(state("running"), "running");
  EXPECT_EQ(state("running_elsewhere"), "running");
  EXPECT_THAT(print({}), HasSubstr("on host 'elsewhere'"));
  EXPECT_THAT(print({}), HasSubstr("on host 'elsewhere'; summary.json: no JSON object"));
  EXPECT_EQ(state("killed"), "crashed");
  EXPECT_THAT(print({}), HasSubstr("summary.json: no JSON object"));
  EXPECT_THAT(print({}), HasSubstr("exit code 30"));
}

TEST_F(Runs, AreStaleWhereAJobOfAnotherHostHasWrittenNothingForAnHour) {
  LockOwner owner = LockOwner::self();
  owner.host = "elsewhere";
  const auto make = [&](const std::string& name, std::chrono::minutes age) {
    const std::string run = make_run(name);
    write_file(run + "/.lock", owner.text());
    for (const auto& entry : fs::directory_iterator(run)) {
      fs::last_write_time(entry, fs::file_time_type::clock::now() - age);
    }
    return run;
  };
  make("live", std::chrono::minutes(55));
  const std::string silent = make("silent", std::chrono::minutes(65));
  owner = LockOwner::self();
  make("here", std::chrono::minutes(65));
  EXPECT_EQ(state("live"), "running");
  EXPECT_EQ(state("silent"), "stale");
  EXPECT_EQ(state("here"), "running");
  std::ostringstream out;
  runs({.folders = {root_.path()}, .prunes = true, .removes = true}, out);
  EXPECT_EQ(out.str(), "");
  write_file(silent + "/env.json.attempt-1", kEnv);
  runs({.folders = {root_.path()}, .prunes = true, .removes = true}, out);
  EXPECT_THAT(out.str(), HasSubstr("kept         silent.attempt-1"));
  EXPECT_TRUE(fs::exists(silent + "/env.json.attempt-1") && fs::exists(silent + "/env.json"));
}

TEST_F(Runs, ListSupersededAttemptsBesideTheRunThatKeepsTheirRecords) {
  const std::string run = make_run("a", summary(0, 0, 40));
  for (const char* name : {"env.json", "metrics.jsonl"}) {
    fs::copy(run + "/" + name, run + "/" + name + ".attempt-2");
  }
  const Json found = list();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["state"], "done");
  EXPECT_EQ(found[1]["name"], "a.attempt-2");
  EXPECT_EQ(found[1]["state"], "superseded");
  EXPECT_EQ(found[1]["step"], 20);
  EXPECT_EQ(found[1]["size"], kEnv.size() + kMetrics.size());
  EXPECT_EQ(found[0]["size"], found[1]["size"].get<size_t>() + summary(0, 0, 40).size());
}

TEST_F(Runs, HaveTheScoreOfAnEvaluationFarFromTheEndOfTheFile) {
  std::string metrics = kMetrics;
  for (int step = 21; step < 5'000; ++step) {
    metrics += "{\"step\": " + std::to_string(step) + ", \"loss\": 1.0, \"top1\": 0.1}\n";
  }
  write_file(make_run("a") + "/metrics.jsonl", metrics);
  ASSERT_GT(metrics.size(), size_t{1} << 17);
  EXPECT_EQ(list()[0]["score"], 0.75);
  EXPECT_EQ(list()[0]["step"], 4999);
}

TEST_F(Runs, DoWithoutWhatIsCutOrBroken) {
  write("a", {{"metrics.jsonl", kMetrics + "{\"step\": 30, \"lo"}});
  write("b",
        {{"metrics.jsonl", "nonsense\n" + kMetrics + "{\"step\": null}\n"}, {"env.json", kEnv}});
  write("c", {{"env.json", R"({"starts": [3], "world": [1]})"}, {"ckpt", "a file"}});
  const Json found = list();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["step"], 20);
  EXPECT_EQ(found[0]["note"], "");
  EXPECT_EQ(found[1]["note"], "metrics.jsonl has broken lines");
  EXPECT_EQ(found[1]["step"], 20);
  EXPECT_EQ(found[2]["state"], "crashed");
  print({});
}

TEST_F(Runs, AreSortedWithUnknownValuesLast) {
  make_run("b", summary(0, 0, 40));
  const std::string a = make_run("a", summary(0, 0, 30));
  write_file(a + "/metrics.jsonl", R"({"step": 30, "event": "eval", "top1": 0.5})"
                                   "\n");
  write("c", {{"resolved.yaml", ""}});
  EXPECT_THAT(names("name"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(names("-name"), ElementsAre("c", "b", "a"));
  EXPECT_THAT(names("score"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(names("-score"), ElementsAre("b", "a", "c"));
  EXPECT_THAT(names("-step"), ElementsAre("b", "a", "c"));
  EXPECT_THAT(names("size"), ElementsAre("c", "a", "b"));
  try {
    runs({.folders = {root_.path()}, .sort = "scroe"}, out_);
    ADD_FAILURE() << "sorted by nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'score'?"));
  }
}

TEST_F(Runs, AreFilteredByNameAndColumn) {
  make_run("vit/a", summary(0, 0, 40));
  make_run("vit/b", summary(75, 0, 40));
  make_run("mixer", summary(0, 0, 40));
  EXPECT_THAT(names("name", {"vit"}), ElementsAre("vit/a", "vit/b"));
  EXPECT_THAT(names("name", {"vit", "state=done"}), ElementsAre("vit/a"));
  EXPECT_THAT(names("name", {"ranks=2", "mix"}), ElementsAre("mixer"));
  EXPECT_THAT(names("name", {"state=failed"}), ElementsAre());
  EXPECT_THAT(names("name", {"path=" + root_.file("mixer")}), ElementsAre("mixer"));
  try {
    runs({.folders = {root_.path()}, .words = {"vit", "stat=done"}}, out_);
    ADD_FAILURE() << "filtered by nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "no run has the key 'stat'; did you mean 'state'?");
  }
}

TEST_F(Runs, ShowTheKeysOfTheirRecipesThatAreAskedFor) {
  const auto add = [&](const std::string& run, const std::string& lr) {
    const std::string recipe = "optimizer:\n  name: adamw  # default\n  lr: " + lr +
                               "  # mine.yaml:5\n  betas: [0.9, 0.999]\n";
    write_file(make_run(run, summary(0, 0, 40)) + "/resolved.yaml", recipe);
    return root_.file(run);
  };
  add("a", "0.01");
  fs::copy(add("b", "1e-3") + "/env.json", root_.file("b/env.json.attempt-1"));
  write("b", {{"resolved.yaml.attempt-1", "optimizer:\n  lr: 5\n"}});
  make_run("without");
  const RunsArguments arguments{.columns = "optimizer.lr,score,optimizer.name,optimizer.betas",
                                .sort = "optimizer.lr"};
  const Json found = list(arguments);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0]["optimizer.lr"], 0.001);
  EXPECT_EQ(found[1]["name"], "a");
  EXPECT_EQ(found[2]["name"], "b.attempt-1");
  EXPECT_EQ(found[2]["optimizer.lr"], 5);
  EXPECT_TRUE(found[3]["optimizer.lr"].is_null()) << "last, as it has none";
  EXPECT_EQ(found[0]["optimizer.name"], "adamw");
  EXPECT_EQ(found[0]["state"], "done") << "JSON has all columns";
  EXPECT_THAT(print(arguments), HasSubstr("name         optimizer.lr  score  optimizer.name"));
  EXPECT_THAT(print(arguments), HasSubstr("a            0.01          0.75   adamw"));
  for (const char* word : {"optimizer.lr=0.001", "optimizer.lr=1e-3"}) {
    EXPECT_THAT(names("name", {word, "optimizer.betas=[0.9, 0.999]"}), ElementsAre("b")) << word;
  }
  EXPECT_THAT(names("name", {"optimizer.lr=0.002"}), IsEmpty());
}

TEST_F(Runs, RefuseAKeyThatNoneHasWithTheNearest) {
  const auto refusal = [&](const RunsArguments& arguments) -> std::string {
    try {
      print(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.columns = "optimizer.lr"}), "") << "of no run nothing is known";
  write_file(make_run("a") + "/resolved.yaml", "run:\n  seed: 1\noptimizer:\n  lr: 0.1\n");
  EXPECT_EQ(refusal({.columns = "train.optimizer.lr"}),
            "no run has the key 'train.optimizer.lr'; recipes have optimizer.lr");
  EXPECT_EQ(refusal({.words = {"seed=1"}}), "no run has the key 'seed'; recipes have run.seed");
  EXPECT_EQ(refusal({.sort = "-optimzer.lr"}),
            "no run has the key 'optimzer.lr'; recipes have optimizer.lr");
  EXPECT_EQ(refusal({.columns = "optimizer.lt"}),
            "no run has the key 'optimizer.lt'; did you mean 'optimizer.lr'?");
  EXPECT_EQ(refusal({.columns = "run.seed,"}), "");
}

/// Folders of all that may be pruned, and of what must stay.
class PrunedRuns : public Runs {
 protected:
  std::string prune(bool removes, ExitCode code = ExitCode::kOk) {
    std::ostringstream out;
    EXPECT_EQ(runs({.folders = {root_.path()}, .prunes = true, .removes = removes}, out), code);
    return out.str();
  }
  bool exists(const std::string& name) { return fs::exists(root_.file(name)); }
};

TEST_F(PrunedRuns, AreTheFailedAndCrashedWithoutACheckpointAndSupersededAttempts) {
  write(fs::path(make_run("failed", summary(30, 0, 20))).filename(), {{"log/rank-00000.log", "x"}});
  write_file(make_run("crashed") + "/env.json.attempt-1", kEnv);
  write("failed_start", {{"log/rank-00000.log", ""}, {"ckpt/.tmp-step-00000001-0/a", ""}});
  write_file(make_run("done", summary(0, 0, 40)) + "/env.json.attempt-1", kEnv);
  make_run("stopped", summary(75, 0, 20));
  make_run("damaged", "{");
  write("crashed_with_checkpoint", {{"env.json", kEnv}, {"ckpt/step-00000010/manifest.json", ""}});
  write("crashed_set_aside", {{"env.json", kEnv}, {"ckpt/step-00000010.unreadable/a", ""}});
  const std::string told = prune(false);
  EXPECT_THAT(told, HasSubstr("would remove failed (failed, "));
  EXPECT_THAT(told, HasSubstr("would remove done.attempt-1 (superseded, "));
  EXPECT_THAT(told, HasSubstr("nothing is removed without --yes"));
  EXPECT_TRUE(exists("failed") && exists("crashed") && exists("failed_start"));
  EXPECT_THAT(prune(true), HasSubstr("removed      crashed (crashed, "));
  for (const char* gone : {"failed", "crashed", "failed_start", "done/env.json.attempt-1"}) {
    EXPECT_FALSE(exists(gone)) << gone;
  }
  for (const char* kept : {"done/env.json", "stopped/metrics.jsonl", "damaged/env.json",
                           "crashed_with_checkpoint/ckpt/step-00000010/manifest.json",
                           "crashed_set_aside/ckpt/step-00000010.unreadable/a"}) {
    EXPECT_TRUE(exists(kept)) << kept;
  }
  EXPECT_EQ(list().size(), 5u);
}

TEST_F(PrunedRuns, AreNoneThatAJobWorksOnOrAnotherStartedFromOrThatHoldOtherFiles) {
  const std::string busy = make_run("busy");
  write_file(busy + "/env.json.attempt-1", kEnv);
  LockOwner owner = LockOwner::self();
  owner.host = "elsewhere";
  write_file(busy + "/.lock", owner.text());
  write(fs::path(make_run("source")).filename(), {{"ckpt/step-00000010/manifest.json", "{}"}});
  write_file(make_run("tuned", summary(0, 0, 40)) + "/resolved.yaml",
             "model:\n  init_from:\n    from: /elsewhere/source/ckpt/step-00000010\n");
  write("with_thesis", {{"env.json", kEnv}, {"resolved.yaml", ""}, {"thesis.tex", "precious"}});
  write("of_others", {{"ckpt/model.pt", "precious"}});
  const std::string linked = make_run("linked");
  write("disk", {{"step-00000010/manifest.json", "{}"}});
  fs::remove_all(linked + "/ckpt");
  fs::create_directory_symlink(fs::path(linked).parent_path() / "disk", linked + "/ckpt");
  write_file(linked + "/notes.txt.attempt-1", "precious");
  const std::string told = prune(true);
  EXPECT_THAT(told,
              HasSubstr("kept         busy.attempt-1 (superseded, 123 B): a job works on it"));
  EXPECT_THAT(told, HasSubstr("holds what no run wrote: thesis.tex"));
  EXPECT_THAT(told, Not(HasSubstr("removed")));
  EXPECT_TRUE(exists("busy/env.json.attempt-1") && exists("source/env.json"));
  EXPECT_TRUE(exists("with_thesis/env.json") && exists("of_others/ckpt/model.pt"));
  EXPECT_TRUE(exists("linked/env.json") && exists("linked/notes.txt.attempt-1"));
}

TEST_F(PrunedRuns, WhoseRemovalFailsDoNotEndIt) {
  make_run("a");
  make_run("b");
  write_file(make_run("c", summary(0, 0, 40)) + "/env.json.attempt-1", kEnv);
  testing::refuses_threads = true;  // so that no run can be locked
  const std::string told = prune(true, ExitCode::kTopology);
  testing::refuses_threads = false;
  for (const char* name : {"a", "b", "c.attempt-1"}) {
    EXPECT_THAT(told, HasSubstr(std::string("not removed  ") + name));
  }
  EXPECT_TRUE(exists("a/env.json") && exists("b/env.json") && exists("c/env.json.attempt-1"));
}

TEST_F(Runs, OfAFolderThatIsNotThereAreRefusedWithASuggestion) {
  make_run("group/a");
  try {
    runs({.folders = {root_.file("gruop")}}, out_);
    ADD_FAILURE() << "listed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean '" + root_.file("group") + "'?"));
  }
  EXPECT_EQ(names("name").size(), 1u);
  fs::remove_all(root_.file("group"));
  EXPECT_EQ(list().size(), 0u);
}

}  // namespace
}  // namespace shoal
