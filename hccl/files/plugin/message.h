// Converts any Protobuf message from and to bytes or JSON text.
#pragma once

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include <exception>
#include <limits>
#include <string>

#include "hccl/files/codecs.h"

namespace hccl::files {

/// The entries of the plugin's table, one in each source file.
Codec<split::Trace> trace_codec();
Codec<select::CostTable> costs_codec();

inline Result<std::string> to_bytes(const google::protobuf::Message& message, Form form) {
  if (form == Form::kBinary) return message.SerializeAsString();
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return Status(Code::kInternal, status.ToString());
  return text;
}

inline Status from_bytes(std::string_view bytes, Form form, google::protobuf::Message& message) {
  // The caller reports the error, so Protobuf must not log it.
  const google::protobuf::LogSilencer silence;
  if (form == Form::kBinary) {
    if (bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()) &&
        message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return {};
    }
    return Status(Code::kPara, std::to_string(bytes.size()) + " bytes are not a message " +
                                   message.GetDescriptor()->full_name());
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // fields are only ever added
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(bytes.data(), bytes.size()), &message, options);
  return status.ok() ? Status() : Status(Code::kPara, status.ToString());
}

/// Passes the result of `make` to `take`. No exception of Protobuf leaves the plugin.
template <class T, class Make>
void give(const Take<T>& take, Make make) {
  Result<T> made = Status();
  try {
    made = make();
  } catch (const std::exception& thrown) {
    made = Status(Code::kMemory, thrown.what());
  }
  take(made);
}

/// Makes the codec of T from the two functions that convert T to its message and back. Error texts
/// say "not a `kName`".
template <class T, class Proto, Proto (*kToProto)(const T&), Result<T> (*kFromProto)(const Proto&),
          const char* kName>
Codec<T> codec() {
  return {sizeof(T),
          [](const T& value, Form form, const Take<std::string>& take) {
            give(take, [&] { return to_bytes(kToProto(value), form); });
          },
          [](std::string_view bytes, Form form, const Take<T>& take) {
            give(take, [&]() -> Result<T> {
              Proto message;
              const Status read = from_bytes(bytes, form, message);
              if (!read.ok()) return read.with_context(std::string("not a ") + kName);
              return kFromProto(message);
            });
          }};
}

}  // namespace hccl::files
