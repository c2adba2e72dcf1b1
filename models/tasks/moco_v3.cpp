#include <cmath>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "models/moco/info_nce.h"
#include "models/moco/momentum_encoder.h"
#include "models/moco/nearest_neighbours.h"
#include "models/moco/projection_head.h"
#include "models/task.h"
#include "models/tasks/label_rank.h"
#include "moe/routing/router.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {
namespace {

constexpr int64_t kViews = 2;

/// Both views of a batch as one batch of 2b: for each routing group all first views, then all
/// second ones. So a group has both views of its samples, and ranks keep whole groups.
struct BothViews {
  ModelInput input;
  StepContext step;
};

BothViews both_views(const Batch& batch) {
  const int64_t group = batch.context.samples_per_group;
  const auto by_group = [group](const torch::Tensor& value_bV) {
    return value_bV.unflatten(0, {-1, group}).transpose(1, 2).flatten(0, 2);
  };
  BothViews both{{}, batch.context};
  both.input.image_bCHW = by_group(batch.image_bVCHW);
  StepContext& step = both.step;
  step.sample_b = by_group(batch.context.sample_b.unsqueeze(1).expand({-1, kViews}));
  step.view_b = by_group(
      torch::arange(kViews, step.sample_b.options()).expand({batch.image_bVCHW.size(0), kViews}));
  step.samples_per_group *= kViews;
  step.samples_in_step *= kViews;
  step.samples_in_micro *= kViews;
  return both;
}

/// The rows of one view among 2b rows of both.
torch::Tensor of_view(const torch::Tensor& both_2bD, const BothViews& both, int64_t view) {
  const int64_t group = both.step.samples_per_group / kViews;
  return both_2bD.unflatten(0, {-1, kViews, group}).select(1, view).flatten(0, 1);
}

/// MoCo v3: contrastive learning, in which a query must find the key of the same image's other view
/// among all images of the global batch. Queries come from backbone, projector and predictor, keys
/// from the momentum encoder; the loss is symmetric in the two views. The key encoder's router has
/// no noise, no capacity limit and no balance loss. Routing, capacity and balance losses of the
/// query encoder treat both views of a routing group as one group; losses of scope `sequence` are
/// averaged over all views.
///
/// Parameters: backbone, projector, predictor; and of the momentum encoder, without gradients and
/// optimizer state, key_backbone and key_projector.
/// Source: Chen, Xie and He 2021; with experts: Lou et al. 2021, section 4.1.
class MocoV3 : public Task, public References {
 public:
  struct Options {
    int64_t hidden = 4096;
    int64_t out = 256;
    double temperature = 0.2;
    double momentum = 0.99;
    MomentumSchedule momentum_schedule = MomentumSchedule::kCosine;
    int64_t neighbours = 20;
    double neighbour_temperature = 0.07;
    int64_t references = 10000;

    static constexpr auto fields() {
      return std::tuple{
          field("hidden", &Options::hidden, "hidden width of projector and predictor",
                in_range(1, kMostWidth)),
          field("out", &Options::out, "width of queries and keys", in_range(1, kMostWidth)),
          field("temperature", &Options::temperature, "T of the contrastive loss", above(0)),
          field("momentum", &Options::momentum, "m of the key encoder, at the first step",
                in_range(0, 1)),
          field("momentum_schedule", &Options::momentum_schedule,
                "how m changes: constant, or on a cosine schedule to 1 at the end"),
          field("neighbours", &Options::neighbours,
                "k of the k-nearest-neighbour accuracy that evaluations report", at_least(1)),
          field("neighbour_temperature", &Options::neighbour_temperature,
                "temperature of the neighbours' votes", above(0)),
          field("references", &Options::references,
                "training samples searched for neighbours; 0: omit this accuracy", at_least(0))};
    }
  };

  MocoV3(const Options& options, const Context& context)
      : options_(options),
        has_labels_(context.data.classes > 0),
        neighbours_(options.neighbours, options.neighbour_temperature) {
    require_images(context.data, "task.name", "moco_v3");
    const torch::TensorOptions& tensor = context.build.tensor_options;
    RankGrid* grid = context.build.grid;
    world_ = grid != nullptr ? &grid->tensor_world() : nullptr;
    const auto add_backbone = [&](const char* name) {
      return register_module(name, context.make_backbone(name, Features::kPooled));
    };
    backbone_ = add_backbone("backbone");
    const ProjectionShape projector{backbone_->feature_width(), options.hidden, options.out, 3};
    const ProjectionShape predictor{options.out, options.hidden, options.out, 2};
    projector_ = register_module("projector", ProjectionHead(projector, tensor, world_));
    predictor_ = register_module("predictor", ProjectionHead(predictor, tensor, world_));
    key_backbone_ = add_backbone("key_backbone");
    key_projector_ = register_module("key_projector", ProjectionHead(projector, tensor, world_));
    for (const auto& module : untrained()) {
      for (torch::Tensor& parameter : module->parameters()) parameter.set_requires_grad(false);
    }
    check_routers();
  }

  TrainOutput train(const Batch& batch) override {
    const int64_t samples = batch.context.samples_in_step;
    TORCH_CHECK(samples > 0, "train needs StepContext::samples_in_step");
    const BothViews both = both_views(batch);
    const GatheredRows keys = keys_of(both);
    ModelOutput output = backbone_->forward(both.input, both.step);
    torch::Tensor sum;
    for (int64_t view = 0; view < kViews; ++view) {
      const torch::Tensor query_bD = query_of(of_view(output.pooled_bD, both, view), true);
      const GatheredRows others{keys.rows.select(1, 1 - view), keys.first};
      sum = add_loss(sum, info_nce_sum(query_bD, others, options_.temperature));
    }
    return {add_loss(sum / static_cast<double>(samples), output.auxiliary_loss),
            std::move(output.moe)};
  }

  torch::Tensor outputs(const Batch& batch) override {
    return query_of(backbone_->forward(input_of(batch), batch.context).pooled_bD, false);
  }

  /// Evaluates one view: how well queries find their keys within the batch, whether features have
  /// collapsed, and how well nearest neighbours predict the class.
  EvalOutput evaluate(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    ModelOutput query = backbone_->forward(input_of(batch), batch.context);
    const ModelOutput key = key_backbone_->forward(input_of(batch), batch.context);
    const torch::Tensor query_bD = query_of(query.pooled_bD, false);
    const GatheredRows keys =
        gather_rows(unit_rows(key_projector_->forward(key.pooled_bD, false)), *world_);
    const GatheredRows queries = gather_rows(unit_rows(query_bD), *world_);
    const torch::Tensor is_own_b =
        rank_of_label(contrast(query_bD, keys, options_.temperature), own_keys(query_bD, keys)) < 1;
    const auto samples = static_cast<double>(query_bD.size(0));
    EvalOutput result;
    const auto add = [&](const char* name, const torch::Tensor& sum, double weight) {
      result.sums.push_back({name, sum.item<double>(), weight});
    };
    add("loss", info_nce_sum(query_bD, keys, options_.temperature), samples);
    add("contrast_top1", is_own_b.sum(), samples);
    add("feature_std", queries.rows.std(0, /*unbiased=*/false).mean() * samples, samples);
    if (neighbours_.size() > 0) {
      add("knn_top1", (neighbours_.classify(query.pooled_bD, own_b_) == batch.label_b).sum(),
          samples);
    }
    result.sums.push_back(router_agreement(query.moe, key.moe));
    result.moe = std::move(query.moe);
    return result;
  }

  std::vector<Metric> metrics(const std::vector<NamedSum>& totals) const override {
    using Kind = Metric::Kind;
    std::vector<Metric> metrics{
        {"loss", mean_of(totals, "loss"), Kind::kLoss},
        {"contrast_top1", mean_of(totals, "contrast_top1"), Kind::kShare, "own key found"},
        {"feature_std", mean_of(totals, "feature_std"), Kind::kNumber, "feature std"}};
    const auto add_if_known = [&](const char* name, const char* label) {
      const double mean = mean_of(totals, name);
      if (totals.empty() || !std::isnan(mean)) metrics.push_back({name, mean, Kind::kShare, label});
    };
    if (compares_neighbours()) add_if_known("knn_top1", "k-NN top-1");
    add_if_known("key_router_agreement", "router agreement with the key encoder");
    return metrics;
  }

  ScoreRule score() const override {
    return compares_neighbours() ? ScoreRule{"knn_top1", /*higher_is_better=*/true}
                                 : ScoreRule{"loss", /*higher_is_better=*/false};
  }
  RateUnit unit() const override { return {"img"}; }
  int64_t views() const override { return kViews; }
  bool compares_samples() const override { return true; }

  std::vector<std::shared_ptr<torch::nn::Module>> untrained() const override {
    return {key_backbone_, key_projector_.ptr()};
  }

  std::unique_ptr<StepRule> make_step_rule(const StepScale& scale) override {
    std::vector<MomentumEncoder::Pair> weights, buffers;
    add_pairs(parameters_of(*key_backbone_), parameters_of(*backbone_), weights);
    add_pairs(parameters_of(*key_projector_), parameters_of(*projector_), weights);
    add_pairs(buffers_of(*key_backbone_), buffers_of(*backbone_), buffers);
    return std::make_unique<MomentumEncoder>(
        std::move(weights), std::move(buffers),
        MomentumOptions{options_.momentum, options_.momentum_schedule}, scale.total_steps);
  }

  References* references() override { return this; }
  int64_t most_samples() const override { return has_labels_ ? options_.references : 0; }
  void clear() override { neighbours_.clear(), own_b_.reset(); }
  void set_own(torch::Tensor reference_b) override { own_b_ = std::move(reference_b); }
  void add(const Batch& batch) override {
    const torch::NoGradGuard no_grad;
    neighbours_.add(backbone_->forward(input_of(batch), batch.context).pooled_bD, batch.label_b,
                    *world_);
  }

 private:
  static void add_pairs(const std::vector<Parameter>& keys, const std::vector<Parameter>& queries,
                        std::vector<MomentumEncoder::Pair>& pairs) {
    TORCH_CHECK(keys.size() == queries.size(), "the key encoder has ", keys.size(),
                " tensors, the query encoder ", queries.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      TORCH_CHECK(keys[i].name == queries[i].name && keys[i].unit_ids == queries[i].unit_ids,
                  "the key encoder's ", keys[i].name, " is paired with ", queries[i].name,
                  ", or with other experts");
      pairs.push_back({keys[i].tensor, queries[i].tensor});
    }
  }

  void check_routers() const {
    for (const auto& module : key_backbone_->modules()) {
      const auto* router = dynamic_cast<const Router*>(module.get());
      if (router == nullptr || !router->assigns_by_seed()) continue;
      throw ConfigError(
          "task.name: moco_v3: a router that draws a token's experts by the layer's name sends the "
          "tokens of the query and of the key encoder to different experts; choose another");
    }
  }

  bool compares_neighbours() const { return most_samples() > 0; }

  torch::Tensor query_of(const torch::Tensor& feature_bD, bool is_training) {
    return predictor_->forward(projector_->forward(feature_bD, is_training), is_training);
  }

  /// Keys of all ranks, [B, 2, D], of norm 1. The projector's norms treat each view as a batch.
  GatheredRows keys_of(const BothViews& both) {
    const torch::NoGradGuard no_grad;
    StepContext step = both.step;
    step.training = false;
    const torch::Tensor feature_2bD = key_backbone_->forward(both.input, step).pooled_bD;
    std::vector<torch::Tensor> keys;
    for (int64_t view = 0; view < kViews; ++view) {
      keys.push_back(unit_rows(key_projector_->forward(of_view(feature_2bD, both, view), true)));
    }
    return gather_rows(torch::stack(keys, 1), *world_);
  }

  /// Tokens whose first expert is the same in both encoders.
  static NamedSum router_agreement(const std::vector<MoeStats>& query,
                                   const std::vector<MoeStats>& key) {
    NamedSum agreement{"key_router_agreement"};
    for (size_t layer = 0; layer < query.size(); ++layer) {
      const torch::Tensor& query_T = query[layer].first_unit_T;
      if (!query_T.defined()) continue;
      agreement.sum += (query_T == key[layer].first_unit_T).sum().item<double>();
      agreement.weight += static_cast<double>(query_T.numel());
    }
    return agreement;
  }

  Options options_;
  bool has_labels_;
  Communicator* world_ = nullptr;
  std::shared_ptr<Backbone> backbone_, key_backbone_;
  ProjectionHead projector_{nullptr}, predictor_{nullptr}, key_projector_{nullptr};
  NearestNeighbours neighbours_;
  torch::Tensor own_b_;  ///< of set_own
};

const Registration<Task, MocoV3> registered_moco_v3{
    "moco_v3", "MoCo v3: pretraining on two views of each image, without labels"};

}  // namespace
}  // namespace shoal
