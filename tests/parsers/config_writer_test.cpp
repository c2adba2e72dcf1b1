#include "runtime/options/config_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "runtime/options/config_keys.h"
#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

config::Node tree(const Recipe& recipe) { return config::to_node(recipe); }

std::string minimal(const Recipe& recipe) {
  return config::emit(config::to_minimal_node(config::type_of<Recipe>(), &recipe));
}

TEST(CanonicalText, HoldsEveryKeyInTheOrderOfTheFields) {
  EXPECT_EQ(config::canonical_text(read(kGood)),
            "data:\n"
            "  path: \"\"\n"
            "  files: [a.bin]\n"
            "  flip: true\n"
            "model:\n"
            "  backbone: mixer\n"
            "  width: 96\n"
            "  num_experts: 4\n"
            "  hidden: auto\n"
            "  router:\n"
            "    top_k: 1\n"
            "    keep_fraction: 0.9\n"
            "    order: slot_major\n"
            "    noisy: false\n"
            "  losses: []\n"
            "  init_from: null\n"
            "optimizer:\n"
            "  name: lamb\n"
            "  lr: 0.002\n"
            "  beta1: 0.9\n"
            "  beta2: 0.999\n"
            "train:\n"
            "  duration: 10ep\n"
            "  batch: 8\n"
            "  clip_norm: 1\n"
            "  log_every: 50step\n"
            "seed: 1\n");
}

TEST(CanonicalText, ReadsBackToItself) {
  Recipe recipe = read(kGood, {"model.losses=[{name: importance, weight: 1e-9}, {name: importance,"
                               " scope: position}]",
                               "model.hidden=7", "optimizer={name: sgd, lr: 0.3333333333333333}",
                               "train.log_every=1min0.25s", "seed=-3"});
  for (const std::string odd : {"",
                                " ",
                                "a b",
                                "a: b",
                                "# x",
                                "\"quoted\"",
                                "back\\slash",
                                "tab\tline\nend",
                                "null",
                                "~",
                                "true",
                                "012",
                                "-",
                                "- a",
                                "[a]",
                                "{a}",
                                "${env:X}",
                                "$${x}",
                                "$",
                                "'",
                                "*a",
                                "&a",
                                "!t",
                                "%x",
                                "@",
                                "`",
                                "\xc3\xa4\xe2\x82\xac",
                                "\x01\x7f",
                                "...",
                                "---",
                                "a,b",
                                "trail ",
                                "<<",
                                "auto",
                                "1e3",
                                "?",
                                ": ",
                                "|",
                                ">"}) {
    recipe.data.files = {odd + "x", "b.bin", odd + odd + "."};
    recipe.model.init_from = odd;
    const std::string text = config::canonical_text(recipe);
    const Recipe back = read(text);
    EXPECT_THAT(back.data.files, ElementsAre(odd + "x", "b.bin", odd + odd + ".")) << text;
    EXPECT_EQ(back.model.init_from, odd) << text;
    EXPECT_EQ(config::canonical_text(back), text);
  }
}

TEST(CanonicalText, IsTheSameHoweverTheRecipeWasWritten) {
  EXPECT_EQ(config::canonical_text(read(kGood + "seed: 3e0\noptimizer: {lr: 2.0e-3}\n")),
            config::canonical_text(read("seed: 3\ntrain: {batch: 8e0, duration: 10ep}\n"
                                        "model:\n  backbone: \"mixer\"\n")));
}

TEST(MinimalText, HoldsWhatDiffersAndWhatIsRequired) {
  EXPECT_EQ(minimal(read(kGood)),
            "model:\n  backbone: mixer\ntrain:\n  duration: 10ep\n  batch: 8\n");
  EXPECT_EQ(minimal(read(kGood + "optimizer: {lr: 1}\ndata: {flip: true, files: [b]}\n")),
            "data:\n  files: [b]\n"
            "model:\n  backbone: mixer\n"
            "optimizer:\n  lr: 1\n"
            "train:\n  duration: 10ep\n  batch: 8\n");
}

TEST(MinimalText, NamesAnotherMemberAndReadsBack) {
  const Recipe recipe =
      read(kGood + "optimizer: {name: sgd, momentum: 0}\n",
           {"model.router.top_k=2", "model.hidden=3", "model.losses=[{name: importance}]"});
  const std::string text = minimal(recipe);
  EXPECT_THAT(text, HasSubstr("optimizer:\n  name: sgd\n  momentum: 0\n"));
  EXPECT_THAT(text, HasSubstr("  losses:\n    - name: importance\n"));
  EXPECT_THAT(text, Not(HasSubstr("lr")));
  EXPECT_EQ(config::canonical_text(read(text)), config::canonical_text(recipe));
}

struct Stage {
  int64_t width = 1;
  Choice<Optimizer> mover{"lamb", Lamb::Options{.lr = 0.5}};
  static constexpr auto fields() {
    return std::tuple{field("width", &Stage::width, ""), field("mover", &Stage::mover, "")};
  }
};

struct Stages {
  std::optional<Stage> on = Stage{.width = 5};
  std::optional<Stage> off;
  static constexpr auto fields() {
    return std::tuple{field("on", &Stages::on, ""), field("off", &Stages::off, "")};
  }
};

/// Minimal text of the options that `text` gives, which must read back to them.
std::string minimal_stages(const std::string& text) {
  const auto read_stages = [](const std::string& from) {
    return config::load_options_text<Stages>(from, "r.yaml").options;
  };
  const Stages stages = read_stages(text);
  const config::Type& type = config::type_of<Stages>();
  const std::string shown = config::emit(config::to_minimal_node(type, &stages));
  EXPECT_EQ(config::canonical_text(read_stages(shown)), config::canonical_text(stages)) << shown;
  return shown;
}

TEST(MinimalText, HoldsOfOptionalSectionsWhatDiffers) {
  EXPECT_EQ(minimal_stages("{}"), "{}\n");
  EXPECT_EQ(minimal_stages("on: {width: 5, mover: {name: lamb}}"), "{}\n");
  EXPECT_EQ(minimal_stages("on: {width: 1}"), "on:\n  width: 1\n");
  EXPECT_EQ(minimal_stages("on: {mover: {lr: 0.002}}"), "on:\n  mover:\n    lr: 0.002\n");
  EXPECT_EQ(minimal_stages("on: {mover: {name: sgd}}"), "on:\n  mover:\n    name: sgd\n");
  EXPECT_EQ(minimal_stages("on: null"), "on: null\n");
  EXPECT_EQ(minimal_stages("off: {width: 1}"), "off: {}\n");
  EXPECT_EQ(minimal_stages("off: {width: 3}"), "off:\n  width: 3\n");
}

TEST(Emit, WritesOriginsBehindValues) {
  const config::Loaded<Recipe> loaded = config::load_options_text<Recipe>(
      kGood + "optimizer: {lr: 1}\n", "r.yaml", {"", {"seed=2"}, {}});
  const std::string text = config::emit(tree(loaded.options), [&](const std::string& path) {
    return config::origin_of(loaded.document.root, path);
  });
  EXPECT_THAT(text, HasSubstr("\nseed: 2                 # command line\n"));
  EXPECT_THAT(text, HasSubstr("\n  lr: 1                 # r.yaml:4\n"));
  EXPECT_THAT(text, HasSubstr("\n  beta1: 0.9            # default\n"));
  EXPECT_THAT(text, HasSubstr("\noptimizer:\n"));
}

TEST(Emit, KeepsReferencesToUnsetVariables) {
  const config::Loaded<Recipe> loaded = config::load_options_text<Recipe>(
      kGood + "seed: ${env:NOWHERE}\ndata:\n  path: ${env:NOWHERE}/x\n", "r.yaml",
      {"", {}, variables()}, config::UnsetVariable::kKeep);
  config::Node written = tree(loaded.options);
  config::keep_unset_variables(written, loaded.document.root);
  const std::string text = config::emit(written);
  EXPECT_THAT(text, HasSubstr("  path: \"${env:NOWHERE}/x\"\n"));
  EXPECT_THAT(text, HasSubstr("seed: \"${env:NOWHERE}\"\n"));
}

std::vector<std::string> differences(const Recipe& before, const Recipe& after) {
  std::vector<std::string> lines;
  for (const config::Difference& difference : config::diff(tree(before), tree(after))) {
    lines.push_back(difference.path + ": " + difference.before.value_or("(none)") + " -> " +
                    difference.after.value_or("(none)"));
  }
  return lines;
}

TEST(Diff, IsEmptyForEqualRecipes) {
  EXPECT_THAT(differences(read(kGood), read(kGood + "seed: 1\n")), ::testing::IsEmpty());
}

TEST(Diff, NamesPathAndBothValues) {
  EXPECT_THAT(differences(read(kGood), read(kGood, {"train.batch=16", "data.files=[a, b]",
                                                    "model.router.order=position"})),
              ElementsAre("data.files: [a.bin] -> [a, b]",
                          "model.router.order: slot_major -> position", "train.batch: 8 -> 16"));
}

TEST(Diff, NamesKeysThatOnlyOneHas) {
  EXPECT_THAT(differences(read(kGood), read(kGood, {"optimizer={name: sgd, lr: 0.002}",
                                                    "model.losses=[{name: importance}]"})),
              ElementsAre("model.losses: [] -> (none)", "optimizer.name: lamb -> sgd",
                          "optimizer.beta1: 0.9 -> (none)", "optimizer.beta2: 0.999 -> (none)",
                          "model.losses[0].name: (none) -> importance",
                          "model.losses[0].weight: (none) -> 0.01",
                          "model.losses[0].scope: (none) -> slot_major",
                          "optimizer.momentum: (none) -> 0.9"));
}

std::string keys(const std::string& prefix) {
  std::ostringstream out;
  config::print_keys(config::list_keys(config::type_of<Recipe>()), prefix, out);
  return out.str();
}

TEST(Keys, ShowTypeRangeUnitAndDefault) {
  EXPECT_EQ(keys("train.batch"),
            "train.batch\n    samples per step\n    integer, at least 1, in samples; required\n");
  EXPECT_EQ(keys("model.hidden"),
            "model.hidden   (backbone mixer)\n"
            "    integer, or auto, at least 1; default auto\n");
}

TEST(Keys, ListTheKeysOfEveryMember) {
  const std::string text = keys("optimizer");
  EXPECT_THAT(text, HasSubstr("optimizer.name\n    how weights move\n    optimizer; default lamb\n"
                              "      lamb: one trust ratio a matrix\n      sgd: plain steps\n"));
  EXPECT_THAT(text, HasSubstr("optimizer.lr   (optimizer lamb)\n    learning rate\n"
                              "    number, above 0; default 0.002\n"));
  EXPECT_THAT(text, HasSubstr("optimizer.lr   (optimizer sgd)\n    learning rate\n"
                              "    number, above 0; default 0.1\n"));
  EXPECT_THAT(text, HasSubstr("optimizer.momentum   (optimizer sgd)"));
  EXPECT_THAT(text, Not(HasSubstr("train")));
}

TEST(Keys, GoIntoListsOfChoices) {
  EXPECT_THAT(keys("model.losses"),
              HasSubstr("model.losses[].weight   (backbone mixer; balance loss importance)"));
}

TEST(Keys, ThatAreTheSameHaveOneParagraph) {
  // Momentum is its own; of learning rates the defaults differ.
  EXPECT_THAT(keys("optimizer"), HasSubstr("optimizer.beta1   (optimizer lamb)\n    number"));
  const auto place = [](const std::string& path, const std::vector<config::KeyOwner>& owners) {
    config::KeyInfo key;
    key.path = path;
    key.owners = owners;
    key.type = "integer";
    key.default_value = "1";
    key.doc = "of each";
    return key;
  };
  const std::vector<config::KeyInfo> places{place("a.k", {{"model", "x"}, {"router", "p"}}),
                                            place("a.j", {}),
                                            place("a.k", {{"model", "y"}, {"router", "p"}}),
                                            place("b[].k", {{"model", "y"}, {"router", "q"}})};
  std::ostringstream out;
  EXPECT_EQ(config::print_keys(places, "", out), 4u);
  EXPECT_EQ(out.str(),
            "a.k   (model x, y; router p)\nb[].k   (model y; router q)\n    of each\n    integer; "
            "default 1\na.j\n    of each\n    integer; default 1\n");
}

TEST(Keys, DoNotMatchHalfAWord) { EXPECT_EQ(keys("train.bat"), ""); }

TEST(Registry, CreatesTheChosenMemberWithItsOptions) {
  const Recipe recipe = read(kGood + "optimizer: {name: sgd, lr: 3}\n");
  EXPECT_EQ(Registry<Optimizer>::create(recipe.optimizer, {.factor = 2.0})->rate(), 6.0);
  EXPECT_EQ(Registry<Optimizer>::create("lamb", {})->rate(), 0.002);
  EXPECT_THROW(Registry<Optimizer>::create({}, {}), ConfigError);
  EXPECT_THROW(Choice<Optimizer>("adam"), ConfigError);
}

TEST(Registry, CopiesChoicesDeeply) {
  Choice<Optimizer> first("sgd", Sgd::Options{.lr = 5.0});
  Choice<Optimizer> second = first;
  static_cast<Sgd::Options*>(second.erased_options())->lr = 7.0;
  EXPECT_EQ(first.options<Sgd>().lr, 5.0);
  EXPECT_EQ(second.options<Sgd>().lr, 7.0);
  EXPECT_THROW(first.options<Lamb>(), std::logic_error);
}

}  // namespace
}  // namespace shoal::sample
