#include "runtime/data/transform_chain.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

std::string path_of_entry(size_t index) {
  return fmt::format("data.augment.transforms[{}]", index);
}

}  // namespace

void ViewProbability::validate(Problems& problems) const {
  if (views.empty() || all == 1.0) return;
  problems.add("", "has a number for all views and one for each; keep one of them");
}

TransformChain::TransformChain(const std::vector<TransformOptions>& options, int64_t channels,
                               const PixelTransform::Context& context) {
  std::map<std::string, uint64_t> num_of_name;
  for (const TransformOptions& entry : options) {
    const std::string& name = entry.transform.name();
    auto transform = Registry<PixelTransform>::create(entry.transform, context);
    if (transform->needs_colours() && channels != 3) {
      throw ConfigError(fmt::format("{}: {} needs images of 3 channels, these have {}",
                                    path_of_entry(links_.size()), name, channels));
    }
    links_.push_back(
        {std::move(transform), entry.probability, hash_name(name) + num_of_name[name]++});
  }
}

void TransformChain::apply(EditedImage& image, const SampleView& view) const {
  for (const Link& link : links_) {
    const TransformDraws draws(link.key, view);
    if (draws.acts(link.probability.of(view.view))) link.transform->apply(image, draws);
  }
}

void require_views(const std::vector<TransformOptions>& options, int64_t num_views) {
  for (size_t i = 0; i < options.size(); ++i) {
    const auto found = std::ssize(options[i].probability.views);
    if (found == 0 || found == num_views) continue;
    throw ConfigError(fmt::format("{}.probability.views: {} for {} of a training image",
                                  path_of_entry(i), counted(found, "number"),
                                  counted(num_views, "view")));
  }
}

}  // namespace shoal
