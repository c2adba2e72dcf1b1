// Blocks of HSPMN, their decoding and their memory, beside the same blocks with dense attention.
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/machine.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "models/backbones/decoder.h"
#include "models/causal_backbone.h"
#include "models/hspmn/hspmn_block.h"
#include "runtime/options/config_reader.h"

// B sequences  S tokens  C width
namespace shoal::bench::hspmn_bench {
namespace {

constexpr int64_t kVocabulary = 257;
constexpr double kRopeBase = 10000.0;

struct Arguments {
  int64_t width = 512, heads = 8, key_heads = 2, percent = 20;
  std::vector<std::string> cases = {"longest", "block", "decode"};
  std::vector<int64_t> batches = {1, 4}, tokens = {4096, 32768};
  int64_t longest = 262144;
  int64_t context = 32768, decode_batch = 16, depth = 4, new_tokens = 64;
  int64_t threads = 2, rounds = 0;

  int64_t hidden() const { return 4 * width; }
  bool has(const char* name) const { return std::ranges::find(cases, name) != cases.end(); }
};

GateOptions gate_of(const Arguments& arguments) {
  GateOptions gate;
  gate.rate = gate.first_rate = static_cast<double>(arguments.percent) / 100.0;
  gate.anneal_steps = 0;
  return gate;
}

StepContext step_of(int64_t sequences, bool training) {
  StepContext step;
  step.training = training;
  step.sample_b = torch::arange(sequences);
  step.samples_per_group = 1;
  step.samples_in_step = step.samples_in_micro = sequences;
  return step;
}

/// Random weights, and with gates thresholds as a training step sets them.
void prepare(torch::nn::Module& module, const std::function<void()>& training_step) {
  initialise(parameters_of(module), /*seed=*/1);
  initialise(buffers_of(module), /*seed=*/1);
  training_step();
  for (const auto& part : module.modules()) {
    if (auto* gate = dynamic_cast<AfterStep*>(part.get())) gate->after_step();
  }
}

/// One block and the tokens that it is measured with.
class MeasuredBlock {
 public:
  MeasuredBlock(const Arguments& arguments, ContextualStream stream, int64_t sequences,
                int64_t tokens)
      : arguments_(arguments),
        rotation_(rotation_at(torch::arange(tokens), arguments.width / arguments.heads, kRopeBase,
                              torch::kFloat32)),
        position_bS_(torch::arange(tokens).expand({sequences, tokens})),
        block_(make_block(stream, tokens)) {
    prepare(*block_, [&] {
      const int64_t enough = std::min<int64_t>(tokens, 4096);
      const torch::Tensor x = normal({1, enough, arguments.width}, 3);
      const StepContext step = step_of(1, true);
      block_->forward(x, {step,
                          {rotation_.cos.narrow(0, 0, enough), rotation_.sin.narrow(0, 0, enough)},
                          position_bS_.narrow(0, 0, 1).narrow(1, 0, enough)});
    });
  }
  BlockOutput forward(const torch::Tensor& x_bSC, bool training) {
    const StepContext step = step_of(x_bSC.size(0), training);
    return block_->forward(x_bSC, {step, rotation_, position_bS_});
  }
  void backward(const torch::Tensor& x_bSC, const torch::Tensor& upstream_bSC) {
    forward(x_bSC, true).y.backward(upstream_bSC);
    block_->zero_grad();
    x_bSC.mutable_grad().reset();
  }
  /// Multiply-adds, twice, of a forward pass in which these tokens attend.
  double flops(const torch::Tensor& is_open_bS) const {
    const auto C = static_cast<double>(arguments_.width);
    const double key_value_width =
        2.0 * C * static_cast<double>(arguments_.key_heads) / static_cast<double>(arguments_.heads);
    const double mlp = 3.0 * C * static_cast<double>(arguments_.hidden());
    const auto tokens = static_cast<double>(is_open_bS.numel());
    const double open = is_open_bS.sum().item<double>();
    const double keys = ((position_bS_ + 1) * is_open_bS).sum().item<double>();
    return 2.0 * (tokens * (mlp + C * key_value_width) + open * 2.0 * C * C + keys * 2.0 * C);
  }

 private:
  HspmnBlock make_block(ContextualStream stream, int64_t tokens) {
    const Init weight = Init::normal(0.02);
    HspmnBlockImpl::Sizes sizes;
    sizes.place = {.width = arguments_.width,
                   .hidden = arguments_.hidden(),
                   .depth = 1,
                   .kind = MlpKind::kSwiglu,
                   .has_bias = false,
                   .inits = MlpInits{weight, weight, Init::zeros()}};
    sizes.norm = {NormKind::kRms, kDecoderEps, /*bias=*/false};
    sizes.attention = {arguments_.width, arguments_.heads, arguments_.key_heads, weight, weight};
    sizes.context = tokens;
    return HspmnBlock(sizes, stream, gate_of(arguments_), FeedForwardOptions{},
                      BuildContext{&grid_});
  }

  Arguments arguments_;
  RankGrid grid_ = make_rank_grid(make_self_communicator(), 1);
  Rotation rotation_;
  torch::Tensor position_bS_;
  HspmnBlock block_;
};

struct Case {
  int64_t batch, tokens;
  bool has_gradients;
};

/// What a forward pass had to do, and the rate of products.
struct BlockWork {
  double open_share, sparse_flops, dense_flops, flops_per_us;
};

void report_block(const Case& shape, const std::vector<Timing>& timings, const BlockWork& work,
                  Report& report) {
  // A backward pass has twice the products of its forward pass.
  const double passes = shape.has_gradients ? 3.0 : 1.0;
  const double ratio = timings[1].median_us / timings[0].median_us;
  const double share = passes * work.sparse_flops / timings[0].median_us / work.flops_per_us;
  const double dense_share = passes * work.dense_flops / timings[1].median_us / work.flops_per_us;
  std::printf("block  batch %lld  tokens %6lld  %-16s %9.1f ms  dense %9.1f ms  %.2f x\n",
              static_cast<long long>(shape.batch), static_cast<long long>(shape.tokens),
              shape.has_gradients ? "forward_backward" : "forward", timings[0].median_us / 1e3,
              timings[1].median_us / 1e3, ratio);
  std::printf(
      "       attending %.3f  products %.2f x fewer  share of the product rate %.2f, dense "
      "%.2f\n",
      work.open_share, work.dense_flops / work.sparse_flops, share, dense_share);
  std::fflush(stdout);
  report.add({{"case", "block"},
              {"batch", shape.batch},
              {"tokens", shape.tokens},
              {"pass", shape.has_gradients ? "forward_backward" : "forward"},
              {"attending", work.open_share},
              {"sparse_us", timings[0].median_us},
              {"dense_us", timings[1].median_us},
              {"dense_over_sparse", ratio},
              {"flops_ratio", work.dense_flops / work.sparse_flops},
              {"share_of_product_rate", share},
              {"dense_share_of_product_rate", dense_share}});
}

void measure_block(const Arguments& arguments, const Case& shape, double flops_per_us,
                   Report& report) {
  MeasuredBlock sparse(arguments, ContextualStream::kSparse, shape.batch, shape.tokens);
  MeasuredBlock dense(arguments, ContextualStream::kDense, shape.batch, shape.tokens);
  const torch::Tensor x = normal({shape.batch, shape.tokens, arguments.width}, 4);
  const torch::Tensor upstream = normal(x.sizes(), 5);
  torch::Tensor is_open;
  {
    const torch::NoGradGuard no_grad;
    is_open = sparse.forward(x, false).is_open_bS;
  }
  const auto call = [&](MeasuredBlock& block) {
    if (shape.has_gradients) return block.backward(x, upstream);
    const torch::NoGradGuard no_grad;
    block.forward(x, false);
  };
  x.requires_grad_(shape.has_gradients);
  const int64_t rounds = std::max<int64_t>(2, arguments.rounds * 4096 / shape.tokens);
  const std::vector<Timing> timings = time_interleaved(
      {{"sparse", [&] { call(sparse); }}, {"dense", [&] { call(dense); }}}, {rounds, 1, 1});
  report_block(shape, timings,
               {is_open.to(torch::kFloat64).mean().item<double>(), sparse.flops(is_open),
                sparse.flops(torch::ones_like(is_open)), flops_per_us},
               report);
}

void measure_blocks(const Arguments& arguments, double flops_per_us, Report& report) {
  for (const int64_t tokens : arguments.tokens) {
    for (const int64_t batch : arguments.batches) {
      for (const bool has_gradients : {false, true}) {
        measure_block(arguments, {batch, tokens, has_gradients}, flops_per_us, report);
      }
    }
  }
}

/// One sequence as long as a machine's memory should allow. First of all, as what a process has
/// held at most only grows.
void measure_longest(const Arguments& arguments, Report& report) {
  const torch::NoGradGuard no_grad;
  const int64_t before = peak_bytes();
  std::unique_ptr<MeasuredBlock> block;
  {
    const torch::AutoGradMode with_gradients(true);
    block =
        std::make_unique<MeasuredBlock>(arguments, ContextualStream::kSparse, 1, arguments.longest);
  }
  const torch::Tensor x = normal({1, arguments.longest, arguments.width}, 4);
  double share = 0.0;
  const double us = us_of([&] {
    share = block->forward(x, false).is_open_bS.to(torch::kFloat64).mean().item<double>();
  });
  const double gib = static_cast<double>(peak_bytes()) / (1 << 30);
  std::printf("longest  tokens %lld  attending %.3f  %.1f s  most memory held %.2f GiB\n",
              static_cast<long long>(arguments.longest), share, us / 1e6, gib);
  std::fflush(stdout);
  report.add({{"case", "longest"},
              {"tokens", arguments.longest},
              {"attending", share},
              {"sparse_us", us},
              {"peak_bytes", peak_bytes()},
              {"peak_bytes_before", before}});
}

struct BackboneKeys {
  Choice<Backbone> backbone;
  static constexpr auto fields() { return std::tuple{inlined(&BackboneKeys::backbone)}; }
};

/// A model that decodes after a long context.
class Decoder {
 public:
  Decoder(const Arguments& arguments, ContextualStream stream) : arguments_(arguments) {
    const std::string keys = fmt::format(
        "{{backbone: hspmn, width: {}, depth: {}, heads: {}, kv_heads: {}, context: {}, "
        "contextual: {}, gate: {{rate: {}, first_rate: {}, anneal_steps: 0}}}}",
        arguments.width, arguments.depth, arguments.heads, arguments.key_heads, arguments.context,
        enum_name(stream), gate_of(arguments).rate, gate_of(arguments).first_rate);
    const auto loaded = config::load_options_text<BackboneKeys>(keys, "hspmn_bench");
    const DataShape text{.source = "memory",
                         .sequence = arguments.context,
                         .vocabulary = kVocabulary,
                         .token_labels = arguments.context};
    model_ = std::dynamic_pointer_cast<CausalBackbone>(Registry<Backbone>::create(
        loaded.options.backbone, {ModelContext{{&grid_}}, text, Features::kTokens}));
    prepare(*model_, [&] {
      ModelInput input;
      input.token_bS = tokens(4, 1024, 0);
      model_->forward(input, step_of(4, true));
    });
    const torch::NoGradGuard no_grad;
    cache_ = model_->make_cache(arguments.decode_batch, arguments.context);
    for (KeyValueCache::Layer& layer : cache_.layers) {
      for (const torch::Tensor& held : {layer.key_bNPH, layer.value_bNPH}) {
        held.copy_(normal({held.size(1), held.size(2), held.size(3)}, 6));
      }
    }
  }
  /// The last tokens of the context, one by one, with their logits.
  void run() {
    const torch::NoGradGuard no_grad;
    cache_.length_b.assign(cache_.length_b.size(), arguments_.context - arguments_.new_tokens);
    for (int64_t i = 0; i < arguments_.new_tokens; ++i) {
      const torch::Tensor y = model_->decode({tokens(arguments_.decode_batch, 1, i)}, cache_,
                                             step_of(arguments_.decode_batch, false));
      at::linear(y, model_->token_embedding());
    }
    turns_ += 1;
  }
  /// Share of the decoded tokens that attended by their gates, anchors aside.
  double attending() const {
    double count = 0.0, decoded = 0.0;
    for (const KeyValueCache::Layer& layer : cache_.layers) {
      count += layer.gate_b2.select(1, 1).sum().item<double>();
      decoded += static_cast<double>(turns_ * arguments_.new_tokens * arguments_.decode_batch);
    }
    return count / decoded;
  }
  /// Bytes of the keys and values of all sequences.
  double cache_bytes() const {
    const torch::Tensor& key = cache_.layers[0].key_bNPH;
    return 2.0 * static_cast<double>(key.nbytes()) * static_cast<double>(cache_.layers.size());
  }

 private:
  static torch::Tensor tokens(int64_t b, int64_t S, int64_t first) {
    const torch::Tensor draw_bS = normal({b, S}, 100 + static_cast<uint64_t>(first));
    return (draw_bS * 1e5).to(torch::kInt64).remainder(kVocabulary);
  }
  Arguments arguments_;
  RankGrid grid_ = make_rank_grid(make_self_communicator(), 1);
  std::shared_ptr<CausalBackbone> model_;
  KeyValueCache cache_;
  int64_t turns_ = 0;
};

void measure_decoding(const Arguments& arguments, Report& report) {
  Decoder sparse(arguments, ContextualStream::kSparse);
  Decoder dense(arguments, ContextualStream::kDense);
  const int64_t rounds = std::max<int64_t>(3, arguments.rounds / 3);
  const std::vector<Timing> timings = time_interleaved(
      {{"sparse", [&] { sparse.run(); }}, {"dense", [&] { dense.run(); }}}, {rounds, 1, 1});
  const auto new_tokens = static_cast<double>(arguments.new_tokens);
  const double ratio = timings[1].median_us / timings[0].median_us;
  const double rate = dense.cache_bytes() * new_tokens / timings[1].median_us * 1e-3;
  std::printf(
      "decode  batch %lld  context %lld  depth %lld  %8.2f ms per token  dense %8.2f ms  "
      "%.2f x\n        attending %.3f by their gates, dense reads keys and values at %.1f "
      "GB/s\n",
      static_cast<long long>(arguments.decode_batch), static_cast<long long>(arguments.context),
      static_cast<long long>(arguments.depth), timings[0].median_us / new_tokens / 1e3,
      timings[1].median_us / new_tokens / 1e3, ratio, sparse.attending(), rate);
  report.add({{"case", "decode"},
              {"batch", arguments.decode_batch},
              {"context", arguments.context},
              {"depth", arguments.depth},
              {"attending", sparse.attending()},
              {"sparse_us_a_token", timings[0].median_us / new_tokens},
              {"dense_us_a_token", timings[1].median_us / new_tokens},
              {"dense_over_sparse", ratio},
              {"dense_gigabytes_per_second", rate}});
}

int run(int argc, char** argv) {
  Program program("hspmn",
                  "A block of HSPMN whose gate opens a part of the tokens beside the same block in "
                  "which all attend; a model of such blocks that decodes after a long context; and "
                  "the memory of one block for a very long sequence. float32.",
                  9);
  Arguments arguments;
  program.add_choices("--case", arguments.cases, "what to measure; all if left out");
  program.add("--batch", arguments.batches, "sequences at once");
  program.add("--tokens", arguments.tokens, "of a sequence");
  program.add("--width", arguments.width, "of the model");
  program.add("--heads", arguments.heads, "of queries");
  program.add("--key-heads", arguments.key_heads, "of keys and values");
  program.add("--percent", arguments.percent, "of the tokens that attend");
  program.add("--longest", arguments.longest, "tokens of the very long sequence");
  program.add("--context", arguments.context, "tokens of a sequence while decoding");
  program.add("--decode-batch", arguments.decode_batch, "sequences that are decoded");
  program.add("--depth", arguments.depth, "blocks of the model that decodes");
  program.add("--new-tokens", arguments.new_tokens, "tokens decoded in a turn");
  program.add("--threads", arguments.threads, "threads");
  return program.run(argc, argv, [&](Report& report) {
    arguments.rounds = program.rounds();
    set_up(arguments.threads, report);
    if (arguments.has("longest")) measure_longest(arguments, report);
    const double flops_per_us = measure_product_rate(report);
    if (arguments.has("block")) measure_blocks(arguments, flops_per_us, report);
    if (arguments.has("decode")) measure_decoding(arguments, report);
  });
}

const Benchmark kBenchmark("hspmn", run);

}  // namespace
}  // namespace shoal::bench::hspmn_bench
