#include <memory>
#include <tuple>

#include "models/backbone.h"
#include "moe/moe_layer.h"
#include "runtime/module/linear.h"
#include "runtime/module/products.h"

// b images on this rank  D width
namespace shoal {
namespace {

/// A linear layer over the whole image and, if there are any, experts beside its output.
class SingleRowBackbone final : public Backbone, public CountsProducts {
 public:
  struct Options {
    int64_t width = 8;
    std::optional<MoeOptions> moe;

    static constexpr auto fields() {
      return std::tuple{field("width", &Options::width, "hidden size", in_range(1, 4096)),
                        field("moe", &Options::moe, "the experts", unset_word("none"))};
    }
  };
  static constexpr Sketch kSketch{.task = "stripes_task", .lines = "  width: 8\n"};

  SingleRowBackbone(const Options& options, const Context& context) : width_(options.width) {
    const ImageShape image = require_images(context.data, "model.backbone", "single_row");
    const ModelContext& build = context.build;
    in_ = register_module("in", Linear(image.bytes(), width_, build.tensor_options));
    if (!options.moe) return;
    moe_ = register_module(
        "moe", std::make_shared<MoeLayer>(*options.moe, width_, build.prefix + "moe", build));
  }
  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor h_bD = in_->forward(input.image_bCHW.flatten(1)).tanh();
    if (moe_ == nullptr) return {.pooled_bD = h_bD};
    MoeOutput experts = moe_->forward(h_bD.unsqueeze(1), step);
    return {.pooled_bD = h_bD + experts.y_BRD.squeeze(1),
            .auxiliary_loss = experts.auxiliary_loss,
            .moe = {experts.stats}};
  }
  int64_t feature_width() const override { return width_; }
  void list_products(double rows, ProductList& list) const override {
    list.visit_parts(*this, rows);
  }

 private:
  int64_t width_;
  Linear in_{nullptr};
  std::shared_ptr<MoeLayer> moe_;
};

const Registration<Backbone, SingleRowBackbone> registered_single_row_backbone{"single_row",
                                                                               "for this test"};

}  // namespace
}  // namespace shoal
