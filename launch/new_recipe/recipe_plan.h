#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/new_recipe/backbone_sketches.h"
#include "launch/new_recipe/source_sketches.h"

namespace shoal {

/// `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`.
struct NewArguments {
  std::string backbone;
  std::optional<int64_t> experts = {};  ///< of a layer; default: 0, unless it must have some
  std::string data = {};                ///< a data source; default: shapes, or text
  std::string path = {};                ///< data.path; default: the environment's, or a dummy
};

/// What a first recipe is made of.
struct RecipePlan {
  const BackboneSketch& backbone;
  const SourceSketch& source;
  int64_t experts;   ///< of a layer; 0: none
  std::string path;  ///< data.path; "": the source's

  bool is_denoiser() const { return backbone.task == "denoise"; }
  std::string task() const;
  /// `gpt2_text_moe`.
  std::string name() const;
};

/// Throws Error (exit 2) as new_recipe does.
RecipePlan plan_recipe(const NewArguments& arguments);

/// The values of --backbone, and of --data: all of them, or those that go with a backbone.
std::vector<std::string> new_recipe_backbones();
std::vector<std::string> new_recipe_sources();
std::vector<std::string> new_recipe_sources(const std::string& backbone);

}  // namespace shoal
