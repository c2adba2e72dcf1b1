#include "models/backbones/mixer.h"

namespace shoal {
namespace {

const Registration<Backbone, Mixer> registered_mixer{"mixer", "MLP-Mixer"};

}  // namespace
}  // namespace shoal
