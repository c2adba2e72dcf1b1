#include "runtime/options/automatic_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/options/config_keys.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"
#include "runtime/options/option_map.h"
#include "tests/parsers/sample_recipe.h"
#include "tests/support/config_error.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// `losses: auto` is one loss of the layer's strength.
struct Layer {
  int64_t width = 4;
  double strength = 0.5;
  std::optional<std::vector<Choice<Loss>>> losses{std::in_place};
  std::optional<int64_t> hidden = 12;

  static constexpr auto fields() {
    return std::tuple{field("width", &Layer::width, "", at_least(1)),
                      field("strength", &Layer::strength, "", at_least(0)),
                      field("losses", &Layer::losses, "balance losses", unset_word("auto")),
                      field("hidden", &Layer::hidden, "", unset_word("auto"))};
  }
  void resolve() {
    if (!losses) losses.emplace().emplace_back("importance", ImportanceLoss::Options{strength});
  }
  void validate(Problems& problems) const {
    if (!losses) problems.add("losses", "was not resolved");
  }
};
const AutomaticValues<Layer> automatic_layer;

/// `hidden: auto` is twice the width.
struct Stack {
  std::vector<Layer> layers;
  int64_t width = 3;
  std::optional<int64_t> hidden;

  static constexpr auto fields() {
    return std::tuple{field("layers", &Stack::layers, ""), field("width", &Stack::width, ""),
                      field("hidden", &Stack::hidden, "", unset_word("auto"))};
  }
  void resolve() { hidden = hidden.value_or(2 * width); }
};
const AutomaticValues<Stack> automatic_stack(ResolvedOn::kComparison);

struct Tree {
  std::optional<Stack> model;
  OptionMap<Stack> others;
  static constexpr auto fields() {
    return std::tuple{field("model", &Tree::model, ""), field("others", &Tree::others, "")};
  }
};

Tree read_tree(const std::string& text) {
  return config::load_options_text<Tree>(text, "r.yaml").options;
}

TEST(AutomaticValues, AreInTheRecipeOnceItIsRead) {
  const Tree tree = read_tree("model: {layers: [{losses: auto, strength: 0.25}, {}]}");
  EXPECT_EQ(config::emit(config::to_node(tree)),
            "model:\n"
            "  layers:\n"
            "    - width: 4\n"
            "      strength: 0.25\n"
            "      losses:\n"
            "        - name: importance\n"
            "          weight: 0.25\n"
            "          scope: slot_major\n"
            "      hidden: 12\n"
            "    - width: 4\n"
            "      strength: 0.5\n"
            "      losses: []\n"
            "      hidden: 12\n"
            "  width: 3\n"
            "  hidden: auto\n"
            "others: {}\n");
}

TEST(AutomaticValues, ComeFromWhereTheWordIs) {
  const auto loaded = config::load_options_text<Tree>(
      "model:\n  layers:\n    - {width: 4}\n"
      "    - width: 4\n      losses: auto\n",
      "r.yaml");
  const auto origin = [&loaded](const std::string& path) {
    return config::origin_of(loaded.document.root, path);
  };
  EXPECT_EQ(origin("model.layers[1].losses[0].weight"), "r.yaml:5");
  EXPECT_EQ(origin("model.layers[1].losses"), "r.yaml:5");
  EXPECT_EQ(origin("model.layers[0].losses[0].weight"), "default");
  EXPECT_EQ(origin("model.hidden"), "default");
  EXPECT_EQ(origin("model.layers[1].width"), "r.yaml:4");
}

TEST(AutomaticValues, AreNotMadeOfKeysWithMistakes) {
  EXPECT_THAT(
      testing::mistakes_of([] { read_tree("model: {layers: [{losses: auto, strength: -1}]}"); }),
      ElementsAre(HasSubstr("model.layers[0].strength: must be at least 0")));
  EXPECT_THAT(testing::mistakes_of([] { read_tree("model: {layers: [{losses: none}]}"); }),
              ElementsAre(HasSubstr("model.layers[0].losses: expected a list")));
}

TEST(AutomaticValues, OfComparisonsAreMadeAnywhereInTheRecipe) {
  Tree tree = read_tree("{model: {width: 5}, others: {wide: {width: 6}}}");
  EXPECT_FALSE(tree.model->hidden);
  config::resolve_all(ResolvedOn::kComparison, config::type_of<Tree>(), &tree);
  EXPECT_EQ(tree.model->hidden, 10);
  EXPECT_EQ(tree.others.at(0).options.hidden, 12);
}

// As those of a list without a word for none.
TEST(AutomaticValues, OfAListLeaveItsKeysKnown) {
  std::ostringstream out;
  config::print_keys(config::list_keys(config::type_of<Tree>()), "model.layers[].losses", out);
  EXPECT_THAT(out.str(), HasSubstr("list of balance loss: importance, or auto; default []"));
  EXPECT_THAT(out.str(), HasSubstr("model.layers[].losses[].weight   (balance loss importance)"));
  EXPECT_THAT(testing::mistakes_of([] {
                read_tree("model: {layers: [{losses: [{name: importance, wieght: 1}]}]}");
              }),
              ElementsAre(HasSubstr("did you mean 'weight'?")));
}

}  // namespace
}  // namespace shoal::sample
