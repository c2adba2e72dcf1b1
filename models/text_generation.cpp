#include "models/text_generation.h"

#include <ATen/TensorIndexing.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "runtime/random/random_stream.h"

// b sequences on this rank  S tokens  D features  V vocabulary
namespace shoal {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

/// Sequences decoded together on this rank; may be none.
class Decoding {
 public:
  Decoding(TextModel& model, const GenerationOptions& options, const OnToken& on_token,
           torch::Device device)
      : model_(model),
        options_(options),
        on_token_(on_token),
        device_(device),
        draws_({options.seed, Purpose::kGeneration, 0, 0}) {}

  /// Computes prompts [first, last) of at most `longest` tokens, and samples a token for each.
  void prefill(const Prompts& prompts, int64_t first, int64_t last, int64_t longest) {
    first_ = first;
    rows_.assign(static_cast<size_t>(last - first), Row{});
    const torch::Tensor token_bS = torch::zeros({last - first, longest}, torch::kInt64);
    const torch::Tensor end_b = torch::zeros({last - first}, torch::kInt64);
    for (int64_t b = 0; b < last - first; ++b) {
      const std::vector<int64_t>& prompt = prompts[static_cast<size_t>(first + b)];
      const auto length = std::ssize(prompt);
      std::copy(prompt.begin(), prompt.end(), token_bS.mutable_data_ptr<int64_t>() + b * longest);
      rows_[static_cast<size_t>(b)].length = length;
      end_b[b] = length - 1;
    }
    CausalBackbone& backbone = model_.text_backbone();
    cache_ = backbone.make_cache(
        last - first, std::min(backbone.context_length(), longest + options_.max_tokens));
    std::vector<int64_t> count_b;
    for (const Row& row : rows_) count_b.push_back(row.length);
    const torch::Tensor feature_bSD = decode({token_bS, count_b});
    const torch::Tensor row_b = torch::arange(last - first, torch::kInt64);
    choose(feature_bSD.index({row_b.to(device_), end_b.to(device_)}));
  }

  bool is_running() const {
    return std::ranges::any_of(rows_, [](const Row& row) { return row.is_running; });
  }

  /// Computes the last token of each unfinished text, and samples the next one.
  void step() {
    const torch::Tensor token_b1 = torch::zeros({std::ssize(rows_), 1}, torch::kInt64);
    for (size_t b = 0; b < rows_.size(); ++b) {
      if (rows_[b].is_running) {
        token_b1.mutable_data_ptr<int64_t>()[b] = rows_[b].text.tokens.back();
      }
    }
    std::vector<int64_t> count_b;
    for (const Row& row : rows_) count_b.push_back(row.is_running ? 1 : 0);
    const torch::Tensor feature_b1D = decode({token_b1, count_b});
    choose(feature_b1D.select(1, 0));
  }

  const GeneratedText& text(int64_t b) const { return rows_[static_cast<size_t>(b)].text; }

 private:
  struct Row {
    GeneratedText text;
    int64_t length = 0;  ///< tokens, the prompt's included
    bool is_running = true;
  };

  torch::Tensor decode(NewTokens tokens) {
    StepContext step;
    step.seed = options_.model_seed;
    step.sample_b =
        torch::arange(first_, first_ + tokens.token_bS.size(0), torch::kInt64).to(device_);
    step.samples_per_group = 1;
    tokens.token_bS = tokens.token_bS.to(device_);
    return model_.text_backbone().decode(tokens, cache_, step);
  }

  void choose(const torch::Tensor& last_bD) {
    const torch::Tensor logit_bV =
        model_.next_logits(last_bD).to(torch::kCPU, torch::kFloat64).contiguous();
    const auto vocabulary = static_cast<size_t>(logit_bV.size(1));
    const double* logits = logit_bV.const_data_ptr<double>();
    for (size_t b = 0; b < rows_.size(); ++b) {
      if (rows_[b].is_running) add_token(b, {logits + b * vocabulary, vocabulary});
    }
  }

  void add_token(size_t b, std::span<const double> logit_V) {
    Row& row = rows_[b];
    const int64_t index = first_ + static_cast<int64_t>(b);
    const double uniform =
        draws_.uniform(static_cast<uint64_t>(index), static_cast<uint32_t>(row.length));
    const int64_t token = choose_token(logit_V, options_.sampling, uniform);
    const auto end = [&row](StopReason reason) {
      row.text.stop = reason;
      row.is_running = false;
    };
    if (token == options_.end_of_text) return end(StopReason::kEndOfText);
    row.text.tokens.push_back(token);
    ++row.length;
    if (on_token_) on_token_(index, token);
    if (std::ssize(row.text.tokens) == options_.max_tokens) {
      end(StopReason::kTokens);
    } else if (row.length == model_.text_backbone().context_length()) {
      end(StopReason::kContext);
    }
  }

  TextModel& model_;
  const GenerationOptions& options_;
  const OnToken& on_token_;
  torch::Device device_;
  ScalarDraws draws_;
  int64_t first_ = 0;
  std::vector<Row> rows_;
  KeyValueCache cache_;
};

/// True if any rank has unfinished sequences, so that all ranks call the model equally often.
bool runs_anywhere(bool runs_here, Communicator& world) {
  if (world.size() == 1) return runs_here;
  const torch::Tensor count = torch::full({1}, runs_here ? 1 : 0, torch::kInt64);
  all_reduce(world, count);
  return count.item<int64_t>() > 0;
}

/// This rank's share [own_first, own_end) of the sequences [first, end) of all ranks.
struct BatchShare {
  int64_t first, end, own_first, own_end;

  /// Rank 0 gets the larger share, and a single sequence.
  BatchShare(int64_t first, int64_t end, const Communicator& world) : first(first), end(end) {
    const auto begin_of = [&](int64_t rank) {
      return first + ((end - first) * rank + world.size() - 1) / world.size();
    };
    own_first = begin_of(world.rank());
    own_end = begin_of(world.rank() + 1);
  }
};

/// The texts of all ranks.
std::vector<GeneratedText> gather(const Decoding& own, const BatchShare& batch, int64_t max_tokens,
                                  Communicator& world) {
  const int64_t count = batch.end - batch.first;
  const torch::Tensor all = torch::zeros({count, 2 + max_tokens}, torch::kInt64);
  for (int64_t i = batch.own_first; i < batch.own_end; ++i) {
    const GeneratedText& text = own.text(i - batch.own_first);
    int64_t* row = all.mutable_data_ptr<int64_t>() + (i - batch.first) * all.size(1);
    row[0] = static_cast<int64_t>(text.stop);
    row[1] = std::ssize(text.tokens);
    std::copy(text.tokens.begin(), text.tokens.end(), row + 2);
  }
  all_reduce(world, all);
  std::vector<GeneratedText> texts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* row = all.const_data_ptr<int64_t>() + i * all.size(1);
    texts.push_back({{row + 2, row + 2 + row[1]}, static_cast<StopReason>(row[0])});
  }
  return texts;
}

}  // namespace

std::vector<GeneratedText> generate_text(TextModel& model, const Prompts& prompts,
                                         const GenerationOptions& options, RankGrid& grid,
                                         const OnToken& on_token) {
  const c10::InferenceMode inference;
  const int64_t context = model.text_backbone().context_length();
  for (const std::vector<int64_t>& prompt : prompts) {
    TORCH_CHECK(!prompt.empty() && std::ssize(prompt) < context, "a prompt of ", prompt.size(),
                " tokens, expected 1 to ", context - 1);
  }
  Communicator& world = *grid.world;
  const auto num_prompts = std::ssize(prompts);
  std::vector<GeneratedText> texts;
  for (int64_t first = 0; first < num_prompts; first += options.batch) {
    const BatchShare batch(first, std::min(first + options.batch, num_prompts), world);
    int64_t longest = 0;
    for (int64_t i = first; i < batch.end; ++i) {
      longest = std::max<int64_t>(longest, std::ssize(prompts[static_cast<size_t>(i)]));
    }
    Decoding own(model, options, on_token, grid.device);
    own.prefill(prompts, batch.own_first, batch.own_end, longest);
    while (runs_anywhere(own.is_running(), world)) own.step();
    grid.throw_if_failed();
    for (GeneratedText& text : gather(own, batch, std::min(options.max_tokens, context), world)) {
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

}  // namespace shoal
