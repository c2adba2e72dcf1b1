#include "tests/support/train_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "launch/data/recipe_source.h"
#include "launch/evaluate/evaluation.h"
#include "launch/recipe/recipe.h"
#include "sparse/sparse_model.h"
#include "tests/support/model_fill.h"
#include "tests/support/model_on.h"

namespace shoal::testing {
namespace {

void put(NamedTensors& tensors, const Parameter& parameter, const torch::Tensor& value) {
  if (!parameter.is_stacked()) {
    tensors[parameter.name] = value.detach().clone();
    return;
  }
  for (size_t row = 0; row < parameter.unit_ids.size(); ++row) {
    tensors[name_of_unit(parameter.name, parameter.unit_ids[row])] =
        value.detach()[static_cast<int64_t>(row)].clone();
  }
}

// name, newline, sizes, newline, float64 bytes.
std::string pack(const std::string& name, const torch::Tensor& value) {
  const torch::Tensor bytes = value.to(torch::kCPU, torch::kFloat64).contiguous();
  std::string text = fmt::format("{}\n{} {}\n", name, bytes.dim(), fmt::join(bytes.sizes(), " "));
  text.append(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.nbytes()));
  return text;
}

std::string take_line(const std::string& text, size_t& at) {
  const size_t end = text.find('\n', at);
  const std::string line = text.substr(at, end - at);
  at = end + 1;
  return line;
}

void unpack(const std::string& text, NamedTensors& tensors) {
  size_t at = 0;
  while (at < text.size()) {
    const std::string name = take_line(text, at);
    std::istringstream header(take_line(text, at));
    int64_t dims = 0;
    header >> dims;
    std::vector<int64_t> sizes(static_cast<size_t>(dims));
    for (int64_t& size : sizes) header >> size;
    torch::Tensor value = torch::empty(sizes, torch::kFloat64);
    std::memcpy(value.data_ptr(), text.data() + at, static_cast<size_t>(value.nbytes()));
    at += static_cast<size_t>(value.nbytes());
    const auto [place, is_new] = tensors.try_emplace(name, value);
    TORCH_CHECK(is_new || torch::equal(place->second, value), "ranks disagree on ", name);
  }
}

// Whole on rank 0, and where `everywhere` on the others, which have nothing else. Refuses replicas
// that differ in a bit.
NamedTensors merge(const NamedTensors& own, Communicator& world, bool everywhere = false) {
  std::string packed;
  for (const auto& [name, value] : own) packed += pack(name, value);
  NamedTensors all;
  for (const std::string& text : gather_text(world, packed)) {
    if (world.rank() == 0 || everywhere) unpack(text, all);
  }
  return all;
}

std::vector<Parameter> trained_parameters(const Session& session) {
  std::vector<Parameter> trained;
  for (const Parameter& parameter : session.parameters()) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

// The matrices of these parameters, made of their pieces.
NamedTensors join_pieces(const NamedTensors& pieces, const std::vector<Parameter>& parameters) {
  std::map<std::string, std::vector<torch::Tensor>> parts;  // pieces sort by their place
  for (const auto& [name, value] : pieces) parts[name.substr(0, name.find('#'))].push_back(value);
  NamedTensors joined;
  for (const Parameter& parameter : parameters) {
    NamedTensors wholes;
    put(wholes, parameter, parameter.tensor);
    for (const auto& [name, whole] : wholes) {
      joined[name] = torch::cat(parts.at(name)).view(whole.sizes());
    }
  }
  return joined;
}

// The summed gradients; with shards those of all ranks' pieces.
NamedTensors gradients_of(Session& session) {
  Communicator& world = *session.grid().world;
  NamedTensors own;
  if (session.shards() == nullptr) {
    for (const Parameter& parameter : trained_parameters(session)) {
      put(own, parameter, parameter.tensor.grad());
    }
    return merge(own, world);
  }
  for (const Parameter& piece : session.shards()->pieces()) {
    own[fmt::format("{}#{:012}", piece.name, piece.piece->begin)] = piece.tensor.grad().clone();
  }
  const NamedTensors pieces = merge(own, world, /*everywhere=*/true);
  return merge(join_pieces(pieces, trained_parameters(session)), world);
}

// Logits of the whole validation split in its order.
torch::Tensor outputs(Session& session, const Recipe& recipe, const OpenSplit& data) {
  const torch::NoGradGuard no_grad;
  Communicator& world = *session.grid().world;
  EvalLoader loader(*data.samples, loader_settings(recipe, data, session.grid()));
  NamedTensors rows;
  while (std::optional<Batch> batch = loader.next()) {
    const torch::Tensor logits_bN = session.task().outputs(*batch);
    for (int64_t row = 0; row < logits_bN.size(0); ++row) {
      const int64_t sample = batch->context.sample_b[row].item<int64_t>();
      rows[fmt::format("{:08}", sample)] = logits_bN[row].clone();
    }
  }
  std::vector<torch::Tensor> in_order;
  for (const auto& [name, row] : merge(rows, world)) in_order.push_back(row);
  return in_order.empty() ? torch::Tensor() : torch::stack(in_order);
}

// Ranks whose layers saw no token of their own; 0 for a model without such layers.
int64_t idle_ranks(const StepOutcome& outcome, Communicator& world) {
  const bool is_idle = !outcome.moe.empty() && report(outcome.moe.front()).tokens == 0;
  const torch::Tensor idle = torch::full({1}, is_idle ? 1.0 : 0.0, torch::kFloat64);
  all_reduce(world, idle);
  return std::llround(idle.item<double>());
}

double largest(const torch::Tensor& value) {
  return value.numel() == 0 ? 0.0 : value.abs().max().item<double>();
}

struct Allowed {
  std::string what;
  double absolute;  ///< of every tensor; 0: relative to each tensor's largest magnitude
  double relative;
  std::vector<std::string> skip;
};

// Zero where `skip` leaves the weight out.
torch::Tensor compared(const std::string& name, const torch::Tensor& value,
                       const std::vector<std::string>& skip) {
  torch::Tensor result = value;
  for (const std::string& entry : skip) {
    const size_t bracket = entry.find('[');
    if (name.find(entry.substr(0, bracket)) == std::string::npos) continue;
    int64_t part = 1, parts = 1;
    if (bracket != std::string::npos) {
      char mark = 0;
      std::istringstream(entry.substr(bracket)) >> mark >> part >> mark >> parts;
    }
    const int64_t rows = value.size(0) / parts;
    result = result.clone();
    result.narrow(0, (part - 1) * rows, rows).zero_();
  }
  return result;
}

void compare(const NamedTensors& expected, const NamedTensors& actual, const Allowed& rule,
             std::vector<std::string>& found) {
  for (const auto& [name, value] : expected) {
    const auto other = actual.find(name);
    if (other == actual.end()) {
      found.push_back(fmt::format("{} {} is missing", rule.what, name));
      continue;
    }
    const torch::Tensor left = compared(name, value, rule.skip);
    const torch::Tensor right = compared(name, other->second, rule.skip);
    const double allowed = rule.absolute > 0 ? rule.absolute : rule.relative * largest(left);
    const double apart = largest(left - right);
    if (!(apart <= allowed)) {
      found.push_back(
          fmt::format("{} {} differs by {:.2e}, allowed {:.2e}", rule.what, name, apart, allowed));
    }
  }
  if (actual.size() != expected.size()) found.push_back(fmt::format("{}: other names", rule.what));
}

void compare_number(const std::string& what, double expected, double actual, double tolerance,
                    std::vector<std::string>& found) {
  const double apart = std::abs(expected - actual);
  if (!(apart <= tolerance * std::abs(expected))) {
    found.push_back(fmt::format("{} differs by {:.2e} of {:.2e}", what, apart, expected));
  }
}

}  // namespace

TrainingTrace train_and_trace(const std::string& recipe_text,
                              const std::vector<std::string>& overrides, int64_t steps,
                              std::unique_ptr<Communicator> world,
                              std::unique_ptr<Communicator> gpu_world) {
  const Recipe recipe =
      config::load_options_text<Recipe>(recipe_text, "test", {"", overrides, nullptr}).options;
  RankGrid grid = make_rank_grid(std::move(world), *recipe.parallel.expert_ranks,
                                 recipe.parallel.ranks_per_node.value_or(0), std::move(gpu_world));
  const std::shared_ptr<const DataSource> source = make_source(recipe);
  const OpenSplit train_data = open_split(source, Split::kTrain);
  const OpenSplit valid_data = open_split(source, Split::kValid);
  Session session(recipe, model_on(recipe, train_data, grid), train_data, grid);
  TrainingTrace trace;
  fill_parameters(session.task());
  // The weights are those of a dense model so far.
  if (const auto& sparse = session.model().sparse) sparse->masks().tensors_loaded();
  for (int64_t step = 0; step < steps; ++step) {
    const StepOutcome outcome = session.step({});
    const StepReport report = reduce(outcome, *grid.world);
    if (step == 0) trace.ranks_without_tokens = idle_ranks(outcome, *grid.world);
    trace.losses.push_back(report.loss);
    trace.grad_norms.push_back(outcome.grad_norm);
    for (const MoeReport& layer : report.moe) {
      trace.dropped = std::max(trace.dropped, layer.dropped);
      for (const auto& [name, value] : layer.losses) {
        trace.balance_losses[fmt::format("step {} {} {}", step, layer.layer, name)] =
            torch::tensor(value, torch::kFloat64);
      }
      if (step == 0) trace.units_without_tokens += layer.dead_units;
    }
    trace.gradients.push_back(gradients_of(session));
  }
  NamedTensors weights;
  for (const auto* list : {&session.model().parameters, &session.model().buffers}) {
    for (const Parameter& parameter : *list) put(weights, parameter, parameter.tensor);
  }
  trace.weights = merge(weights, *grid.world);
  trace.outputs = outputs(session, recipe, valid_data);
  trace.eval_loss = evaluate({session.task(), recipe, valid_data, grid}, steps).value("loss");
  // Of equal bits on all ranks.
  merge({{"losses", torch::tensor(trace.losses, torch::kFloat64)},
         {"gradient norms", torch::tensor(trace.grad_norms, torch::kFloat64)},
         {"evaluation loss", torch::tensor(trace.eval_loss, torch::kFloat64)}},
        *grid.world);
  merge(trace.balance_losses, *grid.world);
  return trace;
}

std::vector<std::string> differences(const TrainingTrace& expected, const TrainingTrace& actual,
                                     double tolerance,
                                     const std::vector<std::string>& skip_weights) {
  std::vector<std::string> found;
  for (size_t step = 0; step < expected.gradients.size(); ++step) {
    double largest_gradient = 0.0;
    for (const auto& [name, value] : expected.gradients[step]) {
      largest_gradient = std::max(largest_gradient, largest(value));
    }
    compare(expected.gradients[step], actual.gradients[step],
            {fmt::format("step {} gradient", step), tolerance * largest_gradient, tolerance, {}},
            found);
  }
  compare(expected.weights, actual.weights, {"weight", 0.0, tolerance, skip_weights}, found);
  compare(expected.balance_losses, actual.balance_losses, {"logged loss", 0.0, tolerance, {}},
          found);
  compare({{"all", expected.outputs}}, {{"all", actual.outputs}}, {"output", 0.0, tolerance, {}},
          found);
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    compare_number(fmt::format("loss of step {}", step), expected.losses[step], actual.losses[step],
                   tolerance, found);
    compare_number(fmt::format("gradient norm of step {}", step), expected.grad_norms[step],
                   actual.grad_norms[step], tolerance, found);
  }
  compare_number("evaluation loss", expected.eval_loss, actual.eval_loss, tolerance, found);
  return found;
}

}  // namespace shoal::testing
