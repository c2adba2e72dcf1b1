#include "runtime/options/option_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/options/config_keys.h"
#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Place {
  std::string path;
  int64_t weight = 1;
  int64_t judged = 1;
  static constexpr auto fields() {
    return std::tuple{required("path", &Place::path, "where"),
                      field("weight", &Place::weight, "how much", at_least(1)),
                      field("judged", &Place::judged, "", changes_scores())};
  }
};

struct Places {
  OptionMap<Place> places;
  static constexpr auto fields() {
    return std::tuple{
        field("places", &Places::places, "places by name", on_resume(OnResume::kFree))};
  }
};

struct Completed : Places {
  static constexpr auto fields() {
    return std::tuple{field("places", &Completed::places, "places by name")};
  }
  static void complete(config::Node& root, const config::Surroundings&) {
    config::Entry* places = root.find("places");
    for (config::Entry& place : places->value.entries) {
      place.value.entries.push_back({"weight", {}, place.value.entries.front().value});
      place.value.entries.back().value.text = "5";
    }
  }
};

Places read_places(const std::string& text) {
  return config::load_options_text<Places>(text, "r.yaml").options;
}

TEST(OptionMap, HoldsSectionsInTheOrderOfTheRecipe) {
  const Places read = read_places("places:\n  b-2: {path: x, weight: 3}\n  a: {path: y}\n");
  ASSERT_EQ(read.places.size(), 2u);
  EXPECT_EQ(read.places[0].name, "b-2");
  EXPECT_EQ(read.places[0].options.weight, 3);
  EXPECT_EQ(read.places[1].options.path, "y");
  EXPECT_TRUE(read_places("{}").places.empty());
}

TEST(OptionMap, IsWrittenAsItIsRead) {
  EXPECT_EQ(config::canonical_text(read_places("{}")), "places: {}\n");
  const std::string text = config::canonical_text(read_places("places: {a: {path: y}}"));
  EXPECT_EQ(text, "places:\n  a:\n    path: y\n    weight: 1\n    judged: 1\n");
  EXPECT_EQ(config::canonical_text(read_places(text)), text);
}

TEST(OptionMap, LocatesMistakesInItsSections) {
  const auto mistakes_in = [](const std::string& text) {
    return testing::mistakes_of([&] { read_places(text); });
  };
  EXPECT_THAT(
      mistakes_in("places:\n  a: {path: x, wieght: 2}\n  b:\n    weight: 0\n"),
      ElementsAre(HasSubstr("r.yaml:2:16: places.a.wieght: unknown key; did you mean 'weight'?"),
                  HasSubstr("r.yaml:3:3: places.b.path: required key is missing"),
                  HasSubstr("r.yaml:4:13: places.b.weight: must be at least 1")));
  EXPECT_THAT(mistakes_in("places: [a]"),
              ElementsAre(HasSubstr("places: expected a mapping of sections, found a list")));
  EXPECT_THAT(mistakes_in("places: {a: x}"),
              ElementsAre(HasSubstr("places.a: expected a mapping of keys, found 'x'")));
}

TEST(OptionMap, HasTheResumeRulesOfItsSections) {
  const Places read = read_places("places: {a: {path: y}}");
  const auto rule = [&read](const char* path) {
    return config::key_rules(config::type_of<Places>(), &read, path).resume;
  };
  EXPECT_EQ(rule("places.a.path").on_resume, OnResume::kFree);
  EXPECT_FALSE(rule("places.a.path").changes_scores);
  EXPECT_TRUE(rule("places.a.judged").changes_scores);
  EXPECT_FALSE(rule("places.b.judged").changes_scores);
}

TEST(OptionMap, IsOneKeyInLists) {
  std::ostringstream out;
  config::print_keys(config::list_keys(config::type_of<Places>()), "places", out);
  EXPECT_THAT(out.str(), HasSubstr("mapping of sections; default {}"));
}

TEST(Complete, IsCalledOnTheTreeBeforeItIsRead) {
  const auto read =
      config::load_options_text<Completed>("places: {a: {path: y}}", "r.yaml").options;
  EXPECT_EQ(read.places[0].options.weight, 5);
}

}  // namespace
}  // namespace shoal::sample
