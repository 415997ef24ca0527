// Whether a sanitizer has instrumented this build. Instrumented code takes ten times as long, so
// some tests try fewer sizes there. A test with the label `once` tries all of them under the
// address sanitizer. The thread sanitizer only needs each way in which threads meet.
#pragma once

namespace hccl::testing {

#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = kThreadSanitizer;
#endif

}  // namespace hccl::testing
