#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/backbone.h"
#include "models/task.h"

namespace shoal::testing {

/// A model as a recipe would give it, on images of `image` with `classes` classes.
/// `recipe` holds the sections `model` and, if it differs from `{name: classify}`, `task`.
std::shared_ptr<Task> build_model(const std::string& recipe, const ImageShape& image,
                                  int64_t classes, const ModelContext& build);

/// Builds a recipe's task on any data.
std::shared_ptr<Task> build_task(const std::string& recipe, const DataShape& data,
                                 const ModelContext& build);

/// The backbone of a section `model` on its own.
std::shared_ptr<Backbone> build_backbone(const std::string& recipe, const DataShape& data,
                                         const ModelContext& build,
                                         Features features = Features::kTokens);

/// What the published sizes of models are counted for.
inline constexpr ImageShape kImageNet{3, 224, 224};

/// Where parameters are counted: nothing is allocated.
ModelContext meta_context();

/// Values in all parameters of a model.
int64_t count_parameters(const torch::nn::Module& model);

}  // namespace shoal::testing
