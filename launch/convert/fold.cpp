#include "launch/convert/fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "launch/convert/folded_weights.h"
#include "launch/convert/import.h"
#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/job/print_result.h"
#include "launch/machine/break_even_file.h"
#include "launch/model/model_weights.h"
#include "launch/weights/load_weights.h"
#include "runtime/base/exact_share.h"
#include "runtime/base/text.h"
#include "runtime/files/new_folder.h"
#include "sparse/sparse_model.h"

// m outputs  n inputs
namespace shoal {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

/// The masks of a sparse layer's matrices.
struct FoldedMasks {
  SparseLayer layer;
  std::vector<torch::Tensor> mask_mn = {};

  bool fit(const Pattern& pattern) const {
    return std::ranges::all_of(mask_mn, [&](const auto& mask) { return pattern.fits(mask); });
  }
};

/// Weights and buffers, of several versions their averages unless `raw_weights`.
void read_folded_weights(const FoldedWeights& folded, const CheckpointReader& reader,
                         bool raw_weights, ModelWeights& out) {
  const Manifest& manifest = reader.manifest();
  std::vector<std::string> names;
  for (const StateEntry& item : folded.listed().tensors) names.push_back(item.entry.name);
  require_fit(folded.listed(), names, manifest, reader.path(), /*ignore_extra=*/true);
  for (const std::string& name : names) {
    const ManifestTensor& source =
        *manifest.find_tensor(raw_weights ? name : averaged_name(manifest, name));
    out.list.push_back({name, folded.read(source, name), 0, {}, {}});
  }
}

/// Reads the masks of all sparse layers, and adds them to `out` as they are saved.
std::vector<FoldedMasks> read_masks(const FoldedWeights& folded, const CheckpointReader& reader,
                                    const std::vector<SparseLayer>& layers, ModelWeights& out) {
  std::vector<FoldedMasks> masks;
  for (const SparseLayer& layer : layers) {
    masks.push_back({layer});
    for (int64_t i = 0; i < layer.num_matrices(); ++i) {
      const std::string weight = layer.name_of(i), name = SparseLayer::kMaskPrefix + weight;
      const ManifestTensor* tensor = reader.manifest().find_tensor(name);
      if (tensor == nullptr) {
        throw Error(ExitCode::kMismatch,
                    fmt::format("'{}': {} is sparse by its recipe, and has no mask", reader.path(),
                                weight));
      }
      const torch::Tensor mask = folded.read(*tensor, weight);
      masks.back().mask_mn.push_back(layer.is_transposed ? mask.t() : mask);
      out.list.push_back({name, mask, 0, {}, {}});
    }
  }
  return masks;
}

/// The shortest decimal d with floor(d · cells) = on.
double density_of(int64_t on, int64_t cells) {
  const double share = static_cast<double>(on) / static_cast<double>(cells);
  double scale = 1.0;
  for (int digits = 1; digits <= 17; ++digits) {
    scale *= 10.0;
    const double density = std::ceil(share * scale) / scale;
    if (density <= 1.0 && floor_share(cells, decimal_of(density)) == on) return density;
  }
  TORCH_CHECK(false, "no decimal is the share of ", on, " in ", cells);
}

/// The exact number of weights in each mask of a layer.
LayerDensity exact_density(const FoldedMasks& masks) {
  std::string name = masks.layer.parameter.name;
  name.resize(name.size() - kWeightEnd.size());
  std::optional<int64_t> on;
  for (const torch::Tensor& mask : masks.mask_mn) {
    const auto own = mask.sum().item<int64_t>();
    if (on && *on != own) {
      throw Error(ExitCode::kMismatch,
                  fmt::format("{}: its experts have masks of {} and of {} weights, which no "
                              "density describes",
                              name, *on, own));
    }
    on = own;
  }
  return {name, density_of(on.value_or(0), masks.mask_mn.front().numel())};
}

/// Sparsity options without permutations that suit the folded masks: the checkpoint's own if the
/// masks still fit its pattern, else those of static unstructured masks.
SparsityOptions folded_sparsity(const Recipe& recipe, const BuiltModel& model,
                                const std::vector<FoldedMasks>& masks) {
  SparsityOptions options = *recipe.sparsity;
  options.permutation = Choice<PermutationMethod>("none");
  const auto fits = [](const FoldedMasks& one) { return one.fit(*one.layer.pattern); };
  if (std::ranges::all_of(masks, fits)) return options;
  for (const FoldedMasks& one : masks) {
    if (one.layer.pattern->low_rank() == 0) continue;
    throw Error(ExitCode::kMismatch,
                one.layer.parameter.name +
                    " has a product of low rank beside its mask, which no "
                    "pattern has that its permuted mask would fit",
                "use the checkpoint as it is");
  }
  options.pattern = Choice<Pattern>("unstructured");
  options.rule = Choice<GrowRule>("static");
  options.distribution = DensityDistribution::kUniform;
  options.layers.clear();
  options.densities.clear();
  for (const FoldedMasks& one : masks) {
    options.densities.push_back(exact_density(one));
    options.layers.push_back(options.densities.back().match);
  }
  // Such masks are what a reader of the checkpoint will expect.
  for (const SparseLayer& layer :
       plan_sparsity(options, sparse_scope(recipe, model)).of(model.parameters)) {
    const auto same = std::ranges::find(masks, layer.parameter.name, [](const FoldedMasks& one) {
      return one.layer.parameter.name;
    });
    TORCH_CHECK(same != masks.end() && same->fit(*layer.pattern), layer.parameter.name,
                ": the folded masks do not fit their recipe");
  }
  return options;
}

void require_permuted(const Recipe& recipe, const BuiltModel& model, const std::string& path) {
  if (!sparse_forms(model).permutations.empty()) return;
  throw Error(
      ExitCode::kUsage,
      fmt::format("'{}' has no permutations ({}), so that there is nothing to fold", path,
                  recipe.sparsity ? "sparsity.permutation is none" : "its recipe has no sparsity"),
      "use the checkpoint as it is");
}

}  // namespace

ExitCode fold(const FoldArguments& arguments, std::ostream& out) {
  const CheckpointReader reader = open_reader(arguments.checkpoint);
  const Manifest& manifest = reader.manifest();
  Recipe recipe = stored_recipe(manifest, reader.path());
  const BuiltModel model = build_model(recipe, make_source(recipe)->shape());
  require_permuted(recipe, model, reader.path());
  const FoldedWeights folded(recipe, model, reader);
  NewFolder folder(arguments.out);
  ModelRun run;
  run.id = manifest.run_id + "-folded";
  run.point = {manifest.step, manifest.samples, manifest.score};
  run.origin = {{"folded_from", manifest.run_id}};
  const auto break_evens = manifest.written_by.find(kWrittenBreakEvens);
  if (break_evens != manifest.written_by.end()) run.origin.insert(*break_evens);
  read_folded_weights(folded, reader, arguments.checkpoint.raw_weights, run.weights);
  const std::vector<FoldedMasks> masks =
      read_masks(folded, reader, model.sparse->layers(), run.weights);
  if (const ManifestValue* tokenizer = manifest.find_value(kDataTokenizer)) {
    run.tokenizer = std::get<std::string>(tokenizer->value);
  }
  const std::string pattern(recipe.sparsity->pattern.name());
  recipe.sparsity = folded_sparsity(recipe, model, masks);
  const std::string new_pattern(recipe.sparsity->pattern.name());
  write_model_run(recipe, run, folder.working_path());
  folder.commit();
  std::string text = fmt::format(
      "{}: step {} of {}, {} folded into the weights\n", arguments.out, manifest.step,
      reader.path(), counted(static_cast<int64_t>(folded.num_permuted()), "permutation"));
  if (new_pattern != pattern) {
    text += fmt::format(
        "In their order masks are not {} any more: its recipe has sparsity.pattern {}, rule "
        "static\n",
        pattern, new_pattern);
  }
  print_result(out, arguments.json,
               {{"path", arguments.out},
                {"checkpoint", reader.path()},
                {"step", manifest.step},
                {"permutations", folded.num_permuted()},
                {"pattern", new_pattern}},
               text);
  return ExitCode::kOk;
}

}  // namespace shoal
