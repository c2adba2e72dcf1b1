// Training steps and evaluations of the adaptive sparse-attention denoiser, mixed softly and hard,
// beside the soft model in Python PyTorch, in turns.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/support/peer_process.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "benchmarks/support/tensor_file.h"
#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "models/backbones/adaptive_attention.h"
#include "models/tasks/denoise_options.h"
#include "moe/losses/balance_loss.h"
#include "runtime/data/loader/loader.h"
#include "runtime/optim/adamw.h"
#include "runtime/options/config_reader.h"

// C channels  H height  W width  L layers  U experts
namespace shoal::bench::denoise_bench {
namespace {

constexpr int64_t kCallsPerTurn = 5, kWarmUpTurns = 1;
// The recipes'; with another one the comparison with Python ends the program.
constexpr double kSigma = 0.2;
const std::vector<std::string> kPasses{"step", "evaluation"};

struct Arguments {
  std::string python = "python3";
  std::vector<std::string> overrides;
  int64_t threads = 2;
  int64_t rounds = 0;
};

/// Smooth images in memory: waves of a direction and a phase of their own.
class DrawnImages final : public SampleSet {
 public:
  DrawnImages(const ImageShape& shape, int64_t size) {
    for (int64_t i = 0; i < size; ++i) samples_.push_back(draw(shape, static_cast<double>(i)));
  }
  int64_t size() const override { return std::ssize(samples_); }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    return samples_[static_cast<size_t>(index)];
  }

 private:
  static Sample draw(const ImageShape& shape, double i) {
    Sample sample;
    sample.shape = shape;
    for (int64_t c = 0; c < shape.channels; ++c) {
      for (int64_t y = 0; y < shape.height; ++y) {
        for (int64_t x = 0; x < shape.width; ++x) {
          const auto along = std::cos(i) * static_cast<double>(x) / 4.0;
          const auto across = std::sin(i) * static_cast<double>(y) / 6.0;
          const double wave =
              std::sin(i + static_cast<double>(c) + along) + std::cos(2 * i + across);
          sample.pixel_CHW.push_back(static_cast<uint8_t>(127.0 + 60.0 * wave));
        }
      }
    }
    return sample;
  }

  std::vector<Sample> samples_;
};

/// A recipe in training, and the same batch for each of its evaluations.
class MeasuredModel {
 public:
  MeasuredModel(const std::string& recipe, const std::vector<std::string>& overrides,
                RankGrid& grid)
      : recipe_(config::load_options<Recipe>({recipe, overrides, {}}, config::UnsetVariable::kKeep)
                    .options),
        grid_(grid) {
    data_.source = make_source(recipe_);
    const ImageShape shape = data_.source->shape().image.value();
    data_.samples = std::make_unique<DrawnImages>(shape, recipe_.train.batch);
    session_ = std::make_unique<Session>(
        recipe_, build_model(recipe_, data_.source->shape(), {&grid_, grid_.device}), data_, grid_);
    evaluated_ = make_batch(/*is_training=*/false);
  }

  /// The first batch of a training, or of an evaluation.
  Batch make_batch(bool is_training) const {
    const BatchMaker maker(*data_.samples, loader_settings(recipe_, data_, grid_), is_training);
    return maker.make({0, recipe_.train.batch});
  }
  torch::Tensor restore(const Batch& batch) {
    const torch::NoGradGuard no_grad;
    return session_->task().outputs(batch);
  }
  StepReport step() { return reduce(session_->step({}), *grid_.world); }
  double time_us(const std::string& pass) {
    const double seconds = seconds_of(
        [&] {
          if (pass == "step") {
            session_->step({});
          } else {
            restore(evaluated_);
          }
        },
        kCallsPerTurn);
    return 1e6 * seconds / kCallsPerTurn;
  }
  /// Sets the biases of the routers' logits so that experts get equally many tokens.
  void even_loads();

  const Recipe& recipe() const { return recipe_; }
  Session& session() { return *session_; }

 private:
  /// Share of an evaluation's tokens of each unit, by layer in order.
  torch::Tensor load_share_LU(std::vector<std::string>& layers);

  Recipe recipe_;
  RankGrid& grid_;
  OpenSplit data_;
  std::unique_ptr<Session> session_;
  Batch evaluated_;
};

torch::Tensor MeasuredModel::load_share_LU(std::vector<std::string>& layers) {
  std::vector<torch::Tensor> share_U;
  layers.clear();
  for (const MoeStats& stats : session_->task().evaluate(evaluated_).moe) {
    const MoeReport layer = report(stats);
    const torch::Tensor load_U = torch::tensor(layer.load_U, torch::kFloat64);
    share_U.push_back(load_U / load_U.sum());
    layers.push_back(layer.layer);
  }
  return torch::stack(share_U);
}

void MeasuredModel::even_loads() {
  constexpr int kMostTries = 200;
  constexpr double kTolerance = 0.01, kFirstChange = 0.05, kFaster = 1.2, kSlower = 0.5;
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> parameters;
  for (const Parameter& parameter : session_->parameters()) {
    parameters[parameter.name] = parameter.tensor;
  }
  torch::Tensor change_LU, last_LU;
  std::vector<std::string> layers;
  for (int i = 0; i < kMostTries; ++i) {
    const torch::Tensor share_LU = load_share_LU(layers);
    const torch::Tensor excess_LU = share_LU - 1.0 / static_cast<double>(share_LU.size(1));
    if (excess_LU.abs().max().item<double>() <= kTolerance) return;
    if (!last_LU.defined()) {
      last_LU = torch::zeros_like(excess_LU);
      change_LU = torch::full_like(excess_LU, kFirstChange);
    }
    // As Rprop: a bias that went too far turns back with smaller steps.
    change_LU = change_LU * torch::where(excess_LU * last_LU < 0, kSlower, kFaster);
    last_LU = excess_LU;
    for (size_t l = 0; l < layers.size(); ++l) {
      const torch::Tensor bias_U = parameters.at("backbone." + layers[l] + ".router.fc2.bias");
      bias_U.sub_((change_LU * excess_LU.sign())[static_cast<int64_t>(l)].to(bias_U.scalar_type()));
    }
  }
  throw std::runtime_error("the loads of the experts cannot be made even by the routers' biases");
}

/// What the peer needs of the recipe.
nlohmann::json describe(const Recipe& recipe, const ImageShape& image) {
  const auto& model = recipe.model.backbone.options<AdaptiveAttention>();
  std::vector<Choice<BalanceLoss>> losses;
  if (model.attention) losses = model.attention->losses.value();
  if (losses.size() != 1 || losses.front().name() != "kl_uniform" || model.final_norm) {
    throw std::runtime_error("the peer has attention experts, the loss kl_uniform, no final norm");
  }
  if (recipe.optimizer.name() != "adamw") {
    throw std::runtime_error(
        fmt::format("optimizer: {}, the peer's is adamw", recipe.optimizer.name()));
  }
  const auto& adamw = recipe.optimizer.options<AdamW>();
  const PatchGrid grid{image.height / model.patch, image.width / model.patch};
  std::vector<int64_t> kept;
  for (const AttentionExpertOptions& expert : model.attention->experts) {
    kept.push_back(expert.keys_of(grid));
  }
  const auto loss = Registry<BalanceLoss>::create(losses.front(), {});
  return {{"model",
           {{"patch_size", model.patch},
            {"embed_dim", model.width},
            {"num_heads", model.heads},
            {"hidden", model.hidden.value_or(2 * model.width)},
            {"depth", model.depth},
            {"k_budgets", kept}}},
          {"sigma", kSigma},
          {"balance_weight", loss->weight()},
          {"betas", adamw.betas},
          {"eps", adamw.eps},
          {"weight_decay", adamw.weight_decay},
          {"clip_norm", recipe.train.clip_norm}};
}

void require_small(const std::string& form, const std::string& what, double difference,
                   double tolerance) {
  if (difference <= tolerance) return;
  throw std::runtime_error(
      fmt::format("Python's {}: {} differs from shoal's by {:.1e} of it, more than {:.0e}", form,
                  what, difference, tolerance));
}

/// Both sides, given the same weights and noisy images, restore the same, have the same loss, and
/// restore the same after a step. Returns the forms of attention that the peer has; throws if one
/// of them differs. The model takes a step.
std::vector<std::string> compare(MeasuredModel& soft, PeerProcess& peer, Report& out) {
  // Some ten roundings of float32 in each of a few sums; but a query whose k-th logit is within a
  // rounding of the next one may keep another key, a few of some 60,000 here.
  constexpr double kLossTolerance = 1e-5, kTolerance = 5e-5;
  const Batch batch = soft.make_batch(/*is_training=*/true);
  const torch::Tensor clean = batch.image_bCHW();
  TensorFile file;
  for (const Parameter& parameter : soft.session().parameters()) {
    file.add(parameter.name, parameter.tensor);
  }
  file.add("clean", clean);
  const DenoiseOptions noise{.sigma = kSigma};
  file.add("noisy", add_noise(noise, clean, batch.context, kTrainingNoise));
  file.add("restored", soft.restore(batch).view_as(clean));
  const StepOutcome first = soft.session().step({});
  const double own_loss = first.loss.item<double>();
  file.add("restored_after_step", soft.restore(batch).view_as(clean));
  nlohmann::json question = describe(soft.recipe(), {clean.size(1), clean.size(2), clean.size(3)});
  question["file"] = file.finish();
  question["lr"] = first.lr;  // of the schedule
  const nlohmann::json answer = peer.ask(question);
  std::vector<std::string> forms;
  for (const auto& [form, result] : answer.items()) {
    const double loss = std::abs(result["loss"].get<double>() - own_loss) / own_loss;
    require_small(form, "the loss", loss, kLossTolerance);
    require_small(form, "the restored batch", result["difference"], kTolerance);
    require_small(form, "the restored batch after a step", result["difference_after_step"],
                  kTolerance);
    std::printf("python_%s: the restored batch differs by %.1e, after a step by %.1e\n",
                form.c_str(), result["difference"].get<double>(),
                result["difference_after_step"].get<double>());
    forms.push_back(form);
  }
  out.note("differences_from_python", answer);
  std::fflush(stdout);
  return forms;
}

/// How often a contender is as slow as another.
struct Ratio {
  std::string slow, fast;
};

void report_times(const std::vector<Timing>& timings, const std::string& pass, int64_t images,
                  Report& out) {
  std::map<std::string, double> us;
  for (const Timing& timing : timings) {
    if (!timing.name.ends_with(" " + pass)) continue;
    const std::string name = timing.name.substr(0, timing.name.find(' '));
    const double rate = static_cast<double>(images) / timing.median_us * 1e6;
    us[name] = timing.median_us;
    std::printf("%-10s  %-22s %8.1f ms, %6.0f images/s\n", pass.c_str(), name.c_str(),
                timing.median_us / 1e3, rate);
    out.add({{"pass", pass},
             {"contender", name},
             {"us", timing.median_us},
             {"images_per_second", rate}});
  }
  nlohmann::json row{{"pass", pass}};
  std::vector<Ratio> ratios{{"soft", "hard"}, {"soft", "hard_shared_kv"}};
  for (const auto& [name, value] : us) {
    if (name.starts_with("python_")) ratios.push_back({name, "soft"});
  }
  for (const Ratio& ratio : ratios) {
    const double value = us.at(ratio.slow) / us.at(ratio.fast);
    row[ratio.slow + "_over_" + ratio.fast] = value;
    std::printf("%-10s  %s over %s: %.2f\n", pass.c_str(), ratio.slow.c_str(), ratio.fast.c_str(),
                value);
  }
  out.add(row);
}

/// The work of the attention experts in a training step, as the program counts it.
void report_work(const std::string& name, MeasuredModel& model, double& soft_work, Report& out) {
  double work = 0.0;
  nlohmann::json layers = nlohmann::json::array();
  std::string loads;
  for (const MoeReport& layer : model.step().moe) {
    work += layer.multiply_adds.value();
    layers.push_back({{"layer", layer.layer}, {"load", layer.load_U}});
    for (size_t u = 0; u < layer.load_U.size(); ++u) {
      loads += fmt::format("{}{}", u == 0 ? "; " : " ", layer.load_U[u]);
    }
  }
  if (soft_work == 0.0) soft_work = work;
  std::printf("work        %-14s %7.0f multiply-adds per token, soft over it: %.2f; loads%s\n",
              name.c_str(), work, soft_work / work, loads.c_str());
  out.add({{"contender", name},
           {"multiply_adds_per_token", work},
           {"soft_over_it", soft_work / work},
           {"layers", layers}});
}

void measure(const Arguments& arguments, Report& out) {
  set_up(arguments.threads, out);
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  // The recipes' schedules, whose epochs are longer than this data's.
  std::vector<std::string> overrides{"train.duration=18750step"};
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  std::vector<std::string> frozen = overrides;
  frozen.push_back("optimizer.lr=1e-12");
  MeasuredModel soft("configs/denoise/cifar10.yaml", overrides, grid);
  MeasuredModel hard("configs/denoise/cifar10_hard.yaml", frozen, grid);
  MeasuredModel shared("configs/denoise/cifar10_hard_shared_kv.yaml", frozen, grid);
  hard.even_loads();
  shared.even_loads();
  const std::vector<std::pair<std::string, MeasuredModel*>> models{
      {"soft", &soft}, {"hard", &hard}, {"hard_shared_kv", &shared}};
  const auto peer = PeerProcess::start(arguments.python, "denoise_step.py");
  std::vector<std::string> forms;
  if (peer != nullptr) {
    peer->ask({{"threads", arguments.threads}});
    forms = compare(soft, *peer, out);
  }
  std::vector<TimedContender> contenders;
  for (const std::string& pass : kPasses) {
    for (const auto& [name, model] : models) {
      contenders.push_back({name + " " + pass, [model, pass] { return model->time_us(pass); }});
    }
    for (const std::string& form : forms) {
      const nlohmann::json question{{"form", form}, {"pass", pass}, {"calls", kCallsPerTurn}};
      contenders.push_back({fmt::format("python_{} {}", form, pass),
                            [&peer, question] { return peer->ask(question).get<double>(); }});
    }
  }
  const auto timings = take_turns(contenders, arguments.rounds, kWarmUpTurns);
  out.note("batch", soft.recipe().train.batch);
  for (const std::string& pass : kPasses) {
    report_times(timings, pass, soft.recipe().train.batch, out);
  }
  double soft_work = 0.0;
  for (const auto& [name, model] : models) report_work(name, *model, soft_work, out);
}

int run(int argc, char** argv) {
  Program program(
      "denoise",
      "Training steps (forward, backward, clipping, optimizer; images from memory, noise "
      "included) and evaluations (forward without gradients) of the recipes cifar10, cifar10_hard "
      "and cifar10_hard_shared_kv of configs/denoise, beside the first one's model in Python "
      "PyTorch eager, from equal weights, on equal images and threads. Experts of the hard models "
      "get equally many tokens: by biases of their routers, which do not learn here.",
      15);
  Arguments arguments;
  program.add("overrides", arguments.overrides, "key=value, of all three recipes");
  program.add("--python", arguments.python, "an interpreter that has PyTorch 2.11");
  program.add("--threads", arguments.threads, "of each side");
  return program.run(argc, argv, [&](Report& out) {
    arguments.rounds = program.rounds();
    measure(arguments, out);
  });
}

const Benchmark kBenchmark("denoise", run);

}  // namespace
}  // namespace shoal::bench::denoise_bench
