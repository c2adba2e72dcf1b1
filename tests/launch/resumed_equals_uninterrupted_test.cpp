#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/session.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

using testing::kEqualityRecipe;

/// Everything that a session saves.
struct Saved {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, int64_t> integers;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : tensors) names.push_back(name);
    for (const auto& [name, value] : integers) names.push_back(name);
    return names;
  }
  bool has_equal(const Saved& other, const std::string& name) const {
    const auto tensor = tensors.find(name);
    if (tensor == tensors.end()) return integers.at(name) == other.integers.at(name);
    return tensor->second.equal(other.tensors.at(name));
  }
  bool equals(const Saved& other) const {
    for (const std::string& name : names()) {
      if (!has_equal(other, name)) return false;
    }
    return names() == other.names();
  }
};

class Save : public StateVisitor {
 public:
  Saved saved;
  void tensor(const StateTensor& entry) override {
    saved.tensors[entry.name] = entry.value.detach().clone();
  }
  void integer(const std::string& name, int64_t& value) override { saved.integers[name] = value; }
  void real(const std::string& name, double&) override { ADD_FAILURE() << name; }
  void text(const std::string& name, std::string&) override { ADD_FAILURE() << name; }
};

/// Loads all but one item.
class Load : public StateVisitor {
 public:
  Load(const Saved& saved, std::string left_out) : saved_(saved), left_out_(std::move(left_out)) {}
  void tensor(const StateTensor& entry) override {
    const torch::NoGradGuard no_grad;
    if (entry.name != left_out_) entry.value.copy_(saved_.tensors.at(entry.name));
  }
  void integer(const std::string& name, int64_t& value) override {
    if (name != left_out_) value = saved_.integers.at(name);
  }
  void real(const std::string& name, double&) override { ADD_FAILURE() << name; }
  void text(const std::string& name, std::string&) override { ADD_FAILURE() << name; }

 private:
  const Saved& saved_;
  std::string left_out_;
};

/// A run of five steps, of which the third and the fourth are skipped for a bad gradient, so that
/// every counter has something to count. The head starts from zero: the first step moves nothing
/// below it but by auxiliary losses.
class ShortRun {
 public:
  ShortRun() {
    for (const Parameter& parameter : session_.parameters()) {
      parameter.tensor.register_hook([this](const torch::Tensor& gradient) {
        return is_bad_ ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
      });
    }
  }
  Saved save() {
    Save visitor;
    session_.visit_state(visitor);
    return visitor.saved;
  }
  void load(const Saved& saved, const std::string& left_out) {
    Load visitor(saved, left_out);
    session_.visit_state(visitor);
  }
  /// The state after each step from `first` on, counted from 1.
  std::vector<Saved> steps(int64_t first, int64_t last) {
    std::vector<Saved> states;
    for (int64_t step = first; step <= last; ++step) {
      is_bad_ = step == 3 || step == 4;
      EXPECT_EQ(session_.step({}).applied, !is_bad_);
      states.push_back(save());
    }
    return states;
  }

 private:
  static Recipe make_recipe() {
    std::vector<std::string> overrides = testing::noisy();
    for (const char* each : {"optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}",
                             "schedule={name: cosine, warmup: 0step}", "train.accumulate=2"}) {
      overrides.emplace_back(each);
    }
    return config::load_options_text<Recipe>(kEqualityRecipe, "test", {"", overrides, nullptr})
        .options;
  }

  const Recipe recipe_ = make_recipe();
  RankGrid grid_ = testing::self_grid();
  const std::unique_ptr<SampleSet> data_ = open_source(recipe_)->open(Split::kTrain);
  Session session_{recipe_, *data_, grid_};
  bool is_bad_ = false;
};

/// Whether a run that resumes after three steps without an item goes on as a whole run does.
bool goes_on_alike(const std::vector<Saved>& whole, const std::string& left_out) {
  ShortRun resumed;
  resumed.load(whole[2], left_out);
  const std::vector<Saved> rest = resumed.steps(4, 5);
  return rest[0].equals(whole[3]) && rest[1].equals(whole[4]);
}

TEST(ResumedEqualsUninterrupted, WithEveryItemOfTheStateAndWithNoneLess) {
  at::set_num_threads(1);  // the model is too small to share
  const Saved fresh = ShortRun().save();
  const std::vector<Saved> whole = ShortRun().steps(1, 5);
  EXPECT_TRUE(goes_on_alike(whole, ""));
  EXPECT_GT(whole[2].names().size(), 50u);
  for (const std::string& name : whole[2].names()) {
    EXPECT_FALSE(whole[2].has_equal(fresh, name)) << name << " tells nothing here";
    EXPECT_FALSE(goes_on_alike(whole, name)) << name << " need not be saved";
  }
}

}  // namespace
}  // namespace shoal
