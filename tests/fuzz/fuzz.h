// The parts that all targets share: their entry function, a reader for the input, and the report of
// a broken promise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

/// The name is libFuzzer's. Whatever the bytes are, the function must not crash, hang, or allocate
/// much memory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Checks a promise of the parser; if it is broken, prints the promise and ends the process.
#define PROMISE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)

namespace hccl::fuzz {

/// Reads an input from its front; after its end come zeroes.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  template <class T>
    requires std::is_integral_v<T>
  T get() {
    T value{};
    const std::size_t size = std::min(sizeof value, rest_.size());
    if (size != 0) std::memcpy(&value, rest_.data(), size);  // an empty input may have no memory
    rest_.remove_prefix(size);
    return value;
  }
  std::uint8_t byte() { return get<std::uint8_t>(); }
  std::uint32_t below(std::uint32_t bound) { return byte() % bound; }
  /// Takes this many bytes, or all that are left.
  std::string_view bytes(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// Takes a length of 16 bits, then as many bytes.
  std::string_view blob() { return bytes(get<std::uint16_t>()); }
  std::string_view rest() { return bytes(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace hccl::fuzz
