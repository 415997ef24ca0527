// Whether a sanitizer has instrumented this build. Instrumented code takes ten times as long, so
// some tests try fewer sizes there: the release build tries all of them, the address sanitizer
// needs each path once, and the thread sanitizer needs each way in which threads meet.
#pragma once

namespace hccl::testing {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

}  // namespace hccl::testing
