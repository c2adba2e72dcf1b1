#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "launch/check/check.h"
#include "launch/check/check_recipe.h"
#include "launch/check/recipe_notes.h"
#include "launch/recipe/keys.h"
#include "launch/recipe/recipes.h"
#include "models/task.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// A stage with a stack of one 5 x 7 matrix a unit.
class CountedBank : public MoeStage {
 public:
  CountedBank(const std::string& path, int64_t num_units, int64_t per_token,
              const torch::TensorOptions& options)
      : MoeStage(path), num_units_(num_units), per_token_(per_token) {
    std::vector<int64_t> ids(static_cast<std::size_t>(num_units));
    std::iota(ids.begin(), ids.end(), 0);
    add_stacked_parameter("weight", {5, 7}, options, Init::zeros(), ids);
  }
  MoeStageInfo info() const override { return {path(), num_units_, per_token_}; }

 private:
  int64_t num_units_, per_token_;
};

/// One MoE stage and a dense vector of 11.
class CountedBackbone : public Backbone {
 public:
  struct Options {
    int64_t units = 6;
    int64_t per_token = 2;
    std::string scope = "group";
    static constexpr auto fields() {
      return std::tuple{field("units", &Options::units, "units", at_least(1)),
                        field("per_token", &Options::per_token, "of them a token"),
                        field("scope", &Options::scope, "of a loss")};
    }
  };
  CountedBackbone(const Options& options, const Context& context) {
    add_parameter("dense", {11}, context.build.tensor_options, Init::zeros());
    register_module("moe", std::make_shared<CountedBank>("moe", options.units, options.per_token,
                                                         context.build.tensor_options));
  }
  ModelOutput forward(const ModelInput&, const StepContext&) override { return {}; }
  int64_t feature_width() const override { return 4; }
};

/// A head of 4 x classes.
class CountedTask : public Task {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  CountedTask(const Options&, const Context& context) {
    register_module("backbone", context.make_backbone("backbone", Features::kPooled));
    head_ = add_parameter("head", {4, context.data.classes}, context.build.tensor_options,
                          Init::zeros());
  }
  torch::Tensor outputs(const Batch&) override { return {}; }
  TrainOutput train(const Batch&) override { return {}; }
  EvalOutput evaluate(const Batch&) override { return {}; }
  std::vector<Metric> metrics(const std::vector<NamedSum>&) const override { return {}; }
  ScoreRule score() const override { return {"none"}; }
  RateUnit unit() const override { return {"img"}; }
  int64_t head_parameters() const override { return head_.numel(); }

 private:
  torch::Tensor head_;
};

const Registration<Backbone, CountedBackbone> registered_backbone{"counted", "for this test"};
const Registration<Task, CountedTask> registered_task{"counted", "for this test"};

class LookCommands : public ::testing::Test {
 protected:
  LookCommands() : folder_(scratch_.path()) {
    path_ = write("r.yaml",
                  "# r.yaml: a recipe to look at\n"
                  "data: {source: cifar}\n"
                  "model: {backbone: counted}\n"
                  "task: {name: counted}\n"
                  "train: {duration: 10ep, batch: 64}\n");
  }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = folder_ / name;
    std::filesystem::create_directories(file.parent_path());
    shoal::testing::write_file(file.string(), text);
    return file.string();
  }

  LoadedRecipe load(const std::vector<std::string>& overrides) const {
    return config::load_options<Recipe>({path_, overrides, {}});
  }

  /// The one mistake of the recipe with these overrides, without the file's name.
  std::string mistake(const std::vector<std::string>& overrides, int64_t world = 1,
                      ExitCode code = ExitCode::kRecipe) const {
    std::ostringstream out;
    try {
      check({{path_, overrides, {}}, world, false}, out);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.lines(), ::testing::SizeIs(1));
      const std::string& line = error.lines().front();
      return line.starts_with(path_) ? line.substr(path_.size() - 6) : line;
    }
    return "";
  }

  shoal::testing::ScratchFolder scratch_;
  const std::filesystem::path folder_;
  std::string path_;
};

TEST_F(LookCommands, CheckCountsTheUnitsThatATokenIsRoutedTo) {
  const ModelCounts counts =
      check_recipe({path_, {}, {}}, config::UnsetVariable::kRefuse, std::nullopt).counts;
  EXPECT_EQ(counts.parameters, 11 + 6 * 35 + 4 * 10);
  EXPECT_EQ(counts.parameters_headless, 11 + 6 * 35);
  EXPECT_EQ(counts.active_parameters, 11 + 2 * 35 + 4 * 10);
}

TEST_F(LookCommands, CheckPrintsOneJsonObject) {
  std::ostringstream out;
  EXPECT_EQ(check({{path_, {"parallel.expert_ranks=3"}, {}}, std::nullopt, true}, out),
            ExitCode::kOk);
  EXPECT_THAT(out.str(),
              HasSubstr("{\"parameters\":261,\"parameters_headless\":221,"
                        "\"active_parameters\":121,\"world\":3,\"expert_ranks\":3,\"warnings\":["));
  const nlohmann::json json = nlohmann::json::parse(out.str());
  // Of six experts a rank has two.
  EXPECT_EQ(json["memory_bytes"]["weights"], 4 * (11 + 2 * 35 + 4 * 10));
  EXPECT_FALSE(json["memory_bytes"].contains("sum")) << "activations are not in it";
  EXPECT_EQ(json["not_measured"], "not asked for");
  EXPECT_FALSE(json.contains("multiply_adds")) << "this backbone does not count them";
}

TEST_F(LookCommands, CheckComputesTheSizeOfACheckpoint) {
  const CheckpointSize size =
      check_recipe({path_, {}, {}}, config::UnsetVariable::kRefuse, std::nullopt).counts.checkpoint;
  // The values of weights and AdamW's two moments.
  EXPECT_EQ(size.data_bytes, 3u * 4 * (11 + 6 * 35 + 4 * 10));
  EXPECT_GT(size.manifest_bytes, 3u * 8 * 100);
  EXPECT_GT(size.largest_header_bytes, 3u * 8 * 50);
  EXPECT_GE(size.num_shards, 1u);
  EXPECT_THAT(mistake({"model.units=700000", "model.per_token=1"}, 1, ExitCode::kRecipe),
              AllOf(HasSubstr("model: a checkpoint of so many tensors takes a manifest of up to "),
                    HasSubstr("at most 256 MiB can be read back")));
}

TEST_F(LookCommands, CheckRefusesRanksThatAreNoGrid) {
  EXPECT_EQ(mistake({"parallel.expert_ranks=3"}, 4, ExitCode::kTopology),
            "command line: parallel.expert_ranks=3: world = expert_ranks x replicas, but 4 / 3 "
            "= 1.333; valid expert_ranks for 4 ranks: 1, 2; or start 3 or 6 ranks");
  EXPECT_EQ(mistake({"parallel.expert_ranks=3"}, 2, ExitCode::kTopology),
            "command line: parallel.expert_ranks=3: world = expert_ranks x replicas, but 2 / 3 "
            "= 0.6667; valid expert_ranks for 2 ranks: 1, 2; or start 3 ranks");
  EXPECT_EQ(mistake({"parallel.expert_ranks=3"}, 6), "");
}

TEST_F(LookCommands, CheckRefusesUnitsThatDoNotDivideEvenly) {
  EXPECT_EQ(mistake({"parallel.expert_ranks=4"}, 8, ExitCode::kTopology),
            "command line: parallel.expert_ranks=4: the units of moe do not divide evenly: 6 / "
            "4 = 1.5; valid expert_ranks for 8 ranks: 1, 2; or parallel.uneven=true");
  EXPECT_EQ(mistake({"parallel.expert_ranks=4", "parallel.uneven=true"}, 8), "");
}

TEST_F(LookCommands, CheckOffersNoRanksThatItWouldRefuse) {
  EXPECT_EQ(mistake({"parallel.expert_ranks=4", "parallel.uneven=true"}, 6, ExitCode::kTopology),
            "command line: parallel.expert_ranks=4: world = expert_ranks x replicas, but 6 / 4 "
            "= 1.5; valid expert_ranks for 6 ranks: 1, 2, 3, 6; or start 4 or 8 ranks");
  const auto two_lines = [&](const std::vector<std::string>& overrides, int64_t world) {
    std::ostringstream out;
    try {
      check({{path_, overrides, {}}, world, false}, out);
    } catch (const ConfigError& error) {
      return error.lines();
    }
    return std::vector<std::string>{};
  };
  EXPECT_THAT(two_lines({"parallel.expert_ranks=5"}, 9),
              ElementsAre(::testing::EndsWith("9 / 5 = 1.8; valid expert_ranks for 9 ranks: 1, 3"),
                          HasSubstr("6 / 5 = 1.2; valid expert_ranks for 9 ranks: 1, 3; or")));
}

TEST_F(LookCommands, CheckRefusesBatchesThatAreNotWholeGroups) {
  EXPECT_EQ(mistake({"train.batch=100"}),
            "command line: train.batch=100: batch / accumulate = 100 / 1 = 100 samples are not "
            "whole routing groups of 8 (train.group); try batch 96 or 104");
  EXPECT_EQ(mistake({"train.accumulate=3"}),
            "r.yaml:5:32: train.batch: 64 samples cannot be cut into 3 equal micro-steps "
            "(train.accumulate); try batch 48 or 72");
  EXPECT_EQ(mistake({"train.batch=4"}),
            "command line: train.batch=4: batch / accumulate = 4 / 1 = 4 samples are not whole "
            "routing groups of 8 (train.group); try batch 8");
  EXPECT_EQ(mistake({"train.batch=96", "train.accumulate=3"}), "");
}

TEST_F(LookCommands, CheckRefusesNumbersThatNoMachineHas) {
  for (const char* key : {"run.threads", "train.batch", "train.group", "train.accumulate"}) {
    EXPECT_THAT(
        mistake({std::string(key) + "=4611686018427387904"}),
        HasSubstr(std::string(key) + "=4611686018427387904: must be at least 1 and at most "));
  }
}

TEST_F(LookCommands, CheckRefusesNamesThatLeaveTheRoot) {
  for (const char* name : {"../x", "a/../../x", ".", "..", "/x", "a/", "./a"}) {
    const std::string text = mistake({std::string("run.name=") + name});
    EXPECT_THAT(text, HasSubstr("run.name")) << name;
    EXPECT_THAT(text, HasSubstr(std::string("'") + name + "' does not name a folder")) << name;
  }
  for (const char* name : {"a", "a/b", "..a", "a.b"}) {
    EXPECT_EQ(mistake({std::string("run.name=") + name}), "") << name;
  }
}

TEST_F(LookCommands, CheckRefusesDurationsThatTheDataCannotCount) {
  EXPECT_EQ(mistake({"train.duration=2Btok"}),
            "command line: train.duration=2Btok: 2Btok cannot be counted in steps: the data has no "
            "tokens");
  EXPECT_EQ(mistake({"checkpoint.every=1Ktok"}),
            "command line: checkpoint.every=1Ktok: 1Ktok cannot be counted in steps: the data has "
            "no tokens");
  EXPECT_EQ(mistake({"schedule.warmup=1Ktok"}),
            "command line: schedule.warmup=1Ktok: schedule: 1Ktok cannot be counted in steps: the "
            "data has no tokens");
  EXPECT_EQ(mistake({"checkpoint.every=10min", "schedule.warmup=5%"}), "");
}

TEST_F(LookCommands, CheckRefusesToJudgeByWhatIsTrainedOn) {
  EXPECT_THAT(mistake({"data.valid.files=[data_batch_5.bin]"}),
              AllOf(HasSubstr("command line: data.valid.files=[data_batch_5.bin]: "),
                    HasSubstr("data_batch_5.bin is trained on as well")));
}

TEST_F(LookCommands, CheckNotesWhatDependsOnAccumulation) {
  const auto notes = [this](const std::vector<std::string>& overrides) {
    return recipe_notes(check_recipe({path_, overrides, {}}, config::UnsetVariable::kKeep, 1));
  };
  EXPECT_THAT(notes({}), ::testing::IsEmpty());
  EXPECT_THAT(notes({"model.scope=global"}),
              ElementsAre("model.scope: the value of a loss of scope global depends on "
                          "train.accumulate"));
}

TEST_F(LookCommands, CheckNotesLayersWhoseRoutingIsForced) {
  const std::string path = write("forced.yaml", testing::kEqualityRecipe);
  const std::string forced = "={router: {name: forced}, experts: {count: 5, hidden: 6}}";
  const std::vector<std::string> overrides{"model.sparse_blocks=2",
                                           "model.sparse.channel_moe" + forced};
  std::ostringstream out;
  EXPECT_EQ(check({{path, overrides, {}}, 1, false}, out), ExitCode::kOk);
  EXPECT_THAT(out.str(),
              HasSubstr("\nnote        blocks.1.moe_c, blocks.2.moe_c: forced routing is "
                        "for measurements only, the router learns nothing\n"));
}

TEST_F(LookCommands, CheckAndShowNeedNoVariables) {
  const std::vector<std::string> overrides{"data.path=${env:SHOAL_NOT_SET}"};
  EXPECT_EQ(mistake(overrides), "");
  EXPECT_THROW(load(overrides), ConfigError);
  std::ostringstream out;
  show({{path_, overrides, {}}, true}, out);
  EXPECT_THAT(out.str(), HasSubstr("path: \"${env:SHOAL_NOT_SET}\""));
}

TEST_F(LookCommands, ShowPrintsOriginsAndReadsBack) {
  std::ostringstream out;
  EXPECT_EQ(show({{path_, {"train.batch=32"}, {}}, false}, out), ExitCode::kOk);
  EXPECT_THAT(out.str(), ::testing::ContainsRegex("\n  batch: 32  +# command line\n"));
  EXPECT_THAT(out.str(), ::testing::ContainsRegex("\n  duration: 10ep  +# .*r.yaml:5\n"));
  EXPECT_THAT(out.str(), ::testing::ContainsRegex("\n  group: 8  +# default\n"));
  const LoadedRecipe back = config::load_options_text<Recipe>(out.str(), "shown");
  LoadedRecipe loaded = load({"train.batch=32"});
  loaded.found = find_classes(loaded.options);
  EXPECT_EQ(config::canonical_text(back.options), config::canonical_text(loaded.options));
}

TEST_F(LookCommands, CheckAndShowFindClassesByTheirFoldersAlone) {
  for (const char* name : {"train/cat", "train/dog", "train/fox"})  // without an image
    std::filesystem::create_directories(folder_ / name);
  const auto data = [this](const std::string& folder) {
    return "data={source: image_folder, path: " + (folder_ / folder).string() + "}";
  };
  std::ostringstream out;
  show({{path_, {data("")}, {}}, false}, out);
  EXPECT_THAT(out.str(), ::testing::ContainsRegex("\n  classes: 3  +# found in the data\n  class_"
                                                  "names: \\[cat, dog, fox\\]  +# found in the"));
  const auto checked = [&](const std::string& folder) {
    return check_recipe({path_, {data(folder)}, {}}, config::UnsetVariable::kRefuse, 1);
  };
  EXPECT_EQ(checked("").counts.parameters, 11 + 6 * 35 + 4 * 3);
  EXPECT_EQ(checked("none").counts.parameters, 11 + 6 * 35);
  EXPECT_THAT(recipe_notes(checked("none")), ElementsAre(EndsWith("the head is not counted")));
}

TEST_F(LookCommands, ShowMinimalHoldsWhatDiffers) {
  std::ostringstream out;
  show({{path_, {"train.group=8", "train.clip_norm=2"}, {}}, true}, out);
  EXPECT_THAT(out.str(), HasSubstr("clip_norm: 2"));
  EXPECT_THAT(out.str(), Not(HasSubstr("group")));
  EXPECT_THAT(out.str(), Not(HasSubstr("optimizer")));
}

TEST_F(LookCommands, KeysDocumentASection) {
  std::ostringstream out;
  EXPECT_EQ(keys({.name = "train.batch"}, out), ExitCode::kOk);
  EXPECT_THAT(out.str(), HasSubstr("train.batch\n    samples per optimizer step"));
  EXPECT_THAT(out.str(),
              HasSubstr("integer, at least 1 and at most 1073741824, in samples; required"));
}

TEST_F(LookCommands, KeysFindThoseInsideOtherSections) {
  for (const char* name : {"exchange", "exchange.chunks", "chunks"}) {
    std::ostringstream out;
    EXPECT_EQ(keys({.name = name}, out), ExitCode::kOk);
    EXPECT_THAT(out.str(), HasSubstr("model.sparse.token_moe.exchange.chunks   ("));
  }
  std::ostringstream section, part;
  keys({.name = "train"}, section);
  EXPECT_THAT(section.str(), Not(HasSubstr("data.train")));  // what begins so comes first
  keys({.name = "change.chunks"}, part);                     // words are whole
  EXPECT_THAT(part.str(), HasSubstr("unknown key 'change.chunks'; these may be meant:"));
}

TEST_F(LookCommands, KeysSuggestTheNearest) {
  std::ostringstream out;
  try {
    keys({.name = "train.bach"}, out);
    FAIL() << "an unknown key was documented";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'train.batch'?"));
  }
}

TEST_F(LookCommands, EveryKeyIsDocumented) {
  for (const config::KeyInfo& key : config::list_keys(config::type_of<Recipe>())) {
    EXPECT_FALSE(key.doc.empty()) << key.path;
    EXPECT_TRUE(key.is_required || !key.default_value.empty()) << key.path;
  }
}

TEST_F(LookCommands, DefaultsOfEveryMemberReadBack) {
  for (const config::KeyInfo& key : config::list_keys(config::type_of<Recipe>())) {
    if (!key.owners.empty()) continue;
    for (const auto& [member, doc] : key.choices) {
      std::vector<std::string> overrides{key.path + "=" + member};
      SCOPED_TRACE(overrides[0]);
      if (member == "text" || member.starts_with("lra_")) {  // have no default files
        overrides.insert(overrides.end(), {"data.train.files=[a]", "data.valid.files=[b]"});
      }
      if (member == "pixels") overrides.emplace_back("data.images.source=shapes");
      const std::string text = config::canonical_text(load(overrides).options);
      const LoadedRecipe back = config::load_options_text<Recipe>(text, "canonical");
      EXPECT_EQ(config::canonical_text(back.options), text);
    }
  }
}

TEST_F(LookCommands, RecipesListsThoseThatStateTheirPurpose) {
  write("configs/b/two.yaml", "# b/two.yaml: the second,\n# of 1.5 lines. More\n# lines.\nx: 1\n");
  write("configs/a.yaml", "# Just the first: a colon\n#\n# Launch: it\n");
  write("configs/c.yaml", "# As dear as b/c.yaml: 16.8\n# of them.\n# Paper: none.\n");
  write("configs/d.yaml",
        "# d.yaml: B/16. Its own size (Liu et al. 2022, e.g. table 1).\n# More.\n");
  write("configs/none.yaml", "x: 1\n");
  write("configs/base/part.yaml", "# A part\n");
  write("configs/readme.md", "# no recipe\n");
  std::ostringstream out;
  const std::string root = (folder_ / "configs").string();
  EXPECT_EQ(recipes(root, {}, out), ExitCode::kOk);
  EXPECT_EQ(out.str(), root + "/a.yaml\n    Just the first: a colon\n" + root +
                           "/b/two.yaml\n    the second, of 1.5 lines.\n" + root +
                           "/c.yaml\n    As dear as b/c.yaml: 16.8 of them.\n" + root +
                           "/d.yaml\n    B/16. Its own size (Liu et al. 2022, e.g. table 1).\n");
}

TEST_F(LookCommands, RecipesAreFilteredByWordsOfPathOrSentence) {
  write("configs/vit/tiny.yaml", "# A small model.\n");
  write("configs/mixer/tiny.yaml", "# A mixer, as the ViT is.\n");
  write("configs/mixer/large.yaml", "# Another.\n");
  const std::string root = (folder_ / "configs").string();
  const auto listed = [&root](const std::vector<std::string>& words) {
    std::ostringstream out;
    recipes(root, words, out);
    return out.str();
  };
  EXPECT_THAT(listed({"vit"}), AllOf(HasSubstr("vit/tiny.yaml"), HasSubstr("mixer/tiny.yaml"),
                                     Not(HasSubstr("large.yaml"))));
  EXPECT_THAT(listed({"VIT", "small"}),
              AllOf(HasSubstr("vit/tiny.yaml"), Not(HasSubstr("mixer/tiny.yaml"))));
  EXPECT_THROW(listed({"zebra"}), Error);
}

TEST_F(LookCommands, NearestRecipesAreOfTheFileName) {
  write("configs/vit/tiny.yaml", "# A.\n");
  write("configs/mixer/tiny.yaml", "# B.\n");
  write("configs/quickstart.yaml", "# C.\n");
  write("configs/base/tiny.yaml", "# D.\n");
  const std::string root = (folder_ / "configs").string();
  EXPECT_THAT(nearest_recipes(root + "/sparse/quickstart.yaml", root),
              ElementsAre(root + "/quickstart.yaml"));
  EXPECT_THAT(nearest_recipes("quickstrat", root), ElementsAre(root + "/quickstart.yaml"));
  EXPECT_THAT(nearest_recipes(root + "/mixer/tinny.yaml", root),
              ElementsAre(root + "/mixer/tiny.yaml"));
  EXPECT_THAT(nearest_recipes(root + "/gpt2/tiny.yaml", root),
              ElementsAre(root + "/mixer/tiny.yaml", root + "/vit/tiny.yaml"));
  EXPECT_THAT(nearest_recipes("zebra.yaml", root), ElementsAre());
}

/// Recipes of the tree that this test was built in.
std::vector<std::string> shipped_recipes() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(find_recipes_folder(program))) {
    const bool is_part = entry.path().parent_path().filename() == "base";
    if (entry.path().extension() == ".yaml" && !is_part) files.push_back(entry.path().string());
  }
  return files;
}

TEST(ShippedRecipes, PassCheckStateTheirPurposeAndAreShownWhole) {
  std::ostringstream listed;
  recipes(find_recipes_folder(std::filesystem::read_symlink("/proc/self/exe").string()), {},
          listed);
  ASSERT_THAT(shipped_recipes(), Not(::testing::IsEmpty()));
  for (const std::string& file : shipped_recipes()) {
    SCOPED_TRACE(file);
    std::ostringstream counts, shown, minimal;
    EXPECT_EQ(check({{file, {}, {}}, std::nullopt, true}, counts), ExitCode::kOk);
    show({{file, {}, {}}, false}, shown);
    show({{file, {}, {}}, true}, minimal);
    const auto canonical = [](const std::string& text) {
      Recipe recipe =
          config::load_options_text<Recipe>(text, "shown", {}, config::UnsetVariable::kKeep)
              .options;
      find_classes(recipe);  // which the whole recipe has already
      return config::canonical_text(recipe);
    };
    EXPECT_EQ(canonical(shown.str()), canonical(minimal.str()));
    const std::string name = std::filesystem::path(file).filename().string();
    EXPECT_THAT(listed.str(), ::testing::ContainsRegex(name + "\n    [A-Z].*[.]\n"));
  }
}

TEST_F(LookCommands, RecipesAreFoundInTheSourceTreeAndBesideAnInstalledProgram) {
  write("src/CMakeLists.txt", "");
  write("src/configs/a.yaml", "");
  EXPECT_EQ(find_recipes_folder((folder_ / "src/build/release/shoal").string()),
            (folder_ / "src/configs").string());
  write("usr/share/shoal/configs/a.yaml", "");
  EXPECT_EQ(find_recipes_folder((folder_ / "usr/bin/shoal").string()),
            (folder_ / "usr/share/shoal/configs").string());
  EXPECT_THROW(find_recipes_folder((folder_ / "elsewhere/bin/shoal").string()), Error);
}

}  // namespace
}  // namespace shoal
