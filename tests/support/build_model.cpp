#include "tests/support/build_model.h"

#include <tuple>

#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"

namespace shoal::testing {
namespace {

struct ModelSection {
  Choice<Backbone> backbone;
  static constexpr auto fields() { return std::tuple{inlined(&ModelSection::backbone)}; }
};

struct Recipe {
  ModelSection model;
  Choice<Task> task{"classify"};
  static constexpr auto fields() {
    return std::tuple{field("model", &Recipe::model, "the backbone"),
                      field("task", &Recipe::task, "what is trained for")};
  }
};

}  // namespace

std::shared_ptr<Task> build_model(const std::string& recipe, const ImageShape& image,
                                  int64_t classes, const ModelContext& build) {
  return build_task(recipe, {.source = "test", .image = image, .classes = classes}, build);
}

std::shared_ptr<Task> build_task(const std::string& recipe, const DataShape& data,
                                 const ModelContext& build) {
  const Recipe options = config::load_options_text<Recipe>(recipe, "recipe").options;
  return Registry<Task>::create(
      options.task, {build, data, backbone_factory(options.model.backbone, build, data)});
}

std::shared_ptr<Backbone> build_backbone(const std::string& recipe, const DataShape& data,
                                         const ModelContext& build, Features features) {
  const Recipe options = config::load_options_text<Recipe>(recipe, "recipe").options;
  return backbone_factory(options.model.backbone, build, data)("backbone", features);
}

ModelContext meta_context() {
  ModelContext build;
  build.tensor_options = build.tensor_options.device(torch::kMeta);
  return build;
}

int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_of(model)) count += parameter.tensor.numel();
  return count;
}

}  // namespace shoal::testing
