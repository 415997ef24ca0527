// The memory of Python arrays, used without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "hccl/hccl_types.h"

namespace hccl::python {

namespace nb = nanobind;

enum class Access { kRead, kWrite };

/// Contiguous elements in the memory of a Python object. The memory is valid while `owner` lives.
struct Array {
  nb::object owner;
  void* data = nullptr;
  std::uint64_t count = 0;
  HcclDataType type = HCCL_DATA_TYPE_RESERVED;
  std::string_view type_name;  // "float32", …; "bool" is uint8 for the library
  std::size_t item_bytes = 0;

  std::byte* at(std::uint64_t index) const {
    return static_cast<std::byte*>(data) + index * item_bytes;
  }
};

/// Returns the memory of an object with the buffer protocol, DLPack (CPU) or __array_interface__.
/// `argument` names the object in errors. TypeError: the object is no array, or HCCL lacks its
/// type. ValueError: the object is not contiguous (C order), or is read-only but will be written.
Array array_of(nb::handle object, const std::string& argument, Access access);

}  // namespace hccl::python
