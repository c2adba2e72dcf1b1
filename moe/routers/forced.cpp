#include <ATen/ops/searchsorted.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "moe/routing/recorded_loads.h"
#include "moe/routing/router.h"
#include "runtime/base/error.h"
#include "runtime/device/device_copy.h"
#include "runtime/random/random.h"
#include "runtime/random/random_stream.h"

// T tokens  U units  K choices
namespace shoal {

/// How tokens are spread over units.
enum class ForcedLoad {
  kBalanced,  ///< the same number of tokens to each unit
  kZipf,      ///< unit u gets a share in proportion to 1 / (u + 1)^exponent
  kReplay,    ///< the shares that a run has recorded
  kOne,       ///< all tokens to one unit
};

template <>
inline constexpr std::array kEnumWords<ForcedLoad>{"balanced", "zipf", "replay", "one"};

namespace {

using Shares = std::vector<double>;

/// The chance of each unit to be among a token's k distinct ones: k times its share, but at most 1;
/// what that cuts off goes to the others in proportion, evenly if none of them has a share.
Shares inclusion(const Shares& share_U, int64_t k) {
  Shares chance_U(share_U.size(), 0.0);
  for (bool changed = true; changed;) {
    changed = false;
    double left = static_cast<double>(k), others = 0.0, share_of_others = 0.0;
    for (size_t u = 0; u < share_U.size(); ++u) {
      const bool is_full = chance_U[u] == 1.0;
      left -= is_full ? 1.0 : 0.0;
      others += is_full ? 0.0 : 1.0;
      share_of_others += is_full ? 0.0 : share_U[u];
    }
    for (size_t u = 0; u < share_U.size(); ++u) {
      if (chance_U[u] == 1.0) continue;
      const double chance =
          share_of_others > 0 ? left * share_U[u] / share_of_others : left / others;
      chance_U[u] = std::min(1.0, chance);
      if (chance_U[u] == 1.0) changed = true;
    }
  }
  return chance_U;
}

/// The loads of a layer by step, from a run's experts.jsonl.
std::map<int64_t, Shares> read_loads(const std::string& file, const std::string& layer,
                                     int64_t num_units) {
  const char* hint = "router.file must be the experts.jsonl of a run of the same model";
  std::map<int64_t, Shares> loads;
  for_each_load_record(file, hint, [&](const LoadRecord& record) {
    if (record.layer != layer) return;
    if (static_cast<int64_t>(record.load_U.size()) != num_units) {
      throw DataError(fmt::format("{}:{}: loads of {} units, {} has {}", file, record.line,
                                  record.load_U.size(), layer, num_units),
                      hint);
    }
    loads[record.step] = record.load_U;
  });
  if (loads.empty()) {
    throw DataError(fmt::format("'{}' has no record of layer {}", file, layer), hint);
  }
  return loads;
}

/// Routing that ignores the tokens, for measurements: what a step costs under a given load. Every
/// weight is 1 / k, and the router learns nothing.
class ForcedRouter : public Router {
 public:
  struct Options {
    int64_t k = 2;
    ForcedLoad load = ForcedLoad::kBalanced;
    double exponent = 1.0;
    std::string file;
    std::optional<int64_t> unit;

    static constexpr auto fields() {
      return std::tuple{
          field("k", &Options::k, "units a token is routed to", at_least(1)),
          field("load", &Options::load, "how tokens are spread over units"),
          field("exponent", &Options::exponent, "zipf: 0 is uniform, higher is more skewed",
                at_least(0)),
          field("file", &Options::file,
                "replay: the experts.jsonl of a run whose loads are reproduced", file_path()),
          field("unit", &Options::unit, "one: the unit to which all tokens are routed; auto: 0",
                at_least(0), unset_word("auto"))};
    }
    void validate(Problems& problems) const {
      if ((load == ForcedLoad::kReplay) == file.empty()) {
        problems.add("file", file.empty() ? "must name the experts.jsonl of a run where load is "
                                            "replay"
                                          : "needs load: replay");
      }
      if (unit && load != ForcedLoad::kOne) problems.add("unit", "needs load: one");
      if (load == ForcedLoad::kOne && k != 1) problems.add("k", "must be 1 where load is one");
    }
  };
  ForcedRouter(const Options& options, const Context& context)
      : Router(options.k, context), options_(options), tensor_options_(context.tensor_options) {
    if (options.load == ForcedLoad::kReplay && !context.layer.empty()) {
      loads_ = read_loads(options.file, context.layer, num_units());
    }
    if (options.load == ForcedLoad::kOne) {
      loads_[0].resize(static_cast<size_t>(num_units()));
      const int64_t unit = options.unit.value_or(0);
      if (unit < num_units()) loads_[0][static_cast<size_t>(unit)] = 1.0;
    }
    if (options.load == ForcedLoad::kZipf) {
      for (int64_t u = 1; u <= num_units(); ++u) {
        loads_[0].push_back(std::pow(static_cast<double>(u), -options.exponent));
      }
    }
  }

  Routing route(const torch::Tensor& /*x_TD*/, const TokenContext& context) override {
    Routing routing;
    routing.num_units = num_units();
    routing.group_offsets = context.group_offsets;
    routing.choice_TK = options_.load == ForcedLoad::kBalanced ? balanced(context) : drawn(context);
    routing.unit_TK = routing.choice_TK;
    routing.weight_TK = torch::full(routing.choice_TK.sizes(),
                                    1.0 / static_cast<double>(options_.k), tensor_options_);
    routing.score_TK = routing.weight_TK;
    return routing;
  }

  void check(const std::string& path, Problems& problems) const override {
    Router::check(path, problems);
    if (options_.unit && *options_.unit >= num_units()) {
      problems.add(path + ".unit",
                   fmt::format("units are 0 to {}, got {}", num_units() - 1, *options_.unit));
    }
  }
  bool takes_balance_losses() const override { return false; }
  bool weights_sum_to_one() const override { return true; }
  bool depends_on_other_samples() const override { return options_.load != ForcedLoad::kOne; }
  std::string note() const override {
    return "forced routing is for measurements only, the router learns nothing";
  }

 private:
  /// Neighbouring tokens go round the units.
  torch::Tensor balanced(const TokenContext& context) const {
    const torch::Tensor first_T1 = (token_ids(context) * options_.k).unsqueeze(1);
    return (first_T1 + torch::arange(options_.k, first_T1.options())).remainder(num_units());
  }

  /// Systematic sampling: units lie side by side on a line of length k, each as long as its chance
  /// is high, and a token is routed to those at v, v + 1, ... for its own draw v from (0, 1). As no
  /// unit is longer than 1, they are distinct.
  torch::Tensor drawn(const TokenContext& context) const {
    const Stream stream{context.step.seed, Purpose::kRouting, context.layer,
                        static_cast<uint64_t>(context.step.step)};
    auto load = loads_.upper_bound(context.step.step + 1);  // as logged after this step or before
    if (load != loads_.begin()) --load;
    Shares end_U = inclusion(load->second, options_.k);
    std::partial_sum(end_U.begin(), end_U.end(), end_U.begin());
    const torch::Tensor at_T1 = uniform_rows(stream, token_ids(context), 1, torch::kFloat64);
    const torch::Tensor at_TK = at_T1 + torch::arange(options_.k, at_T1.options());
    const torch::Tensor ends = send_to(torch::tensor(end_U, torch::kFloat64), at_TK.device());
    return at::searchsorted(ends, at_TK.contiguous(), /*out_int32=*/false, /*right=*/true)
        .clamp_max(num_units() - 1);
  }

  Options options_;
  torch::TensorOptions tensor_options_;
  std::map<int64_t, Shares> loads_;
};

const Registration<Router, ForcedRouter> registered_forced_router{
    "forced", "for measurements only: a prescribed load, independent of the tokens"};

}  // namespace
}  // namespace shoal
