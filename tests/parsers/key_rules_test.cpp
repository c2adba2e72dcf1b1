#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/options/config_keys.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

class Ruled {
 public:
  struct Context {};
  struct Sketch {
    int64_t value = 0;
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "ruled member";
  virtual ~Ruled() = default;
};

/// `key` is free, and other members' `key` is not.
class FreeRuled : public Ruled {
 public:
  struct Options {
    int64_t key = 1;
    std::optional<Choice<Ruled>> inner;
    static constexpr auto fields() {
      return std::tuple{
          field("key", &Options::key, "", on_resume(OnResume::kFree), keeps_evaluation()),
          field("inner", &Options::inner, "")};
    }
  };
  static constexpr Sketch kSketch{7};
  explicit FreeRuled(const Options&) {}
};

class FixedRuled : public Ruled {
 public:
  struct Options {
    int64_t key = 1;
    static constexpr auto fields() { return std::tuple{field("key", &Options::key, "")}; }
  };
  explicit FixedRuled(const Options&) {}
};

const Registration<Ruled, FreeRuled> registered_free{"free", ""};
const Registration<Ruled, FixedRuled> registered_fixed{"fixed", ""};

struct RuledSection {
  int64_t plain = 0, seed = 0, scored = 0;
  static constexpr auto fields() {
    return std::tuple{field("plain", &RuledSection::plain, ""),
                      field("seed", &RuledSection::seed, "", on_resume(OnResume::kFixed)),
                      field("scored", &RuledSection::scored, "", changes_scores())};
  }
};

struct RuledRecipe {
  Choice<Ruled> first{"free"};
  RuledSection free, fixed;
  std::vector<Choice<Ruled>> list;
  static constexpr auto fields() {
    return std::tuple{inlined(&RuledRecipe::first),
                      field("free", &RuledRecipe::free, "", on_resume(OnResume::kFree)),
                      field("fixed", &RuledRecipe::fixed, ""),
                      field("list", &RuledRecipe::list, "", on_resume(OnResume::kWarned))};
  }
};

config::KeyRules rules(const RuledRecipe& recipe, std::string_view path) {
  return config::key_rules(config::type_of<RuledRecipe>(), &recipe, path);
}

TEST(KeyRules, TheNearestFieldThatHasOneDecides) {
  const RuledRecipe recipe;
  EXPECT_EQ(rules(recipe, "free").resume.on_resume, OnResume::kFree);
  EXPECT_EQ(rules(recipe, "free.plain").resume.on_resume, OnResume::kFree);
  EXPECT_EQ(rules(recipe, "free.seed").resume.on_resume, OnResume::kFixed);
  EXPECT_EQ(rules(recipe, "free.scored").resume.on_resume, OnResume::kWarned);
  EXPECT_TRUE(rules(recipe, "free.scored").resume.changes_scores);
  EXPECT_FALSE(rules(recipe, "free.plain").resume.changes_scores);
  EXPECT_EQ(rules(recipe, "fixed.plain").resume.on_resume, OnResume::kFixed);
  EXPECT_EQ(rules(recipe, "freedom").resume.on_resume, OnResume::kFixed);
}

TEST(KeyRules, AreThoseOfTheChosenMember) {
  RuledRecipe recipe;
  EXPECT_EQ(rules(recipe, "name").resume.on_resume, OnResume::kFixed);
  EXPECT_EQ(rules(recipe, "key").resume.on_resume, OnResume::kFree);
  EXPECT_TRUE(rules(recipe, "key").keeps_evaluation);
  recipe.list = {"fixed", Choice<Ruled>("free", FreeRuled::Options{.inner = "free"})};
  EXPECT_EQ(rules(recipe, "list[0].key").resume.on_resume, OnResume::kWarned);
  EXPECT_EQ(rules(recipe, "list[1].key").resume.on_resume, OnResume::kFree);
  EXPECT_EQ(rules(recipe, "list[1].inner.key").resume.on_resume, OnResume::kFree);
  EXPECT_EQ(rules(recipe, "list[2].key").resume.on_resume, OnResume::kWarned);
  recipe.first = "fixed";
  EXPECT_EQ(rules(recipe, "key").resume.on_resume, OnResume::kFixed);
  EXPECT_FALSE(rules(recipe, "key").keeps_evaluation);
}

TEST(Sketch, IsKnownOfMembersThatHaveOne) {
  const config::MemberSet& members = members_of<Ruled>();
  ASSERT_NE(sketch_of<Ruled>(members.at("free")), nullptr);
  EXPECT_EQ(sketch_of<Ruled>(members.at("free"))->value, 7);
  EXPECT_EQ(sketch_of<Ruled>(members.at("fixed")), nullptr);
}

}  // namespace
}  // namespace shoal
