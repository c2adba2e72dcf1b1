#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"

// N classes
namespace shoal {

/// Throws ConfigError, `task.name: what …`, unless the recipe's task predicts classes.
void require_classifier(const Task& task, const Recipe& recipe, const std::string& what);

/// Returns the `k` most probable classes of a sample as a list of {"class", "name", "probability"},
/// of equal ones the lower class first. `probability_N`: on the host. `names`: by class; without
/// names there is no "name".
nlohmann::ordered_json top_classes(const torch::Tensor& probability_N, int64_t k,
                                   const std::vector<std::string>& names);

/// What a classifier predicts for the samples of an evaluation.
struct Predictions {
  struct Guess {
    size_t label = 0, predicted = 0;
    double probability = 0.0;  ///< of the predicted class
  };
  std::vector<Guess> guesses;  ///< of the samples in order
  /// A line of JSON for each sample: "sample" (its place in data.valid), "file" (if it has one),
  /// "label", "label_name" (if known), "top" (five classes), "probability" (of the label).
  std::string lines;
};

/// Returns EvaluationParts::each_batch that fills `result` on rank 0. Both arguments must outlive
/// the evaluation.
EvaluationParts::EachBatch collect_predictions(const EvaluationParts& parts, Predictions& result);

/// Counts which classes are taken for which: "classes" with recall, precision and F1 as
/// scikit-learn defines them, 0 for 0 / 0; "worst", the 10 most frequent pairs of a label and
/// another predicted class; "mistakes", the 10 samples whose wrong class is the most probable, with
/// their files; "matrix", the number of samples by [label][predicted class].
nlohmann::ordered_json count_confusions(const std::vector<Predictions::Guess>& guesses,
                                        const OpenSplit& data);

}  // namespace shoal
