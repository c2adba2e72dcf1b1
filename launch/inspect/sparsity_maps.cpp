#include "launch/inspect/sparsity_maps.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launch/inspect/sparsity_history.h"
#include "launch/inspect/sparsity_page.h"
#include "launch/runs/run_folder.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

Json moment_json(const SparseMoment& moment) {
  const MaskNumbers& mask = moment.mask;
  Json json{
      {"step", moment.step},
      {"chosen", mask.is_chosen},
      {"weights", mask.weights},
      {"density", mask.density},
      {"changed", or_null<Json>(mask.changed)},
      {"empty_rows", mask.empty_rows},
      {"fan_out",
       {{"min", mask.least_fan_out}, {"median", mask.median_fan_out}, {"max", mask.most_fan_out}}},
      {"permutation", nullptr}};
  if (moment.permutation) {
    json["permutation"] = Json{{"soft", moment.permutation->is_soft},
                               {"distance", or_null<Json>(moment.permutation->distance)},
                               {"penalty", or_null<Json>(moment.permutation->penalty)}};
  }
  return json;
}

Json history_json(const SparsityHistory& history) {
  Json layers = Json::array();
  for (const SparseLayerHistory& layer : history.layers) {
    Json matrices = Json::array();
    for (const SparseMatrixHistory& matrix : layer.matrices) {
      Json moments = Json::array();
      for (const SparseMoment& moment : matrix.moments) moments.push_back(moment_json(moment));
      matrices.push_back(Json{{"name", matrix.name}, {"checkpoints", moments}});
    }
    layers.push_back(Json{{"layer", layer.layer},
                          {"rows", layer.rows},
                          {"columns", layer.columns},
                          {"density", layer.density},
                          {"matrices", matrices}});
  }
  return {{"pattern", history.pattern},
          {"permutation", history.permutation},
          {"steps", history.steps},
          {"layers", layers}};
}

/// Table with a row for each matrix in the last checkpoint.
std::string sparsity_text(const SparsityHistory& history) {
  std::vector<std::vector<std::string>> rows{{"sparse layer", "outputs x inputs", "density",
                                              "changed", "empty rows", "fan-out", "permutation",
                                              "distance"}};
  for (const SparseLayerHistory& layer : history.layers) {
    for (const SparseMatrixHistory& matrix : layer.matrices) {
      const std::vector<std::string> numbers =
          number_cells(matrix.moments.back(), history.permutation);
      auto& row = rows.emplace_back(std::vector{matrix.name, shape_text(layer)});
      // Omits the number of weights and the penalty.
      row.insert(row.end(), numbers.begin() + 1, numbers.end() - 1);
    }
  }
  return text_table(rows);
}

/// Folders of one checkpoint or all those of a run; --override skips those that cannot be read.
std::vector<std::string> chosen_checkpoints(const CheckpointChoice& choice) {
  if (choice.best) return {choose_checkpoint(choice)};
  require_path(choice.path);
  std::vector<std::string> paths = list_checkpoint_paths(choice.path);
  if (!choice.override_model || paths.size() == 1) return paths;
  std::erase_if(paths, [](const std::string& path) {
    try {
      CheckpointReader(path).verify_data();
      return false;
    } catch (const StorageError& error) {
      std::cerr << "warning: passing over a checkpoint: " << error.what() << std::endl;
      return true;
    }
  });
  if (paths.empty()) throw StorageError("no checkpoint of '" + choice.path + "' can be read");
  return paths;
}

}  // namespace

ExitCode draw_sparsity(const CheckpointChoice& choice, const std::string& page, bool json,
                       std::ostream& out) {
  const std::vector<std::string> checkpoints = chosen_checkpoints(choice);
  const bool has_page = !page.empty();
  SparsityHistory history = read_sparsity_history(checkpoints, has_page);
  // The last one is RUN/ckpt/step-XXXXXXXX.
  const std::filesystem::path run =
      std::filesystem::canonical(checkpoints.back()).parent_path().parent_path();
  add_permutation_curves((run / "permutations.jsonl").string(), history);
  if (has_page) {
    const Json name_in_utf8 = Json::parse(json_text(Json(run.filename().string())));
    PosixFileSystem files;
    replace_file(
        files, page,
        sparsity_page("Sparse layers of " + name_in_utf8.get<std::string>(), history).html());
  }
  if (json) {
    Json all = history_json(history);
    all["path"] = choice.path;
    all["page"] = has_page ? Json(page) : Json();
    out << json_text(all) << "\n";
    return ExitCode::kOk;
  }
  out << fmt::format("{}, step {}, pattern {}\n{}", checkpoints.back(), history.steps.back(),
                     history.pattern, sparsity_text(history));
  if (has_page) {
    out << fmt::format("page: {}, {}\n", page, counted(std::ssize(checkpoints), "checkpoint"));
  }
  return ExitCode::kOk;
}

}  // namespace shoal
