#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/backbone.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Arguments of `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`.
struct NewArguments {
  std::string backbone;
  std::optional<int64_t> experts = {};  ///< per layer; default: 0, or 4 if the backbone needs some
  std::string data = {};  ///< default: what reads `path`; without it shapes, or text for tokens
  std::string path = {};  ///< data.path; default: that of the source's sketch
};

/// A registered backbone or data source, and its sketch, from which `shoal new` writes a recipe.
template <class Base>
struct Sketched {
  const std::string& name;
  const typename Base::Sketch& sketch;
};

/// The parts that a first recipe is written from.
struct RecipePlan {
  Sketched<Backbone> backbone;
  Sketched<DataSource> source;
  int64_t experts;                            ///< per layer; 0: none
  std::string path;                           ///< data.path; "": the source's default
  std::vector<std::string> class_names = {};  ///< found in `path`

  bool is_of_images() const { return source.sketch.image.has_value(); }
  bool has_large_images() const { return is_of_images() && source.sketch.image->height > 64; }
  bool is_denoiser() const { return backbone.sketch.task == "denoise"; }
  /// True if the recipe adds experts to a backbone that can do without them.
  bool adds_experts() const {
    return experts > 0 && backbone.sketch.experts == Backbone::Sketch::Experts::kMay;
  }
  std::string task() const;
  /// Name of the run, `gpt2_text_moe`.
  std::string name() const;
};

/// Chooses the parts. Throws Error (exit 2) for unknown names and parts that cannot be combined.
RecipePlan plan_recipe(const NewArguments& arguments);

/// Accepted values of --backbone, and of --data: all, or those that go with a backbone.
std::vector<std::string> new_recipe_backbones();
std::vector<std::string> new_recipe_sources();
std::vector<std::string> new_recipe_sources(const std::string& backbone);

}  // namespace shoal
