#include "runtime/options/section_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

TEST(SectionHint, IsAnOverrideThatWorks) {
  EXPECT_THAT(mistakes(kGood, {"optimizer=sgd"}),
              ElementsAre(EndsWith("found 'sgd'; write optimizer.name=sgd")));
  EXPECT_THAT(mistakes(kGood, {"model.losses=[importance]"}),
              ElementsAre(EndsWith("; write 'model.losses=[{name: importance}]'")));
  EXPECT_THAT(mistakes(kGood, {"model.losses=importance"}),
              ElementsAre(EndsWith("expected a list, as [{name: importance}], found "
                                   "'importance'")));
  EXPECT_EQ(read(kGood, {"model.losses=[{name: importance}]"}).model.backbone.name(), "mixer");
}

TEST(SectionHint, IsASectionInsideAMappingOrAFile) {
  EXPECT_THAT(mistakes(kGood, {"model={backbone: mixer, losses: [importance]}"}),
              ElementsAre(EndsWith("; write {name: importance}")));
  EXPECT_THAT(mistakes("model: {backbone: mixer, losses: [importance]}\n"
                       "train: {duration: 1ep, batch: 8}\n"),
              ElementsAre(EndsWith("; write {name: importance}")));
}

TEST(SectionHint, NamesTheChoiceOfAnUnknownMember) {
  EXPECT_THAT(mistakes(kGood, {"model.losses=[foo]"}),
              ElementsAre(EndsWith("; choose a balance loss as {name: NAME}")));
  EXPECT_THAT(mistakes(kGood, {"model.router=3"}), ElementsAre(EndsWith("found '3'")));
}

}  // namespace
}  // namespace shoal::sample
