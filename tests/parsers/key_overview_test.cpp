#include "launch/recipe/key_overview.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

std::vector<config::KeyInfo> all_keys() { return config::list_keys(config::type_of<Recipe>()); }

std::string member(const config::KeyOwner& owner) {
  std::ostringstream out;
  config::print_member(all_keys(), owner, out);
  return out.str();
}

TEST(KeyOverview, HasALineForEachSectionAndChoice) {
  std::ostringstream out;
  config::print_overview(all_keys(), out);
  EXPECT_EQ(out.str(),
            "data            path, files, flip\n"
            "model.backbone  mixer\n"
            "model           init_from\n"
            "optimizer.name  lamb, sgd\n"
            "train           duration, batch, clip_norm, log_every\n"
            "seed            integer\n"
            "\n"
            "inside them:\n"
            "losses[].name   importance\n");
}

TEST(KeyOverview, OfAMemberCountsTheKeysOfSectionsInsideIt) {
  EXPECT_EQ(member({"backbone", "mixer"}),
            "model.width: channels (default 96)\n"
            "model.num_experts:  (default 4)\n"
            "model.hidden:  (default auto)\n"
            "model.router: 4 keys inside\n"
            "model.losses: balance losses (default []; 3 keys inside)\n");
  EXPECT_EQ(member({"optimizer", "sgd"}),
            "optimizer.lr: learning rate (default 0.1)\noptimizer.momentum:  (default 0.9)\n");
  EXPECT_EQ(member({"balance loss", "importance"}),
            "losses[].weight:  (default 0.01)\nlosses[].scope:  (default slot_major)\n");
  EXPECT_EQ(member({"optimizer", "adam"}), "");
}

TEST(KeyOverview, KeepsTheKeysThatChosenMembersHave) {
  std::vector<std::string> paths;
  for (const config::KeyInfo& key : config::keys_with(all_keys(), {{"optimizer", "sgd"}})) {
    if (key.path.starts_with("optimizer")) paths.push_back(key.path);
  }
  EXPECT_EQ(paths,
            (std::vector<std::string>{"optimizer.name", "optimizer.lr", "optimizer.momentum"}));
  EXPECT_EQ(config::keys_with(all_keys(), {}).size(), all_keys().size());
}

}  // namespace
}  // namespace shoal::sample
