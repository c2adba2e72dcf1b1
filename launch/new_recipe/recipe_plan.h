#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/new_recipe/backbone_sketches.h"
#include "launch/new_recipe/new.h"
#include "launch/new_recipe/source_sketches.h"

namespace shoal {

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

}  // namespace shoal
