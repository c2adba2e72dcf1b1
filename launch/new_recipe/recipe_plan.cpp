#include "launch/new_recipe/recipe_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

bool fits(const BackboneSketch& backbone, const SourceSketch& source) {
  return backbone.reads_images == (source.kind == DataKind::kImages);
}

template <class Sketch>
std::vector<std::string> names_of(std::span<const Sketch> sketches) {
  std::vector<std::string> names;
  for (const Sketch& sketch : sketches) names.emplace_back(sketch.name);
  return names;
}

template <class Sketch>
const Sketch& find(std::span<const Sketch> sketches, const std::string& option,
                   const std::string& name) {
  const auto found = std::ranges::find(sketches, name, &Sketch::name);
  if (found != sketches.end()) return *found;
  const std::vector<std::string> names = names_of(sketches);
  const std::string guess = did_you_mean(name, names);
  throw Error(ExitCode::kUsage, fmt::format("{}: unknown name '{}'{}", option, name, guess),
              guess.empty() ? "one of: " + join_words(names) : "");
}

const SourceSketch& source_for(const BackboneSketch& backbone, const std::string& name) {
  const std::string usual = backbone.reads_images ? "shapes" : "text";
  const SourceSketch& source = find(source_sketches(), "--data", name.empty() ? usual : name);
  if (fits(backbone, source)) return source;
  std::vector<std::string> others;
  for (const BackboneSketch& other : backbone_sketches()) {
    if (fits(other, source)) others.emplace_back(other.name);
  }
  throw Error(ExitCode::kUsage,
              fmt::format("{} reads {}, and {} has {}", backbone.name,
                          backbone.reads_images ? "images" : "tokens", source.name,
                          backbone.reads_images ? "tokens" : "images"),
              fmt::format("--data for {}: {}; --backbone for {}: {}", backbone.name,
                          join_words(new_recipe_sources(std::string(backbone.name))), source.name,
                          join_words(others)));
}

int64_t experts_for(const BackboneSketch& backbone, std::optional<int64_t> wanted) {
  constexpr int64_t kUsual = 4;
  const int64_t experts = wanted.value_or(backbone.experts == Experts::kMust ? kUsual : 0);
  const bool is_refused = backbone.experts == (experts == 0 ? Experts::kMust : Experts::kNone);
  if (!is_refused) return experts;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} experts", backbone.name, experts == 0 ? "always has" : "has no"),
              std::string(backbone.why));
}

}  // namespace

std::string RecipePlan::task() const {
  if (backbone.reads_images) return std::string(backbone.task);
  return source.kind == DataKind::kSequences ? "classify" : "lm";
}

std::string RecipePlan::name() const {
  return fmt::format("{}_{}{}", backbone.name, source.name,
                     backbone.experts == Experts::kMay && experts > 0 ? "_moe" : "");
}

RecipePlan plan_recipe(const NewArguments& arguments) {
  const BackboneSketch& backbone = find(backbone_sketches(), "--backbone", arguments.backbone);
  const SourceSketch& source = source_for(backbone, arguments.data);
  if (!arguments.path.empty() && source.path.empty()) {
    throw Error(ExitCode::kUsage, fmt::format("--path: {} needs no files", source.name));
  }
  return {backbone, source, experts_for(backbone, arguments.experts), arguments.path};
}

std::vector<std::string> new_recipe_backbones() { return names_of(backbone_sketches()); }

std::vector<std::string> new_recipe_sources() { return names_of(source_sketches()); }

std::vector<std::string> new_recipe_sources(const std::string& backbone) {
  const BackboneSketch& known = find(backbone_sketches(), "--backbone", backbone);
  std::vector<std::string> names;
  for (const SourceSketch& source : source_sketches()) {
    if (fits(known, source)) names.emplace_back(source.name);
  }
  return names;
}

}  // namespace shoal
