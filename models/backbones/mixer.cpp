#include "models/backbones/mixer.h"

#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"

namespace shoal {

void Mixer::Options::validate(Problems& problems) const {
  check_automatic_width("channel_hidden", channel_hidden, channel_hidden_width(), width, problems);
}

namespace {

const AutomaticValues<Mixer::Options> automatic_mixer_widths(ResolvedOn::kComparison);
const Registration<Backbone, Mixer> registered_mixer{"mixer", "MLP-Mixer"};

}  // namespace
}  // namespace shoal
