// Reads and writes values of this library as Protobuf messages, for files. This header does not
// include Protobuf. Only the plugin libhccl_files.so links Protobuf; it is loaded at the first use
// and hides Protobuf's symbols, because frameworks bring another Protobuf into the process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "hccl/base/status.h"

namespace hccl::select {
struct CostTable;
}
namespace hccl::split {
struct Trace;
}

namespace hccl::files {

enum class Form { kBinary, kJson };

/// The caller of encode() or decode() passes this function, which copies the value that the other
/// side made. Library and plugin each free only memory that they allocated, because the plugin
/// keeps the usual allocator even if the program replaces it.
template <class T>
using Take = std::function<void(const Result<T>&)>;

/// Writes and reads one kind of message. Both functions call `take` once before they return.
/// decode: kPara: the bytes are not such a message; kNotSupport: a newer version.
template <class T>
struct Codec {
  std::size_t size;  ///< sizeof(T) in the plugin
  void (*encode)(const T& value, Form form, const Take<std::string>& take);
  void (*decode)(std::string_view bytes, Form form, const Take<T>& take);
};

/// The plugin's table: one entry for each kind of message.
struct Codecs {
  const char* build;  ///< must stay the first member
  Codec<split::Trace> trace;
  Codec<select::CostTable> costs;
};

/// C++ structs pass between library and plugin, so both must have the same version and compiler.
inline constexpr const char* kBuild = HCCL_VERSION_TEXT ", " __VERSION__;

/// Returns the table, which is never freed. The first call loads the plugin from the library's
/// directory, or from `directory` if that is not empty. kNotSupport: the plugin cannot be loaded;
/// the text names the file and the reason. Any thread may call.
Result<const Codecs*> codecs(std::string_view directory = {});

/// A copy that shares no memory with the original.
inline Status copied(const Status& status) {
  return Status(status.code(), std::string(status.message()), status.culprit());
}

template <class T>
Result<const Codec<T>*> codec_of(Codec<T> Codecs::* entry) {
  HCCL_ASSIGN_OR_RETURN(const Codecs* const table, codecs());
  const Codec<T>& codec = table->*entry;
  if (codec.size == sizeof(T)) return &codec;
  return Status(Code::kInternal,
                "libhccl_files.so comes from another build: reinstall both libraries");
}

/// Example: encode(&Codecs::trace, trace, Form::kJson). Fails as codecs() does.
template <class T>
Result<std::string> encode(Codec<T> Codecs::* entry, const T& value, Form form) {
  HCCL_ASSIGN_OR_RETURN(const Codec<T>* const codec, codec_of(entry));
  Result<std::string> bytes = Status(Code::kInternal, "nothing was encoded");
  codec->encode(value, form, [&](const Result<std::string>& made) {
    bytes = made.ok() ? Result<std::string>(made.value()) : copied(made.status());
  });
  return bytes;
}

template <class T>
Result<T> decode(Codec<T> Codecs::* entry, std::string_view bytes, Form form) {
  HCCL_ASSIGN_OR_RETURN(const Codec<T>* const codec, codec_of(entry));
  Result<T> value = Status(Code::kInternal, "nothing was decoded");
  codec->decode(bytes, form, [&](const Result<T>& made) {
    value = made.ok() ? Result<T>(made.value()) : copied(made.status());
  });
  return value;
}

}  // namespace hccl::files

/// The only symbol that the plugin exports.
extern "C" __attribute__((visibility("default"))) const hccl::files::Codecs* hccl_files_codecs();
