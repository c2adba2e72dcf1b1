// What a checkpoint's model computes: writes its outputs for given inputs.
//
// Usage: model_outputs CKPT|RUN INPUT.safetensors OUTPUT.safetensors
//        input: the tensor `image` [b, C, H, W], normalised, or `token` [b, S] and, if they
//               differ in length, `length` [b], int64
//        output: the tensor `outputs`, as Task::outputs gives it

#include <iostream>

#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"
#include "launch/model/model_weights.h"
#include "launch/recipe/recipe.h"
#include "launch/weights/load_weights.h"
#include "models/formats/foreign_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/device/real_types.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

Batch read_batch(const ForeignWeights& file, const Recipe& recipe) {
  Batch batch;
  const torch::Dtype dtype = compute_dtype_of(recipe);
  int64_t samples = 0;
  if (const auto* image = file.find("image")) {
    batch.image_bVCHW = file.read(*image).to(dtype).unsqueeze(1);
    samples = batch.image_bVCHW.size(0);
  }
  if (const auto* token = file.find("token")) {
    batch.token_bS = file.read(*token);
    samples = batch.token_bS.size(0);
  }
  if (const auto* length = file.find("length")) batch.length_b = file.read(*length);
  batch.context.seed = static_cast<uint64_t>(recipe.run.seed);
  batch.context.sample_b = torch::arange(samples, torch::kInt64);
  batch.context.samples_per_group = recipe.train.group;
  batch.context.samples_in_step = batch.context.samples_in_micro = samples;
  return batch;
}

void write_outputs(const torch::Tensor& outputs, const std::string& path) {
  std::vector<SafetensorsEntry> entries{
      {"outputs", outputs.scalar_type() == torch::kFloat64 ? Dtype::kF64 : Dtype::kF32,
       outputs.sizes().vec(), 0, 0}};
  PosixFileSystem files;
  OutputFile file(files, path, FileSystem::Mode::kReplace);
  file.write(emit_safetensors_header(entries, {}));
  file.write({static_cast<const char*>(outputs.const_data_ptr()), outputs.nbytes()});
  file.close();
}

void run(const std::string& checkpoint, const std::string& input, const std::string& output) {
  const torch::NoGradGuard no_grad;
  const CheckpointReader reader(resolve_checkpoint(checkpoint));
  const Recipe recipe =
      config::load_options_text<Recipe>(reader.manifest().recipe, "the checkpoint's recipe")
          .options;
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  const BuiltModel model = build_model(recipe, make_source(recipe)->shape(), {&grid, torch::kCPU});
  load_weights(reader.path(), weights_of(model), *grid.world);
  const Batch batch = read_batch(ForeignWeights(input), recipe);
  write_outputs(at_least_float32(model.task->outputs(batch)).contiguous(), output);
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: model_outputs CKPT|RUN INPUT.safetensors OUTPUT.safetensors\n";
    return 2;
  }
  try {
    shoal::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
