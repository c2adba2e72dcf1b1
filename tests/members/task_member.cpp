#include <memory>
#include <tuple>

#include "models/task.h"
#include "runtime/base/error.h"
#include "runtime/module/linear.h"

// b samples on this rank  N classes
namespace shoal {
namespace {

/// Classification by the squared error of the classes' numbers.
class StripesTask final : public Task {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  StripesTask(const Options&, const Context& context) {
    if (context.data.classes == 0) throw ConfigError("task.name: stripes_task needs labels");
    backbone_ = register_module("backbone", context.make_backbone("backbone", Features::kPooled));
    head_ = register_module("head", Linear(backbone_->feature_width(), context.data.classes,
                                           context.build.tensor_options));
  }
  TrainOutput train(const Batch& batch) override {
    ModelOutput output = backbone_->forward(input_of(batch), batch.context);
    torch::Tensor loss = squares_b(head_->forward(output.pooled_bD), batch).sum() /
                         static_cast<double>(batch.context.samples_in_step);
    if (output.auxiliary_loss.defined()) loss = loss + output.auxiliary_loss;
    return {loss, std::move(output.moe)};
  }
  torch::Tensor outputs(const Batch& batch) override {
    return head_->forward(backbone_->forward(input_of(batch), batch.context).pooled_bD);
  }
  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor square_b = squares_b(outputs(batch), batch);
    return {{{"square", square_b.sum().item<double>(), static_cast<double>(square_b.numel())}}};
  }
  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    return {{"square", mean_of(totals, "square")}};
  }
  ScoreRule score() const override { return {"square", /*higher_is_better=*/false}; }
  RateUnit unit() const override { return {"image"}; }
  int64_t head_parameters() const override { return head_->weight.numel() + head_->bias.numel(); }

 private:
  static torch::Tensor squares_b(const torch::Tensor& output_bN, const Batch& batch) {
    const torch::Tensor wanted_bN =
        torch::zeros_like(output_bN).scatter_(1, batch.label_b.unsqueeze(1), 1.0);
    return (output_bN - wanted_bN).square().sum(1);
  }

  std::shared_ptr<Backbone> backbone_;
  Linear head_{nullptr};
};

const Registration<Task, StripesTask> registered_stripes_task{"stripes_task", "for this test"};

}  // namespace
}  // namespace shoal
