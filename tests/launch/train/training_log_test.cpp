#include "launch/train/training_log.h"
#include "launch/data/recipe_source.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/train_run.h"

namespace shoal {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::ScratchFolder;

/// No file of this process can grow, as on a full disk.
class FullDisk {
 public:
  FullDisk() : former_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{1, former_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, former_handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit former_{};
  void (*former_handler_)(int);
};

TEST(TrainingLog, WarnsOfAFullDiskAndWritesItsLinesLater) {
  const ScratchFolder scratch;
  const RunFolder folder{scratch.path()};
  const std::unique_ptr<Communicator> world = make_self_communicator();
  Console console(std::tmpfile(), false, 80);
  std::vector<std::string> told;
  Log log("", 0, [&told](const std::string& line) { told.push_back(line); });
  TrainingLog training_log({folder, *world, 0, {"loss"}}, console, log);
  training_log.evaluation({.metrics = {{"loss", 1.0}}, .samples = 8}, 1);
  {
    const FullDisk full;
    training_log.evaluation({.metrics = {{"loss", 1.0}}, .samples = 8}, 2);
    training_log.evaluation({.metrics = {{"loss", 1.0}}, .samples = 8}, 3);
  }
  ASSERT_EQ(told.size(), 2u);  // one for each file
  EXPECT_THAT(told[0], HasSubstr("metrics.jsonl"));
  EXPECT_THAT(told[0], HasSubstr("bytes wait in memory); training goes on, free some space"));
  training_log.evaluation({.metrics = {{"loss", 1.0}}, .samples = 8}, 4);
  for (const char* step : {"\"step\":1,", "\"step\":2,", "\"step\":3,", "\"step\":4,"}) {
    EXPECT_THAT(read_file(folder.file("metrics.jsonl")), HasSubstr(step));
  }
}

TEST(TrainingLog, EndsWithAnErrorIfLinesAreLost) {
  const ScratchFolder scratch;
  const std::unique_ptr<Communicator> world = make_self_communicator();
  Console console(std::tmpfile(), false, 80);
  Log log("", 0, nullptr);
  const RunFolder folder{scratch.path()};
  TrainingLog training_log({folder, *world, 0, {"loss"}}, console, log);
  training_log.finish();
  const FullDisk full;
  training_log.evaluation({.metrics = {{"loss", 1.0}}, .samples = 8}, 1);
  try {
    training_log.finish();
    ADD_FAILURE() << "lines were lost silently";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl"));
    EXPECT_THAT(error.what(), HasSubstr("metrics.csv"));
    EXPECT_THAT(error.what(), HasSubstr("1 line lost"));
  }
}

std::vector<nlohmann::ordered_json> lines_of(const std::string& file) {
  std::istringstream text(read_file(file));
  std::vector<nlohmann::ordered_json> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
  }
  return lines;
}

/// Keys of a record and their values, as experts.jsonl is to hold them.
nlohmann::ordered_json expected_record(const MoeReport& layer, int64_t step) {
  nlohmann::ordered_json record{{"step", step},
                                {"layer", layer.layer},
                                {"tokens", layer.tokens},
                                {"load", layer.load_U},
                                {"load_min", layer.load_min},
                                {"load_max", layer.load_max},
                                {"load_mean", layer.load_mean},
                                {"load_cv", layer.load_cv},
                                {"load_entropy", layer.load_entropy},
                                {"router_entropy", layer.router_entropy},
                                {"mean_score", layer.mean_score_U},
                                {"mutual_information", layer.mutual_information.value()},
                                {"dead_experts", layer.dead_units},
                                {"dropped", layer.dropped},
                                {"unrouted", layer.unrouted},
                                {"rank_overload", layer.rank_overload_E}};
  for (const auto& [name, value] : layer.losses) record["loss_" + name] = value;
  return record;
}

/// What a log has beside the lines of steps.
struct LogExtras {
  bool has_tensorboard = false;
  std::optional<double> samples_per_second_at_peak = {};
  std::optional<Duration> evaluates_every = {};
  bool has_experts = true;
  std::optional<Duration> clock = {};
};

/// A small session, whose steps are logged into a folder.
struct LoggedSession {
  explicit LoggedSession(const std::vector<std::string>& overrides, const LogExtras& extras = {},
                         const std::string& log_file = "")
      : recipe(testing::equality_recipe(overrides)),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, testing::model_on(recipe, data, grid), data, grid),
        log(log_file, 0, [this](const std::string& line) { told.push_back(line); }),
        training_log({.folder = folder,
                      .world = *grid.world,
                      .metrics = {"loss", "top1"},
                      .layers = layer_logs_of(session.model()),
                      .has_tensorboard = extras.has_tensorboard,
                      .samples_per_second_at_peak = extras.samples_per_second_at_peak,
                      .evaluates_every = extras.evaluates_every,
                      .has_experts = extras.has_experts,
                      .clock = extras.clock},
                     console, log) {}

  struct LoggedStep {
    StepOutcome outcome;
    StepReport report;
  };
  LoggedStep step(double computed_share = 1.0) {
    LoggedStep done{session.step({}), {}};
    done.report = reduce(done.outcome, *grid.world);
    done.report.computed_share = computed_share;
    training_log.step(done.outcome, done.report, session);
    return done;
  }
  std::vector<nlohmann::ordered_json> lines(const char* file) const {
    return lines_of(folder.file(file));
  }

  ScratchFolder scratch;
  RunFolder folder{scratch.path()};
  RankGrid grid = testing::self_grid();
  Recipe recipe;
  OpenSplit data;
  Session session;
  std::vector<std::string> told;
  Console console{std::tmpfile(), false, 80};
  Log log;
  TrainingLog training_log;
};

TEST(TrainingLog, KeepsThePicturesOfTheLastEvaluation) {
  LoggedSession run({});
  const auto evaluate = [&run](int64_t step) {
    const Evaluation evaluation{
        .metrics = {},
        .samples = 1,
        .pictures = {{"grey", at::full({1, 3, 8, 8}, 0.125 * static_cast<double>(step))}}};
    run.training_log.evaluation(evaluation, step);
    return sheet_png(evaluation.pictures, step);
  };
  const auto file = [&run] { return read_file(run.folder.file("pictures.png")); };
  const std::string first = evaluate(1);
  EXPECT_EQ(first, file());
  const std::string second = evaluate(2);
  EXPECT_EQ(second, file());
  std::string third;
  {
    const FullDisk full;
    third = evaluate(3);
  }
  EXPECT_THAT(run.told, ::testing::Contains(HasSubstr("pictures.png")));
  EXPECT_EQ(second, file());
  run.training_log.finish();
  EXPECT_EQ(third, file());
}

TEST(TrainingLog, AddsTheEvaluationsThatAreLeftToTheTimeLeft) {
  const ScratchFolder scratch;
  const std::string file = scratch.file("log");
  // 5 steps: evaluations are due after 2, 4 and 5.
  LoggedSession run({}, {.evaluates_every = Duration::steps(2)}, file);
  run.step();
  EXPECT_THAT(read_file(file), Not(HasSubstr("eta 2h"))) << "nothing is known yet";
  run.step();
  run.training_log.evaluation({.metrics = {}, .samples = 1, .seconds = 3000}, 2);
  run.training_log.evaluation({.metrics = {}, .samples = 1, .seconds = 4200}, 2);
  run.step();
  EXPECT_THAT(read_file(file), ContainsRegex("step 3/5 .* eta 2h00m\n"));
}

TEST(TrainingLog, WarnsOnceOfATrainingThatTakesMoreThanTwiceItsDurationByTheClock) {
  // 100 steps in an hour, compared each 6 minutes.
  const auto warnings_after = [](const std::vector<double>& intervals_s) {
    LoggedSession run({"train.duration=100step"}, {.clock = Duration::seconds(3600)});
    for (const double seconds : intervals_s) {
      run.training_log.leave_out(-seconds);
      run.step();
    }
    return std::ranges::count_if(
        run.told, [](const std::string& line) { return line.find("run.stop_after") != line.npos; });
  };
  EXPECT_EQ(warnings_after({70, 70, 70, 70, 70, 70}), 0) << "94 steps of 70 s are less than 2 h";
  EXPECT_EQ(warnings_after({300}), 0) << "a step may be slow by chance";
  EXPECT_EQ(warnings_after({300, 70}), 1) << "98 steps of 185 s";
  EXPECT_EQ(warnings_after({300, 70, 500, 500}), 1) << "told more than once";
}

TEST(TrainingLog, MakesNoFileOfExpertsForADenseModel) {
  LoggedSession run({"model.sparse_blocks=0"}, {.has_experts = false});
  run.step();
  run.training_log.finish();
  EXPECT_FALSE(std::filesystem::exists(run.folder.file("experts.jsonl")));
  EXPECT_EQ(run.lines("metrics.jsonl").size(), 1u);
}

TEST(TrainingLog, RecordsTheExpertsOfEveryLayerAtEveryLoggedStep) {
  std::vector<std::string> overrides = testing::capped("position");  // something is dropped
  overrides.push_back(testing::losses("group"));
  LoggedSession run(overrides);
  std::vector<nlohmann::ordered_json> expected;
  for (int64_t step = 1; step <= 2; ++step) {
    const StepReport report = run.step().report;
    ASSERT_EQ(report.moe.size(), 2u);
    for (const MoeReport& layer : report.moe) expected.push_back(expected_record(layer, step));
  }
  EXPECT_GT(expected[0]["dropped"], 0.0);
  EXPECT_EQ(expected[0]["rank_overload"], std::vector<double>{1.0});
  EXPECT_TRUE(expected[0].contains("loss_importance"));
  EXPECT_TRUE(expected[1].contains("loss_load"));
  EXPECT_EQ(run.lines("experts.jsonl"), expected);
  const auto metrics = run.lines("metrics.jsonl");
  EXPECT_EQ(metrics.size(), 2u);
  for (const auto& record : metrics) {
    EXPECT_GE(record["moe_load_max"], record["moe_load_p95"]);
    EXPECT_GE(record["moe_load_p95"], record["moe_load_p50"]);
    for (const char* key :
         {"moe_dead_units", "moe_load_entropy", "moe_router_entropy", "moe_dropped",
          "moe_mutual_information", "moe_loss_importance", "moe_loss_load"}) {
      EXPECT_TRUE(record.contains(key)) << key;
    }
  }
}

/// What a training of two steps and an evaluation writes with tb/.
struct SmallRun : LoggedSession {
  explicit SmallRun(const std::string& log_file = "")
      : LoggedSession({}, {.has_tensorboard = true}, log_file) {
    for (int64_t i = 0; i < 2; ++i) step();
    training_log.evaluation({.metrics = {{"loss", 0.5}, {"top1", 0.75}}, .samples = 8}, 2);
    training_log.finish();
  }
};

TEST(TrainingLog, WritesTheSameRecordsForTensorBoard) {
  const SmallRun run;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(run.folder.file("tb"))) {
    files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 1u);
  const std::string events = read_file(files[0].string());
  for (const auto& record : run.lines("metrics.jsonl")) {
    const std::string group = record.contains("event") ? "evaluate/" : "train/";
    for (const auto& [key, value] : record.items()) {
      if (key == "step" || !value.is_number()) continue;
      const std::string number =
          EventSummary().add_scalar(group + key, value.get<double>()).bytes();
      EXPECT_THAT(events, HasSubstr(number)) << key << " of step " << record["step"];
    }
  }
  EXPECT_THAT(events, HasSubstr("experts/blocks.1.moe_s/load"));
  EXPECT_THAT(events, HasSubstr("\x89PNG"));
  EXPECT_TRUE(run.told.empty());
}

TEST(TrainingLog, HasStepsAndEvaluationsInTheLogOfTheRank) {
  const ScratchFolder scratch;
  const SmallRun run(scratch.file("rank.log"));
  const std::string log = read_file(scratch.file("rank.log"));
  EXPECT_THAT(log, HasSubstr("debug: step 1/5  loss "));
  EXPECT_THAT(log, HasSubstr("debug: step 2/5  loss "));
  EXPECT_THAT(log, HasSubstr("debug: step 2  evaluation: "));
}

TEST(TrainingLog, HasTheColumnsOfTheTable) {
  const SmallRun run;
  std::istringstream table(read_file(run.folder.file("metrics.csv")));
  std::string header, first;
  std::getline(table, header);
  std::getline(table, first);
  EXPECT_EQ(header,
            "step,event,samples,loss,lr,grad_norm,skipped,samples_per_second,data_wait,"
            "all_to_all_ms,memory_bytes,moe_load_max,moe_dropped,seconds,top1");
  EXPECT_THAT(first, ::testing::MatchesRegex("1,,8,[0-9.e-]+,0.02,[0-9.e-]+,,[0-9.e+]+,[0-9.e-]+,"
                                             "[0-9.e-]+,[0-9]+,[0-9.]+,0,,?"));
}

/// The first line of a file of the run folder after one logged step.
nlohmann::ordered_json first_line(const char* file, const std::vector<std::string>& overrides,
                                  std::optional<double> samples_per_second_at_peak = {},
                                  double computed_share = 1.0) {
  LoggedSession run(overrides, {.samples_per_second_at_peak = samples_per_second_at_peak});
  run.step(computed_share);
  return run.lines(file).at(0);
}

TEST(TrainingLog, HasTheShareOfThePeakOfAllRanks) {
  const auto record = first_line("metrics.jsonl", {}, 1e6);
  EXPECT_DOUBLE_EQ(record["mfu"].get<double>(), record["samples_per_second"].get<double>() / 1e6);
  EXPECT_FALSE(first_line("metrics.jsonl", {}).contains("mfu"));
  const auto dropped = first_line("metrics.jsonl", {}, 1e6, 0.75);
  EXPECT_DOUBLE_EQ(dropped["mfu"].get<double>(),
                   0.75 * dropped["samples_per_second"].get<double>() / 1e6);
}

TEST(TrainingLog, TellsHowManyUnitsOfANexusLayerAreMemory) {
  const auto memory_of = [](const std::string& memory) {
    return first_line("experts.jsonl",
                      {"model={backbone: vit, patch: 4, width: 8, depth: 2, heads: 2, hidden: 12, "
                       "nexus: {slots: 2, experts: {count: 3, hidden: 8}, memory: " +
                       memory + "}}"})
        .value("memory_units", -1);
  };
  EXPECT_EQ(memory_of("{count: 2, keys: 16, k: 2}"), 2);
  EXPECT_EQ(memory_of("{count: 0}"), -1);
}

TEST(TrainingLog, HasNoGatesInASkippedStep) {
  // The first step leaves weights that are not finite.
  LoggedSession run(testing::joined(testing::with_hspmn(testing::answers()),
                                    {"optimizer={name: sgd, lr: 1e300}"}));
  for (const bool is_applied : {true, false}) ASSERT_EQ(run.step().outcome.applied, is_applied);
  const auto metrics = run.lines("metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_TRUE(metrics[0].contains("gate_rate"));
  EXPECT_TRUE(metrics[1].contains("skipped"));
  EXPECT_FALSE(metrics[1].contains("gate_rate"));
  const auto gates = run.lines("gates.jsonl");
  ASSERT_EQ(gates.size(), 2u);
  for (const auto& gate : gates) EXPECT_EQ(gate["step"], 1);
}

TEST(TrainingLog, HasEachGateOnceAStepAfterAResumeToo) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("run"), gates = folder + "/gates.jsonl";
  const auto train = [&folder] {
    const Recipe recipe = testing::equality_recipe(
        testing::joined(testing::with_hspmn(testing::answers()),
                        {"train.log_every=1step", "checkpoint.every=3step"}));
    RankGrid grid = testing::self_grid();
    testing::train_run(recipe, folder, grid, StopSignals());
  };
  train();
  const auto whole = lines_of(gates);
  ASSERT_EQ(whole.size(), 5u * 2u);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i]["step"], i / 2 + 1);
    EXPECT_EQ(whole[i]["layer"], i % 2 == 0 ? "blocks.0.gate" : "blocks.1.gate");
  }
  // From step 3 on again, whose lines and those before stay.
  std::filesystem::remove_all(folder + "/ckpt/step-00000005");
  train();
  EXPECT_EQ(lines_of(gates), whole);
}

/// Trains the equality recipe in a folder, from its newest checkpoint.
testing::RunEnd train_in(const std::string& folder, std::vector<std::string> overrides) {
  overrides.emplace_back("checkpoint.every=3step");
  RankGrid grid = testing::self_grid();
  return testing::train_run(testing::equality_recipe(overrides), folder, grid, StopSignals());
}

/// The steps of the records of a layer.
std::vector<int64_t> steps_with_norms(const std::string& file, const std::string& layer) {
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(file)) {
    if (line["layer"] == layer) steps.push_back(line["step"]);
  }
  return steps;
}

TEST(TrainingLog, HasTheNormsOfLayersAtTheirIntervalAndOnceAfterAResume) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("run"), norms = folder + "/layers.jsonl";
  const auto resume = [&](const std::vector<std::string>& overrides) {
    std::filesystem::remove_all(folder + "/ckpt/step-00000005");
    return train_in(folder, overrides);
  };
  const std::string plain = train_in(scratch.file("plain"), {}).digest;
  EXPECT_FALSE(std::filesystem::exists(scratch.file("plain") + "/layers.jsonl"));
  EXPECT_EQ(train_in(folder, {"run.log_layers=2step"}).digest, plain);
  const auto whole = lines_of(norms);
  EXPECT_EQ(steps_with_norms(norms, "head"), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(steps_with_norms(norms, "backbone.blocks.1.moe_c.experts.*.fc1"),
            (std::vector<int64_t>{2, 4}));
  for (const auto& line : whole) {
    EXPECT_GT(line["gradient_norm"], 0.0) << line;
    EXPECT_DOUBLE_EQ(line["update_ratio"].get<double>(),
                     line["update_norm"].get<double>() / line["weight_norm"].get<double>());
  }
  // From step 3 on again, whose lines and those before stay.
  EXPECT_EQ(resume({"run.log_layers=2step"}).digest, plain);
  EXPECT_EQ(lines_of(norms), whole);
  EXPECT_EQ(resume({"run.log_layers=0.000001s"}).digest, plain);
  EXPECT_EQ(steps_with_norms(norms, "head"), (std::vector<int64_t>{2, 4, 5}));
  // What is trained again without them has none.
  resume({});
  EXPECT_EQ(steps_with_norms(norms, "head"), std::vector<int64_t>{2});
}

TEST(TrainingLog, HasTheStepsOfTheClockOnAllRanksAlikeAndTheLastOne) {
  const ScratchFolder scratch;
  const StopSignals signals;
  const auto logged = [&](const std::string& every) {
    const Recipe recipe = testing::equality_recipe({"train.log_every=" + every});
    testing::run_grid(1, 2, [&](RankGrid& grid) {
      testing::train_run(recipe, scratch.file(every), grid, signals);
    });
    std::vector<int64_t> steps;
    for (const auto& line : lines_of(scratch.file(every) + "/metrics.jsonl")) {
      if (!line.contains("event")) steps.push_back(line["step"]);
    }
    return steps;
  };
  EXPECT_EQ(logged("0.000001s"), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(logged("1h"), std::vector<int64_t>{5});
}

// Its host waits for no exchange, and would say 0.
TEST(TrainingLog, TellsNoTimeOfExchangesOnAGpu) {
  LoggedSession run({});
  const LoggedSession::LoggedStep done = run.step();
  run.grid.device = c10::Device(c10::DeviceType::CUDA, 0);
  run.training_log.step(done.outcome, done.report, run.session);
  const auto metrics = run.lines("metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_TRUE(metrics[0].contains("all_to_all_ms"));
  EXPECT_FALSE(metrics[1].contains("all_to_all_ms"));
  EXPECT_TRUE(metrics[1].contains("data_wait"));
}

}  // namespace
}  // namespace shoal
