// Defines the two functions of Highway that choose an instruction set, so that Highway's library is
// not needed. Loading that library measures the timer, which took 4.3 ms in each process: more than
// everything else that a process does to join. The rest of Highway is in its headers.
#include "hccl/base/vector_targets.h"

#include <hwy/targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM
#include <sys/auxv.h>
#endif

#include <cstdint>

namespace hwy {
namespace {

#if HWY_ARCH_X86

bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

// Returns whether the system saves registers of these kinds when it changes threads.
bool are_saved(unsigned kinds) {
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // valid if bit_OSXSAVE is set
  return has(low, kinds);
}

// A target is supported if the processor has all extensions that Highway's headers let the compiler
// use for that target.
std::int64_t detect() {
  constexpr unsigned kAvxRegisters = 0x06;     // xmm, ymm
  constexpr unsigned kAvx512Registers = 0xe6;  // xmm, ymm, masks, zmm
  constexpr unsigned kLzcnt = 1U << 5;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  unsigned basic = 0;
  unsigned extended = 0;
  unsigned further = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) basic = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) extended = b;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d) != 0) further = c;

  std::int64_t targets = 0;
  if (!has(basic, bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_PCLMUL | bit_AES)) return targets;
  targets |= HWY_SSE4;
  if (!has(basic, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) || !are_saved(kAvxRegisters) ||
      !has(extended, bit_AVX2 | bit_BMI | bit_BMI2) || !has(further, kLzcnt)) {
    return targets;
  }
  targets |= HWY_AVX2;
  if (are_saved(kAvx512Registers) &&
      has(extended, bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW | bit_AVX512CD)) {
    targets |= HWY_AVX3;
  }
  return targets;
}

#elif HWY_ARCH_ARM

std::int64_t detect() {
  constexpr unsigned long kAes = 1U << 3;  // HWCAP_AES: Highway compiles NEON code with AES
  return (::getauxval(AT_HWCAP) & kAes) != 0 ? HWY_NEON : 0;
}

#else

std::int64_t detect() { return 0; }

#endif

}  // namespace

std::int64_t SupportedTargets() {
  return detect() | HWY_ENABLED_BASELINE;  // called once, at the first dispatch of a function
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
