#include "launch/predict/predict.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "launch/data/recipe_source.h"
#include "launch/evaluate/predictions.h"
#include "launch/job/failure.h"
#include "launch/pages/picture.h"
#include "launch/predict/prompt.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/json_text.h"
#include "runtime/data/images/image_file.h"
#include "runtime/data/images/image_list.h"
#include "runtime/data/images/resized_crop.h"
#include "runtime/files/data_file.h"
#include "runtime/files/new_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// An image file, a line of text, or what cannot be read.
struct PredictInput {
  std::string file;
  std::string line = {};  ///< number of the line; "": the whole file
  std::string text = {};  ///< of the line; without one: why the file or folder cannot be read

  std::string place() const { return line.empty() ? file : file + ":" + line; }
};

/// Adds the inputs that a word of the command line, or a line of standard input, names.
void add_inputs_of(const std::string& word, bool are_images, std::vector<PredictInput>& inputs) {
  std::error_code unknown;
  if (are_images && word != "-") {
    if (!fs::is_directory(word, unknown)) return inputs.push_back({word});
    try {
      for (const ImageEntry& image : images_of_folder(word, {})) {
        inputs.push_back({(fs::path(word) / image.path).string()});
      }
    } catch (const DataError& error) {
      inputs.push_back({word, "", error.what()});
    }
    return;
  }
  const std::shared_ptr<std::istream> stream = open_input(word);
  std::string line;
  for (int64_t number = 1; std::getline(*stream, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (are_images) {
      add_inputs_of(line, are_images, inputs);
    } else {
      inputs.push_back({word, std::to_string(number), line});
    }
  }
  if (has_read_error(*stream)) inputs.push_back({word, "", "cannot be read"});
}

/// Finds the inputs on rank 0 for all ranks. Collective.
std::vector<PredictInput> find_inputs(const std::vector<std::string>& words, bool are_images,
                                      Communicator& world) {
  const std::string encoded = on_rank_zero(world, [&] {
    const char* hint = are_images
                           ? "name image files, folders of them, or - for paths on standard input"
                           : "name files of text, or - for standard input; each line is a sample";
    std::vector<PredictInput> inputs;
    for (const std::string& word : words) add_inputs_of(word, are_images, inputs);
    if (inputs.empty()) throw Error(ExitCode::kUsage, "predict: no inputs are given", hint);
    Json list = Json::array();
    for (const auto& [file, line, text] : inputs) list.push_back({file, line, text});
    const auto bytes = Json::to_msgpack(list);  // names of files need not be UTF-8
    return std::string(bytes.begin(), bytes.end());
  });
  std::vector<PredictInput> inputs;
  for (const Json& input : Json::from_msgpack(encoded)) {
    inputs.push_back({input[0], input[1], input[2]});
  }
  return inputs;
}

/// The inputs as samples without labels.
class InputSamples final : public SampleSet {
 public:
  InputSamples(std::vector<PredictInput> inputs, const DataSource& source)
      : inputs_(std::move(inputs)),
        source_(source),
        shape_(source.shape()),
        images_(source.image_transform()) {}

  int64_t size() const override { return std::ssize(inputs_); }
  const PredictInput& at(int64_t index) const { return inputs_[static_cast<size_t>(index)]; }
  /// int64 [b]: 1 where this process could not read the input.
  torch::Tensor failed(const torch::Tensor& place_b) const {
    torch::Tensor failed_b = place_b.to(torch::kCPU, torch::kInt64, false, /*copy=*/true);
    const std::lock_guard lock(mutex_);
    for (int64_t& place : std::span(failed_b.mutable_data_ptr<int64_t>(), failed_b.numel())) {
      place = failed_.contains(place) ? 1 : 0;
    }
    return failed_b;
  }
  /// Prints why an input cannot be read, and returns a blank sample for it.
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    try {
      const PredictInput& input = at(index);
      if (input.line.empty() && !input.text.empty()) throw DataError(input.text);
      return images_ ? read_image(input.file) : read_line(input);
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex_);
      failed_.insert(index);
      const std::string what = error.what(), place = at(index).place();
      const bool names_it = what.starts_with(at(index).file);
      std::cerr << fmt::format("left out: {}{}\n", names_it ? "" : place + ": ", what);
    }
    Sample blank{.shape = shape_.image.value_or(ImageShape{})};
    if (images_) blank.pixel_CHW.resize(static_cast<size_t>(blank.shape.bytes()));
    blank.token_S.resize(shape_.has_lengths ? 1 : static_cast<size_t>(shape_.sequence));
    return blank;
  }

 private:
  Sample read_image(const std::string& path) const {
    const MappedFile file(path, "");
    DecodedImage image = decode_image(file.bytes(), path, images_->decode_side);
    if (!images_->valid_crop && image.shape != images_->shape) {
      const int64_t side = images_->shape.height;
      const ResizedCrop</*kIsRandom=*/false> crop({.resize = side}, {side});
      image.pixel_CHW =
          cropped(image.pixel_CHW, image.shape, crop.plan(image.shape, ScalarDraws({}), 0), side);
      image.shape = images_->shape;
    }
    return {.shape = image.shape, .pixel_CHW = std::move(image.pixel_CHW)};
  }

  Sample read_line(const PredictInput& input) const {
    const std::optional<Sample> sample = source_.sample_of_line(input.text);
    if (sample) return *sample;
    throw ConfigError("data.source: predict reads images or lines of text, and " + shape_.source +
                      " makes no samples of either");
  }

  std::vector<PredictInput> inputs_;
  const DataSource& source_;
  DataShape shape_;
  std::optional<ImageTransform> images_;
  mutable std::mutex mutex_;  ///< guards failed_
  mutable std::set<int64_t> failed_;
};

/// The result for input `index`; `row`: probabilities of the classes, or a restored image.
Json result_of(const PredictArguments& arguments, const PredictInput& input, int64_t index,
               const torch::Tensor& row, const std::vector<std::string>& names) {
  Json json{{"file", input.file}};
  if (!input.line.empty()) json["line"] = std::stoll(input.line);
  if (arguments.images.empty()) {
    json["top"] = top_classes(row, arguments.top_k, names);
    return json;
  }
  json["image"] =
      fmt::format("{}/{:06}-{}.png", arguments.images, index, fs::path(input.file).stem().string());
  PosixFileSystem files;
  replace_file(files, json["image"], png_bytes(picture_of(row)));
  return json;
}

std::string text_of_result(const Json& result, const PredictInput& input) {
  std::string text = input.place();
  if (result.contains("image")) return text + "  " + result["image"].get<std::string>();
  int place = 0;
  for (const Json& entry : result["top"]) {
    text += fmt::format("  {}. {} {:.1f}%", ++place,
                        entry.value("name", "class " + entry["class"].dump()),
                        100 * entry["probability"].get<double>());
  }
  return text;
}

/// Predicts all inputs; returns the number of those that could not be read. Collective.
int64_t print_results(const PredictArguments& arguments, EvaluationParts parts, int64_t step,
                      std::ostream& out) {
  Communicator& world = *parts.grid.world;
  const auto& samples = dynamic_cast<const InputSamples&>(*parts.data.samples);
  const std::vector<std::string> names = parts.data.source->class_names();
  int64_t first = 0, num_failed = 0;
  parts.each_batch = [&](const auto& place_b, const Batch& batch, const EvalOutput& output) {
    torch::Tensor row_b = output.probability_bN;
    if (!arguments.images.empty()) row_b = parts.task.restored(batch);
    if (!row_b.defined()) {
      throw ConfigError("task.name: --save-images needs a task that restores images, and " +
                        parts.recipe.task.name() + " does not; leave it out");
    }
    const int64_t count = batch.context.samples_in_micro;
    const torch::Tensor row_B = gather_rows(row_b, place_b, first, count, world);
    const torch::Tensor failed_B =
        gather_rows(samples.failed(place_b), place_b, first, count, world);
    num_failed += failed_B.sum().item<int64_t>();
    for (int64_t i = 0; i < count && world.rank() == 0; ++i) {
      if (failed_B[i].item<int64_t>() == 1) continue;
      const PredictInput& input = samples.at(first + i);
      const Json result = result_of(arguments, input, first + i, row_B[i], names);
      out << (arguments.json ? json_text(result) : text_of_result(result, input)) << "\n";
    }
    out << std::flush;
    first += count;
  };
  evaluate(parts, step);
  return num_failed;
}

ExitCode predict_on_ranks(const PredictArguments& arguments, const LaunchInfo& launch,
                          const Environment& environment, Communicator& guard, std::ostream& out) {
  const auto is_override = [](const std::string& word) {
    std::error_code unknown;
    return word.starts_with('~') || (word.find('=') < word.find('/') && !fs::exists(word, unknown));
  };
  CheckpointChoice choice = arguments.checkpoint;
  std::vector<std::string> names;
  for (const std::string& word : arguments.words) {
    (is_override(word) ? choice.overrides : names).push_back(word);
  }
  OpenedCheckpoint opened = open_checkpoint(choice, launch, environment, guard);
  Communicator& world = *opened.grid.world;
  const auto source = make_source(opened.recipe, environment);
  const std::optional<ImageTransform> images = source->image_transform();
  if (images && images->shape.channels != 3) {
    throw Error(ExitCode::kUsage, "predict reads images with 3 channels", "use eval --predictions");
  }
  const BuiltModel model =
      build_model(opened.recipe, source->shape(), {&opened.grid, opened.grid.device});
  if (arguments.images.empty()) require_classifier(*model.task, opened.recipe, "predict");
  std::vector<PredictInput> inputs = find_inputs(names, images.has_value(), world);
  on_rank_zero(world, [&] {
    if (!arguments.images.empty()) require_free_folder("--save-images", arguments.images);
    std::error_code failed;  // the first image tells
    fs::create_directory(arguments.images, failed);
    return std::string();
  });
  if (world.rank() == 0 && images && !images->valid_crop) {
    std::cerr << fmt::format(
        "note: images that are not {0} x {0} are resized, the shorter side to {0}, and "
        "center-cropped\n",
        images->shape.height);
  }
  load_model(opened, model);
  const OpenSplit data{source, std::make_unique<InputSamples>(std::move(inputs), *source),
                       choose_workers(launch)};
  const int64_t num_failed = print_results(
      arguments, {*model.task, opened.recipe, data, opened.grid}, opened.manifest.step, out);
  if (num_failed == 0) return ExitCode::kOk;
  if (world.rank() == 0) {
    std::cerr << fmt::format("error[E13] {} of {} could not be read and were skipped\n", num_failed,
                             counted(data.samples->size(), "input"));
  }
  return ExitCode::kData;
}

}  // namespace

ExitCode predict(const PredictArguments& arguments, const Environment& environment,
                 std::ostream& out) {
  const LaunchInfo launch = read_launch_info(environment);
  const std::unique_ptr<Communicator> world = make_world(launch);
  return run_on_ranks(
      *world, [&] { return predict_on_ranks(arguments, launch, environment, *world, out); });
}

}  // namespace shoal
