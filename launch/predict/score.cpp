#include "launch/predict/score.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/job/failure.h"
#include "launch/predict/prompt.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/json_text.h"
#include "runtime/files/file_system.h"

// W windows of a block
namespace shoal {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int64_t>;

/// Windows of lines, each `[index of the line, number of scored tokens, tokens]`: the model reads
/// the tokens but for the last one, and predicts the scored ones, which are the last.
class Windows : public SampleSet {
 public:
  explicit Windows(const std::string& json) : windows_(Json::parse(json)) {}
  const Json& operator[](int64_t index) const { return windows_[static_cast<size_t>(index)]; }
  int64_t size() const override { return std::ssize(windows_); }
  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const Tokens tokens = (*this)[index][2];
    Sample sample;
    sample.token_S.assign(tokens.begin(), tokens.end() - 1);
    sample.token_label_S.assign(tokens.begin() + 1, tokens.end());
    std::fill(sample.token_label_S.begin(),
              sample.token_label_S.end() - (*this)[index][1].get<int64_t>(), kNoLabel);
    return sample;
  }

 private:
  Json windows_;
};

/// Reads lines on rank 0.
class LineReader {
 public:
  LineReader(const std::string& path, const OpenedCheckpoint& opened, const DataSource& source,
             int64_t context)
      : path_(path), opened_(opened), source_(source), context_(context), file_(open_input(path)) {}

  std::vector<Json> answers;  ///< to the lines last read

  /// Returns the windows of the next lines, without any at the end. A wrong line throws, once those
  /// before it were returned.
  std::string next() {
    constexpr size_t kMostLines = 1024;
    answers.clear();
    Json windows = Json::array();
    for (std::string text;
         !failure_ && answers.size() < kMostLines && std::getline(*file_, text);) {
      ++number_;
      try {
        add(Json::parse(text, nullptr, /*allow_exceptions=*/false), windows);
      } catch (const Error& error) {
        const std::string what = fmt::format("{}:{}: {}", path_, number_, error.what());
        failure_ = std::make_exception_ptr(Error(error.code(), what, error.hint()));
      }
    }
    if (has_read_error(*file_)) throw DataError(path_ + ": cannot be read");
    if (failure_ && answers.empty()) std::rethrow_exception(failure_);
    // Neighbours of one length need no padding.
    std::stable_sort(windows.begin(), windows.end(),
                     [](const Json& a, const Json& b) { return a[2].size() < b[2].size(); });
    return windows.dump();
  }

 private:
  void add(Json line, Json& windows) {
    if (!line.contains("continuation")) throw DataError("not an object with a \"continuation\"");
    const Json continuation = line["continuation"];
    const Json before = line.value("context", Json(continuation.is_array() ? Json::array() : ""));
    Tokens tokens, whole;
    if (before.is_string() && continuation.is_string()) {
      const std::string text = before;
      tokenizer().encode(text.substr(0, text.find_last_not_of(" \t\n\v\f\r") + 1), tokens);
      tokenizer().encode(text + continuation.get<std::string>(), whole);
    } else {
      whole = tokens = ids_of(before);
      std::ranges::copy(ids_of(continuation), std::back_inserter(whole));
    }
    const int64_t scored = std::ssize(whole) - std::ssize(tokens);
    if (scored <= 0) throw DataError("the continuation adds no token to the context");
    const bool has_context = !tokens.empty();
    if (!has_context) tokens.push_back(tokenizer().end_of_text());
    if (tokens.front() < 0) {
      throw DataError("no context, and the tokenizer has no end-of-text token to begin with");
    }
    tokens.insert(tokens.end(), whole.end() - scored, whole.end());
    if (has_context && std::ssize(tokens) > context_ + 1 && !std::exchange(is_told_, true)) {
      std::cerr << fmt::format(
          "note: {}:{}: longer than the model's context of {} tokens: the leftmost are left out, "
          "here and in later lines\n",
          path_, number_, context_);
    }
    for (int64_t left = scored; left > 0; left -= context_) {
      const auto end = tokens.end() - std::max<int64_t>(0, left - context_);
      const auto begin = end - std::min<int64_t>(context_ + 1, end - tokens.begin());
      windows.push_back({answers.size(), std::min(left, context_), Tokens(begin, end)});
    }
    line.erase("continuation");
    line.erase("context");
    line.update({{"logprob", 0.0}, {"greedy", true}, {"tokens", scored}});
    answers.push_back(std::move(line));
  }
  const Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = text_tokenizer(opened_, source_);
    return *tokenizer_;
  }
  Tokens ids_of(const Json& json) const {
    const int64_t vocabulary = source_.shape().vocabulary;
    const auto is_id = [vocabulary](const Json& id) {
      return id.is_number_integer() && id >= 0 && id < vocabulary;
    };
    if (json.is_array() && std::ranges::all_of(json, is_id)) return json;
    throw DataError("context and continuation must be two texts, or two lists of token ids below " +
                    std::to_string(vocabulary));
  }

  std::string path_;
  const OpenedCheckpoint& opened_;
  const DataSource& source_;
  int64_t context_;
  std::shared_ptr<std::istream> file_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::exception_ptr failure_;
  int64_t number_ = 0;
  bool is_told_ = false;  // that contexts are cut
};

/// Adds the windows' scores to the answers, which rank 0 has. Collective.
void score_windows(const Windows& windows, TextModel& model, const LoaderSettings& settings,
                   const OpenedCheckpoint& opened, std::vector<Json>& answers) {
  const RankGrid& grid = opened.grid;
  const torch::Tensor score_W2 = at::zeros({windows.size(), 2}, torch::kFloat64);
  EvalLoader loader(windows, settings);
  while (std::optional<Batch> batch = loader.next()) {
    const torch::Tensor window_b = batch->context.sample_b.to(torch::kCPU);
    // Layers that choose at random choose alike in all windows, whatever their neighbours.
    batch->context.sample_b = torch::zeros_like(batch->context.sample_b);
    batch->context.step = opened.manifest.step;
    score_W2.index_copy_(0, window_b, model.label_scores(*batch).to(torch::kCPU));
  }
  grid.throw_if_failed();
  all_reduce(*grid.world, score_W2);
  if (!score_W2.isfinite().all().item<bool>()) {
    throw Error(ExitCode::kNumeric, "the model's logits are not finite");
  }
  if (grid.world->rank() != 0) return;
  const double* score = score_W2.const_data_ptr<double>();
  for (int64_t w = 0; w < windows.size(); ++w, score += 2) {
    Json& answer = answers[windows[w][0].get<size_t>()];
    answer["logprob"] = answer["logprob"].get<double>() + score[0];
    if (score[1] < windows[w][1].get<double>()) answer["greedy"] = false;
  }
}

void score_on_ranks(const ScoreArguments& arguments, const LaunchInfo& launch,
                    const Environment& environment, Communicator& guard, std::ostream& out) {
  OpenedCheckpoint opened = open_checkpoint(arguments.checkpoint, launch, environment, guard);
  Communicator& world = *opened.grid.world;
  const auto source = make_source(opened.recipe, environment);
  const BuiltModel built =
      build_model(opened.recipe, source->shape(), {&opened.grid, opened.grid.device});
  TextModel& model = text_model_of(built, opened.recipe);
  load_model(opened, built);
  LoaderSettings settings = loader_settings(opened.recipe, {source, nullptr}, opened.grid);
  settings.cut.group = 1;  // routing does not depend on other windows
  settings.shape.sequence = model.text_backbone().context_length();
  settings.shape.has_lengths = true;
  LineReader reader{arguments.file, opened, *source, settings.shape.sequence};
  PosixFileSystem files;
  std::optional<OutputFile> file;
  on_rank_zero(world, [&] {
    if (!arguments.out.empty()) file.emplace(files, arguments.out, FileSystem::Mode::kCreate);
    return "";
  });
  for (;;) {
    const Windows windows(on_rank_zero(world, [&] { return reader.next(); }));
    if (windows.size() == 0) return;
    score_windows(windows, model, settings, opened, reader.answers);
    for (const Json& answer : reader.answers) {
      const std::string line = json_text(answer) + "\n";
      file ? file->write(line) : static_cast<void>(out << line);
    }
    out << std::flush;
  }
}

}  // namespace

ExitCode score(const ScoreArguments& arguments, const Environment& environment, std::ostream& out) {
  const LaunchInfo launch = read_launch_info(environment);
  const std::unique_ptr<Communicator> world = make_world(launch);
  return run_on_ranks(*world, [&] {
    score_on_ranks(arguments, launch, environment, *world, out);
    return ExitCode::kOk;
  });
}

}  // namespace shoal
