#include "launch/new_recipe/source_sketches.h"

#include <array>

namespace shoal {
namespace {

constexpr std::array kSources{
    SourceSketch{"shapes", DataKind::kImages, 32, 3, "", "",
                 "  image_size: 32\n"
                 "  classes: 10\n"
                 "  train: {samples: 8192}         # drawn images; no files are needed\n"
                 "  valid: {samples: 1024}\n",
                 ""},
    SourceSketch{"cifar", DataKind::kImages, 32, 3, "${env:CIFAR10}", "data_batch_1.bin, ...",
                 "  train: {files: [data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, "
                 "data_batch_4.bin]}\n"
                 "  valid: {files: [data_batch_5.bin]}   # held out of the training files\n",
                 "  augment: {crop_padding: 4, flip: true}\n"},
    SourceSketch{"image_folder", DataKind::kImages, 224, 3, "images",
                 "train/CLASS/NAME.jpg and val/CLASS/NAME.jpg",
                 "  classes: 1000                  # folders of each split\n"
                 "  image_size: 224\n"
                 "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
                 "  valid: {crop: {name: center, resize: 256}}\n",
                 "  augment: {flip: true}\n"},
    SourceSketch{"tar_shards", DataKind::kImages, 224, 3, "shards",
                 "train/*.tar and val/*.tar, as `shoal data pack --classes` makes them",
                 "  classes: 1000\n"
                 "  image_size: 224\n"
                 "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
                 "  valid: {crop: {name: center, resize: 256}}\n",
                 "  augment: {flip: true}\n"},
    SourceSketch{"pathfinder", DataKind::kImages, 32, 1, "", "",
                 "  image_size: 32\n"
                 "  length: 6                      # dashes of the long curves\n"
                 "  distractors: 2                 # short curves\n"
                 "  train: {samples: 8192}         # drawn images; no files are needed\n"
                 "  valid: {samples: 1024}\n",
                 ""},
    SourceSketch{"text", DataKind::kText, 0, 0, "${env:WIKITEXT2}", "the files of both splits",
                 "  tokenizer: {name: bytes}       # or gpt2, with its vocab and merges\n"
                 "  sequence: 256                  # tokens of a sample\n"
                 "  train: {files: [wiki.train.tokens]}   # text, or token caches (*.bin)\n"
                 "  valid: {files: [wiki.valid.tokens]}\n",
                 ""},
    SourceSketch{
        "mqar", DataKind::kAnswers, 0, 0, "", "",
        "  sequence: 64                   # pairs of keys and values, then keys to answer\n"
        "  vocabulary: 128\n"
        "  pairs: 8\n"
        "  train: {samples: 100000}\n"
        "  valid: {samples: 1000}\n",
        ""},
    SourceSketch{"mixed_complexity", DataKind::kAnswers, 0, 0, "", "",
                 "  sequence: 128\n"
                 "  islands: 3                     # expressions of a sample\n",
                 ""},
    SourceSketch{"listops", DataKind::kSequences, 0, 0, "", "",
                 "  min_length: 3\n"
                 "  max_length: 64                 # 2000 in the Long Range Arena\n"
                 "  max_depth: 3\n"
                 "  max_args: 5\n",
                 ""},
    SourceSketch{"pixels", DataKind::kSequences, 0, 0, "", "",
                 "  images: {source: pathfinder, image_size: 20, length: 3, distractors: 1, "
                 "distractor_length: 2}\n",
                 ""},
    SourceSketch{"lra_text", DataKind::kSequences, 0, 0, "lra", "label<TAB>text, a line a sample",
                 "  max_length: 1024               # bytes of each text\n"
                 "  train: {files: [train.tsv]}\n"
                 "  valid: {files: [valid.tsv]}\n",
                 ""},
    SourceSketch{"lra_retrieval", DataKind::kSequences, 0, 0, "lra", "LRA's files",
                 "  max_length: 1024               # bytes of each text\n"
                 "  train: {files: [new_aan_pairs.train.tsv]}\n"
                 "  valid: {files: [new_aan_pairs.eval.tsv]}\n",
                 ""}};

}  // namespace

std::span<const SourceSketch> source_sketches() { return kSources; }

}  // namespace shoal
