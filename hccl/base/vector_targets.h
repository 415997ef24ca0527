// The instruction sets for which Highway compiles a file. Include it before <hwy/foreach_target.h>.
#pragma once

// SVE and RVV are disabled, because vectors without a fixed size cannot be members of structs.
// SSSE3 is disabled, because it is not worth a fifth copy of the code.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
