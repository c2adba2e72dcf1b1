#pragma once

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/build_model.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/ranks.h"
#include "tests/support/some_batch.h"

namespace shoal::testing {

inline constexpr ImageShape kTinyImage{1, 4, 6};

/// Keys of a backbone with experts in its MLP places, and with experts and memory units.
inline const std::string kTinyMoe =
    ", moe: {router: {name: top_k, k: 2, noise: none}, experts: {count: 3, hidden: 5}, losses: "
    "[{name: importance, weight: 0.1}]}";
inline const std::string kTinyNexus =
    ", nexus: {experts: {count: 2, hidden: 5}, memory: {count: 1, keys: 4, k: 2}, slots: 2}";

/// Classifiers of three classes on one rank, in float64, with filled parameters.
class TinyModel : public ::testing::Test {
 protected:
  explicit TinyModel(const ImageShape& image = kTinyImage) : image_(image) {}

  /// The model of a recipe, whose tensors at() finds from here on.
  std::shared_ptr<Task> make(const std::string& recipe) {
    auto task =
        build_model(recipe, image_, 3, {{&grid_, torch::TensorOptions().dtype(torch::kFloat64)}});
    fill_parameters(*task);
    tensors_.clear();
    for (const Parameter& parameter : parameters_of(*task)) {
      tensors_.insert_or_assign(parameter.name, parameter.tensor);
    }
    return task;
  }
  const torch::Tensor& at(const std::string& name) const { return tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(tensor);
    return result;
  }
  Batch batch(int64_t images) const { return some_batch(images, image_); }

  /// Loss on eight images.
  double loss_of(const std::string& recipe, bool training) {
    const torch::NoGradGuard no_grad;
    return make(recipe)->train(in_step(batch(8), some_step(8, training))).loss.item<double>();
  }
  /// Error of a training step's gradients on four images, against finite differences.
  double gradient_error_of(const std::string& recipe) {
    const auto task = make(recipe);
    const Batch images = in_step(batch(4), some_step(4, true));
    return gradient_error([&] { return task->train(images).loss; }, parameters());
  }
  /// A rank without images of the step's four has no loss, and gradients of zeros.
  void expect_zeros_without_images(const std::string& recipe) {
    const auto task = make(recipe);
    StepContext step = some_step(0, true);
    step.samples_in_step = step.samples_in_micro = 4;
    const torch::Tensor loss = task->train(in_step(batch(0), step)).loss;
    EXPECT_EQ(loss.item<double>(), 0.0);
    loss.backward();
    for (const auto& [name, tensor] : tensors_) {
      ASSERT_TRUE(tensor.grad().defined()) << name;
      EXPECT_EQ(tensor.grad().abs().max().item<double>(), 0.0) << name;
    }
  }

  // Layers by LibTorch's operators.
  torch::Tensor plain_norm(const torch::Tensor& x, const std::string& path) const {
    return at::layer_norm(x, {x.size(-1)}, at(path + ".weight"), at(path + ".bias"), 1e-6);
  }
  torch::Tensor plain_linear(const torch::Tensor& x, const std::string& path) const {
    return at::linear(x, at(path + ".weight"), at(path + ".bias"));
  }

 private:
  ImageShape image_;
  RankGrid grid_ = self_grid();
  std::map<std::string, torch::Tensor> tensors_;
};

}  // namespace shoal::testing
