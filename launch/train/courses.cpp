#include "launch/train/courses.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>

#include "launch/recipe/resume_rules.h"
#include "runtime/optim/schedule.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

/// Key in a manifest's written_by: the step from which masks stay fixed, if the recipe's is later.
constexpr const char* kMasksRestFrom = "masks_rest_from";

StepScale scale_of(const Recipe& recipe, StepScale scale) {
  scale.samples_per_step = recipe.train.batch;
  scale.total_steps = 0;
  scale.total_steps = to_steps(recipe.train.duration, scale);
  return scale;
}

double peak_rate(const Recipe& recipe) {
  for (const config::FieldInfo& field : recipe.optimizer.member()->options_type().fields) {
    if (field.name != "lr") continue;
    return *static_cast<const double*>(field.member_of(recipe.optimizer.erased_options()));
  }
  TORCH_CHECK(false, "the options of ", recipe.optimizer.name(),
              " do not derive from OptimizerOptions");
}

std::vector<Course> courses_of(const Recipe& recipe, const StepRules& rules,
                               const StepScale& scale) {
  const std::shared_ptr<Schedule> schedule = Registry<Schedule>::create(recipe.schedule, scale);
  const double peak = peak_rate(recipe);
  std::vector<Course> courses;
  for (const auto& rule : rules) {
    std::ranges::move(rule->courses(scale), std::back_inserter(courses));
  }
  courses.push_back(
      {"the learning rate", [=](int64_t step) { return peak * schedule->factor(step); }});
  return courses;
}

/// A recipe's keys in percent, without the schedule's: the learning rate shows those.
std::vector<std::pair<std::string, Duration>> find_percentages(const Recipe& recipe) {
  std::vector<std::pair<std::string, Duration>> found;
  visit_nodes(config::to_node(recipe), "", [&](const config::Node& node, const std::string& key) {
    const auto duration = parse_duration(node.text);
    const bool is_course = rules_of_key(recipe, key).resume.on_resume != OnResume::kFree &&
                           !config::is_at_or_below(key, "schedule");
    if (is_course && duration && duration->unit == DurationUnit::kPercent) {
      found.emplace_back(key, *duration);
    }
  });
  return found;
}

int64_t rests_from(const Recipe& recipe, const StepScale& scale) {
  return Registry<GrowRule>::create(recipe.sparsity->rule, {scale})->rests_from();
}

}  // namespace

std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done) {
  constexpr int64_t kMostCompared = 1000;
  const StepScale old_scale = scale_of(before, scale), new_scale = scale_of(now, scale);
  const int64_t old_end = old_scale.total_steps, new_end = new_scale.total_steps;
  std::string since;
  if (old_end != new_end) {
    since = fmt::format(", since the training now spans {} steps instead of {}", new_end, old_end);
  }
  // The values at its end are compared where the run was finished.
  const int64_t end = std::max(steps_done + 1, std::min(old_end, new_end));
  const int64_t stride = std::max<int64_t>(1, (end - steps_done) / kMostCompared);
  std::vector<std::string> lines;
  const std::vector<Course> old_courses = courses_of(before, rules, old_scale),
                            new_courses = courses_of(now, rules, new_scale);
  for (std::size_t i = 0; i < new_courses.size(); ++i) {
    for (int64_t step = steps_done; step < end; step += stride) {
      const double was = old_courses[i].at(step), is = new_courses[i].at(step);
      if (std::abs(is - was) <= 1e-9 * std::max(was, is)) continue;
      lines.push_back(fmt::format(
          "{} differs from the schedule so far: at step {} it is {:.6g} instead of {:.6g}{}",
          new_courses[i].name, step + 1, is, was, since));
      break;
    }
  }
  for (const auto& [key, share] : find_percentages(now)) {
    const int64_t was = to_steps(share, old_scale), is = to_steps(share, new_scale);
    if (was == is || std::max(was, is) <= steps_done) continue;
    lines.push_back(
        fmt::format("{}: {} is step {} instead of {}{}", key, to_text(share), is, was, since));
  }
  return lines;
}

void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer) {
  const Recipe before = stored_recipe(resumed);
  const StepScale& scale = session.scale();
  for (const std::string& line :
       describe_course_changes(before, recipe, session.rules(), scale, resumed.step)) {
    writer.warn(line);
  }
  const auto& sparse = session.model().sparse;
  if (sparse == nullptr || override_fixed) return;
  const StepScale old_scale = scale_of(before, scale);
  int64_t rest = rests_from(before, old_scale);
  bool is_at_rest = rest < old_scale.total_steps && rest <= resumed.step;
  if (const auto kept = resumed.written_by.find(kMasksRestFrom); kept != resumed.written_by.end()) {
    const std::string& text = kept->second;
    is_at_rest = std::from_chars(text.data(), text.data() + text.size(), rest).ec == std::errc();
  }
  const int64_t last = rests_from(recipe, scale);
  if (!is_at_rest || last <= rest) return;
  sparse->masks().rest_from(rest);
  writer.written_by[kMasksRestFrom] = std::to_string(rest);
  writer.warn(
      fmt::format("sparsity.rule: masks rest since step {} and stay as they are; --override lets "
                  "them change up to step {}",
                  rest, last));
}

}  // namespace shoal
