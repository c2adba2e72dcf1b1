#include "launch/inspect/sparsity_history.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "launch/runs/run_data.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/state_list.h"
#include "runtime/base/error.h"
#include "runtime/files/data_file.h"
#include "sparse/permutations/doubly_stochastic.h"
#include "sparse/permutations/permutation_method.h"
#include "sparse/sparse_model.h"

// m outputs  n inputs  G groups  s side of a group, or values of a row  h rows of a pixel
namespace shoal {
namespace {

/// The mask of one matrix, bool [m, n]; all on until its cells are chosen. Throws Error (exit 12).
torch::Tensor read_mask(const CheckpointReader& reader, const SparseLayer& layer,
                        const std::string& weight) {
  const int64_t m = layer.pattern->rows(), n = layer.pattern->columns();
  const std::vector<int64_t> stored =
      layer.is_transposed ? std::vector<int64_t>{n, m} : std::vector<int64_t>{m, n};
  if (reader.manifest().find_tensor(SoftCells::kScorePrefix + weight) != nullptr) {
    return torch::ones({m, n}, torch::kBool);
  }
  const ManifestTensor* tensor = reader.manifest().find_tensor(SparseLayer::kMaskPrefix + weight);
  if (tensor == nullptr || tensor->dtype != Dtype::kBool || tensor->shape != stored) {
    throw Error(ExitCode::kMismatch,
                fmt::format("'{}': the mask of {} is {}, expected {}", reader.path(), weight,
                            tensor ? describe_tensor(tensor->dtype, tensor->shape) : "missing",
                            describe_tensor(Dtype::kBool, stored)),
                "name one checkpoint instead of the run, if its recipe has changed");
  }
  const torch::Tensor mask = read_tensor(reader, *tensor);
  return layer.is_transposed ? mask.t().contiguous() : mask;
}

/// Reads a hard permutation p [n].
void read_hard(const torch::Tensor& index_n, bool with_picture, SparseMoment& moment) {
  const int64_t n = index_n.size(0);
  const auto moved = (index_n != at::arange(n)).sum().item<int64_t>();
  moment.permutation = {false, std::sqrt(static_cast<double>(moved) / static_cast<double>(n)), {}};
  if (!with_picture) return;
  moment.permutation_picture = shrink(at::ones({n, 1}), kMostDrawnSide, index_n);
}

/// Reads a soft permutation's matrices M [G, s, s].
void read_soft(const torch::Tensor& m_Gss, bool with_picture, SparseMoment& moment) {
  const double square = m_Gss.square().sum().item<double>();
  const double trace = m_Gss.diagonal(0, 1, 2).sum().item<double>();
  const int64_t s = m_Gss.size(1), n = m_Gss.size(0) * s;
  const auto size = static_cast<double>(n);
  moment.permutation = {true, std::sqrt(std::max(0.0, square - 2 * trace + size) / (2 * size)),
                        DoublyStochastic().penalty(m_Gss).mean().item<double>()};
  if (!with_picture) return;
  const torch::Tensor first_n = at::arange(0, n, s).repeat_interleave(s);
  moment.permutation_picture = shrink(m_Gss.reshape({n, s}), kMostDrawnSide, first_n);
}

/// Options for reading a run's matrices.
struct Reading {
  bool with_pictures;
  bool soft_ones_are_matrices;  ///< whether soft permutations are saved as matrices
};

/// Reads the permutation of `weight`; of a soft one without a stored matrix, only that it is soft.
void read_permutation(const CheckpointReader& reader, const std::string& weight, Reading reading,
                      SparseMoment& moment) {
  const Manifest& manifest = reader.manifest();
  if (const ManifestTensor* index = manifest.find_tensor(Permutation::kIndexPrefix + weight)) {
    const bool is_index = index->dtype == Dtype::kI64 && index->shape.size() == 1;
    const torch::Tensor index_n = is_index ? read_tensor(reader, *index) : torch::Tensor();
    if (!is_index || !std::get<0>(index_n.sort()).equal(at::arange(index_n.size(0)))) {
      throw CheckpointError(
          fmt::format("'{}': {} is not a permutation", reader.path(), index->name));
    }
    return read_hard(index_n, reading.with_pictures, moment);
  }
  const ManifestTensor* soft = manifest.find_tensor(Permutation::kSoftPrefix + weight);
  if (soft == nullptr) return;
  moment.permutation = {true, {}, {}};
  if (reading.soft_ones_are_matrices) {
    read_soft(read_tensor(reader, *soft).to(torch::kFloat64), reading.with_pictures, moment);
  }
}

SparseMatrixHistory read_matrix(const std::deque<CheckpointReader>& readers,
                                const SparseLayer& layer, int64_t index, Reading reading) {
  SparseMatrixHistory history{layer.name_of(index), {}};
  torch::Tensor before_mn;
  for (size_t i = 0; i < readers.size(); ++i) {
    const bool is_drawn = reading.with_pictures && is_checkpoint_drawn(i, readers.size());
    const torch::Tensor mask_mn = read_mask(readers[i], layer, history.name);
    SparseMoment moment;
    moment.step = readers[i].manifest().step;
    moment.mask = mask_numbers(mask_mn, before_mn);
    moment.mask.is_chosen =
        readers[i].manifest().find_tensor(SoftCells::kScorePrefix + history.name) == nullptr;
    if (is_drawn) moment.mask_picture = shrink(mask_mn, kMostDrawnSide);
    read_permutation(readers[i], history.name, {is_drawn, reading.soft_ones_are_matrices}, moment);
    history.moments.push_back(std::move(moment));
    before_mn = mask_mn;
  }
  return history;
}

Recipe sparse_recipe_of(const CheckpointReader& reader) {
  Recipe recipe = stored_recipe(reader.manifest(), reader.path());
  if (recipe.sparsity) return recipe;
  throw Error(ExitCode::kUsage,
              fmt::format("'{}' has no sparse layers: its recipe has no sparsity", reader.path()),
              "name a checkpoint of a recipe with sparsity, as those of configs/padst have");
}

}  // namespace

// A row of pixels at a time: int64 and float64 take eight times the memory of a mask.
ShrunkMatrix shrink(const torch::Tensor& value_ms, int64_t most, const torch::Tensor& first_m) {
  const int64_t m = value_ms.size(0), n = first_m.defined() ? m : value_ms.size(1);
  const int64_t side = (std::max(m, n) + most - 1) / most;
  const torch::Tensor offset_s = at::arange(value_ms.size(1));
  ShrunkMatrix shrunk{0, (n + side - 1) / side, {}};
  for (int64_t row = 0; row < m; row += side, ++shrunk.height) {
    const torch::Tensor value_hs = value_ms.slice(0, row, row + side).to(torch::kFloat64);
    torch::Tensor column_hs = offset_s.expand_as(value_hs);
    if (first_m.defined()) column_hs = column_hs + first_m.slice(0, row, row + side).unsqueeze(1);
    const torch::Tensor sums =
        at::zeros({shrunk.width}, torch::kFloat64)
            .index_add_(0, column_hs.flatten().div(side, "floor"), value_hs.flatten());
    const double* sum = sums.const_data_ptr<double>();
    for (int64_t i = 0; i < shrunk.width; ++i) {  // squares at the edges are cut
      const int64_t entries = value_hs.size(0) * std::min(side, n - i * side);
      shrunk.mean.push_back(sum[i] / static_cast<double>(entries));
    }
  }
  return shrunk;
}

MaskNumbers mask_numbers(const torch::Tensor& mask_mn, const torch::Tensor& before_mn) {
  MaskNumbers numbers;
  numbers.weights = mask_mn.sum().item<int64_t>();
  numbers.density = static_cast<double>(numbers.weights) / static_cast<double>(mask_mn.numel());
  if (before_mn.defined() && numbers.weights > 0) {
    numbers.changed = static_cast<double>((mask_mn & ~before_mn).sum().item<int64_t>()) /
                      static_cast<double>(numbers.weights);
  }
  numbers.empty_rows = (mask_mn.sum(1) == 0).sum().item<int64_t>();
  const auto [sorted_n, order_n] = mask_mn.sum(0).sort();
  const int64_t* fan_out = sorted_n.const_data_ptr<int64_t>();
  const int64_t n = mask_mn.size(1);
  numbers.least_fan_out = fan_out[0];
  numbers.most_fan_out = fan_out[n - 1];
  numbers.median_fan_out = 0.5 * static_cast<double>(fan_out[(n - 1) / 2] + fan_out[n / 2]);
  return numbers;
}

bool is_checkpoint_drawn(size_t i, size_t count) {
  if (count <= kMostDrawnCheckpoints) return true;
  for (size_t k = 0; k < kMostDrawnCheckpoints; ++k) {
    if (i == k * (count - 1) / (kMostDrawnCheckpoints - 1)) return true;
  }
  return false;
}

SparsityHistory read_sparsity_history(const std::vector<std::string>& checkpoints,
                                      bool with_pictures) {
  const torch::NoGradGuard no_grad;
  std::deque<CheckpointReader> readers;
  for (const std::string& path : checkpoints) readers.emplace_back(path);
  const Recipe recipe = sparse_recipe_of(readers.back());
  const BuiltModel model = build_model(recipe, make_source(recipe)->shape());
  SparsityHistory history{std::string(recipe.sparsity->pattern.name()),
                          std::string(recipe.sparsity->permutation.name())};
  for (const CheckpointReader& reader : readers) history.steps.push_back(reader.manifest().step);
  const bool has_matrices =
      Registry<PermutationMethod>::create(recipe.sparsity->permutation, {})->saves_soft_matrix();
  for (const SparseLayer& layer : model.sparse->layers()) {
    SparseLayerHistory read{layer.parameter.name, layer.pattern->rows(), layer.pattern->columns(),
                            layer.density};
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      const bool is_drawn = with_pictures && static_cast<size_t>(i) < kMostDrawnMatrices;
      read.matrices.push_back(read_matrix(readers, layer, i, {is_drawn, has_matrices}));
    }
    history.layers.push_back(std::move(read));
  }
  return history;
}

void add_permutation_curves(const std::string& file, SparsityHistory& history) {
  UnreadLines unread;
  const auto last_step = static_cast<double>(history.steps.back());
  for (LayerRecords& records : read_layers(file, unread, last_step)) {
    const auto layer = std::ranges::find(history.layers, records.layer, &SparseLayerHistory::layer);
    if (layer != history.layers.end()) layer->curves = std::move(records.numbers);
  }
  if (unread.broken == 0) return;
  throw DataError(fmt::format("{}:{}: not a record of a layer", file, unread.first_broken));
}

}  // namespace shoal
