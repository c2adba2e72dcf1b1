#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/backbone.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`.
struct NewArguments {
  std::string backbone;
  std::optional<int64_t> experts = {};  ///< of a layer; default: 0, unless it must have some
  std::string data = {};                ///< a data source; default: shapes, or text
  std::string path = {};                ///< data.path; default: the environment's, or a dummy
};

/// A member of Base that has a sketch.
template <class Base>
struct Sketched {
  const std::string& name;
  const typename Base::Sketch& sketch;
};

/// The parts of a first recipe.
struct RecipePlan {
  Sketched<Backbone> backbone;
  Sketched<DataSource> source;
  int64_t experts;   ///< per layer; 0: none
  std::string path;  ///< data.path; "": the source's default

  bool is_of_images() const { return source.sketch.image.has_value(); }
  bool has_large_images() const { return is_of_images() && source.sketch.image->height > 64; }
  bool is_denoiser() const { return backbone.sketch.task == "denoise"; }
  /// Whether it has experts that its backbone can do without.
  bool adds_experts() const {
    return experts > 0 && backbone.sketch.experts == Backbone::Sketch::Experts::kMay;
  }
  std::string task() const;
  /// Name of the run, `gpt2_text_moe`.
  std::string name() const;
};

/// Throws Error (exit 2) as new_recipe does.
RecipePlan plan_recipe(const NewArguments& arguments);

/// The values of --backbone, and of --data: all of them, or those that go with a backbone.
std::vector<std::string> new_recipe_backbones();
std::vector<std::string> new_recipe_sources();
std::vector<std::string> new_recipe_sources(const std::string& backbone);

}  // namespace shoal
