// The instruction sets that Highway compiles a file for. Included before <hwy/foreach_target.h>.
#pragma once

// Vectors without a fixed size do not fit in structs. SSSE3 is not worth a fifth copy of the code.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
