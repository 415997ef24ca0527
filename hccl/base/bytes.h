// A reader and a writer of little-endian values; the type gives the number of bytes. The reader
// checks every length from a peer before use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace hccl {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

using Key = std::array<std::uint8_t, 32>;   ///< 256-bit secret or message authentication code
using Uuid = std::array<std::uint8_t, 16>;  ///< 128-bit random identity

inline std::string_view view(const Uuid& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

class ByteWriter {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  ByteWriter& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  /// Writes the length (32 bits), then the bytes.
  ByteWriter& put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads the output of ByteWriter. After a read past the end, ok() is false and all reads give
/// zeroes.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T get() {
    T value{};
    if (rest_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  /// Reads a text that put_text() wrote. A text of more than `cap` bytes counts as a read past the
  /// end.
  std::string get_text(std::size_t cap) {
    const auto length = get<std::uint32_t>();
    if (length > cap || length > rest_.size()) {
      fail();
      return {};
    }
    std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return text;
  }
  bool ok() const { return ok_; }
  /// Whether all bytes have been read, and no read went past the end.
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace hccl
