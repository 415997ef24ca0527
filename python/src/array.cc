#include "array.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <cstring>
#include <optional>
#include <vector>

namespace hccl::python {
namespace {

static_assert(std::endian::native == std::endian::little);

// A description of an array that has not been checked yet.
struct Found {
  nb::object owner;
  void* data = nullptr;
  std::uint64_t count = 1;
  std::size_t item_bytes = 0;
  char kind = 0;  // 'i' signed, 'u' unsigned, 'f' float, 't' bool, others in kTypes; 0: unknown
  bool contiguous = true;
  bool read_only = false;
  std::string type;  // the protocol's name of the type
};

struct Type {
  char kind;
  std::size_t bytes;
  HcclDataType value;
  const char* name;
};
constexpr Type kTypes[] = {
    {'i', 1, HCCL_DATA_TYPE_INT8, "int8"},
    {'i', 2, HCCL_DATA_TYPE_INT16, "int16"},
    {'i', 4, HCCL_DATA_TYPE_INT32, "int32"},
    {'i', 8, HCCL_DATA_TYPE_INT64, "int64"},
    {'u', 1, HCCL_DATA_TYPE_UINT8, "uint8"},
    {'u', 2, HCCL_DATA_TYPE_UINT16, "uint16"},
    {'u', 4, HCCL_DATA_TYPE_UINT32, "uint32"},
    {'u', 8, HCCL_DATA_TYPE_UINT64, "uint64"},
    {'f', 2, HCCL_DATA_TYPE_FP16, "float16"},
    {'f', 4, HCCL_DATA_TYPE_FP32, "float32"},
    {'f', 8, HCCL_DATA_TYPE_FP64, "float64"},
    {'t', 1, HCCL_DATA_TYPE_UINT8, "bool"},
    {'b', 2, HCCL_DATA_TYPE_BFP16, "bfloat16"},
    {'3', 1, HCCL_DATA_TYPE_FP8E4M3, "float8_e4m3fn"},
    {'2', 1, HCCL_DATA_TYPE_FP8E5M2, "float8_e5m2"},
    {'0', 1, HCCL_DATA_TYPE_FP8E8M0, "float8_e8m0fnu"},
};

[[noreturn]] void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

// Returns the name of the object's dtype, or `otherwise` if the object has no dtype.
std::string name_of_type(nb::handle object, const std::string& otherwise) {
  return nb::hasattr(object, "dtype") ? text_of(object.attr("dtype")) : otherwise;
}

// Returns whether an array is in C order: the last index moves fastest, without gaps. `unit` is the
// size of an element in the unit of `strides`. Null strides mean C order.
bool in_c_order(const std::int64_t* shape, const std::int64_t* strides, int dimensions,
                std::int64_t unit) {
  if (strides == nullptr) return true;
  std::int64_t expected = unit;
  bool right = true;
  for (int i = dimensions - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) right = false;
    expected *= shape[i];
  }
  return right;
}

char kind_of_name(const std::string& name) {
  for (const Type& type : kTypes) {
    if (name == type.name) return type.kind;
  }
  return 0;
}

char kind_of_format(const char* format) {
  if (format == nullptr) return 'u';
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (*format == 0 || format[1] != 0) return 0;
  if (std::strchr("bhilqn", *format) != nullptr) return 'i';
  if (std::strchr("BHILQN", *format) != nullptr) return 'u';
  if (std::strchr("efd", *format) != nullptr) return 'f';
  if (*format == '?') return 't';
  return 0;
}

std::optional<Found> by_buffer(nb::handle object) {
  if (!PyObject_CheckBuffer(object.ptr())) return std::nullopt;
  PyObject* made = PyMemoryView_FromObject(object.ptr());
  if (made == nullptr) {  // numpy cannot describe its extension types, such as bfloat16, this way
    PyErr_Clear();
    return std::nullopt;
  }
  Found found;
  found.owner = nb::steal(made);
  Py_buffer buffer;  // the memory does not move as long as the view `made` lives
  if (PyObject_GetBuffer(made, &buffer, PyBUF_FULL_RO) != 0) nb::raise_python_error();
  found.data = buffer.buf;
  found.item_bytes = static_cast<std::size_t>(buffer.itemsize);
  if (buffer.itemsize > 0) found.count = static_cast<std::uint64_t>(buffer.len / buffer.itemsize);
  found.kind = kind_of_format(buffer.format);
  found.contiguous = PyBuffer_IsContiguous(&buffer, 'C') != 0;
  found.read_only = buffer.readonly != 0;
  found.type = buffer.format == nullptr ? "B" : buffer.format;
  PyBuffer_Release(&buffer);
  return found;
}

// DLPack's structures (its ABI versions 0 and 1).
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DlManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};
constexpr std::uint64_t kDlReadOnly = 1;
constexpr int kDlCpu = 1;

nb::object dlpack_capsule(nb::handle object) {
  const nb::object method = object.attr("__dlpack__");
  try {
    nb::dict arguments;
    arguments["max_version"] = nb::make_tuple(1, 0);
    return method(**arguments);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return method();  // the object's code is older than version 1
  }
}

// Returns whether the program can assign to the array's items. A capsule older than DLPack's
// version 1 has no flag for read-only memory. JAX's arrays have a __setitem__ that only raises.
bool takes_items(nb::handle object) {
  const std::string module = text_of(object.type().attr("__module__"));
  return nb::hasattr(object, "__setitem__") && !module.starts_with("jax");
}

std::optional<Found> by_dlpack(nb::handle object, const std::string& argument) {
  if (!nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__dlpack_device__")) {
    return std::nullopt;
  }
  const int device = nb::cast<int>(object.attr("__dlpack_device__")()[0]);
  if (device != kDlCpu) {
    raise(PyExc_ValueError, argument + ": is not in the memory of the CPU (DLPack device type " +
                                std::to_string(device) + ")");
  }
  Found found;
  try {
    found.owner = dlpack_capsule(object);
  } catch (nb::python_error& error) {
    // numpy rejects its extension types and read-only arrays here; the array interface works for
    // them.
    if (nb::hasattr(object, "__array_interface__")) return std::nullopt;
    raise(PyExc_ValueError, argument + ": " + text_of(error.value()));
  }
  // The capsule stays unconsumed. It frees the tensor when its last reference is dropped.
  PyObject* capsule = found.owner.ptr();
  const DlTensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed =
        static_cast<const DlManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->major != 1) raise(PyExc_TypeError, argument + ": is of a newer DLPack version");
    tensor = &managed->tensor;
    found.read_only = (managed->flags & kDlReadOnly) != 0;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor = static_cast<const DlTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    found.read_only = !takes_items(object);
  } else {
    raise(PyExc_TypeError, argument + ": its __dlpack__ does not give a DLPack capsule");
  }
  found.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  for (int i = 0; i < tensor->dimensions; ++i) {
    found.count *= static_cast<std::uint64_t>(tensor->shape[i]);
  }
  found.item_bytes = tensor->type_bits / 8U;
  constexpr char kKinds[] = {'i', 'u', 'f', 0, 'b', 0, 't', 0, 0, 0, '3', 0, '2', 0, '0'};
  if (tensor->type_code < sizeof kKinds && tensor->type_lanes == 1) {
    found.kind = kKinds[tensor->type_code];
  }
  found.contiguous = in_c_order(tensor->shape, tensor->strides, tensor->dimensions, 1);
  found.type = "code " + std::to_string(tensor->type_code);
  return found;
}

std::optional<Found> by_array_interface(nb::handle object) {
  if (!nb::hasattr(object, "__array_interface__")) return std::nullopt;
  const auto about = nb::cast<nb::dict>(object.attr("__array_interface__"));
  if (!about.contains("data") || about["data"].is_none()) return std::nullopt;
  Found found;
  found.owner = nb::borrow(object);
  const auto data = nb::cast<nb::tuple>(about["data"]);
  found.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  found.read_only = nb::cast<bool>(data[1]);
  const auto shape = nb::cast<std::vector<std::int64_t>>(about["shape"]);
  for (const std::int64_t length : shape) found.count *= static_cast<std::uint64_t>(length);
  const auto type = nb::cast<std::string>(about["typestr"]);  // such as "<f4"
  if (type.size() < 3) return std::nullopt;
  found.type = type;
  found.item_bytes = std::strtoul(type.c_str() + 2, nullptr, 10);
  if (type[0] != '>' && (type[1] == 'i' || type[1] == 'u' || type[1] == 'f')) found.kind = type[1];
  if (type[1] == 'b') found.kind = 't';
  if (type == "<V2" || type == "<V1" || type == "<f1") {  // of the package ml_dtypes
    found.kind = kind_of_name(name_of_type(object, type));
  }
  if (about.contains("strides") && !about["strides"].is_none()) {
    const auto strides = nb::cast<std::vector<std::int64_t>>(about["strides"]);
    found.contiguous = strides.size() == shape.size() &&
                       in_c_order(shape.data(), strides.data(), static_cast<int>(shape.size()),
                                  static_cast<std::int64_t>(found.item_bytes));
  }
  return found;
}

}  // namespace

Array array_of(nb::handle object, const std::string& argument, Access access) {
  std::optional<Found> found = by_buffer(object);
  if (!found) found = by_dlpack(object, argument);
  if (!found) found = by_array_interface(object);
  if (!found) {
    raise(PyExc_TypeError,
          argument + ": expected an array (buffer protocol, DLPack or __array_interface__), not " +
              text_of(object.type().attr("__name__")));
  }
  Array array;
  for (const Type& type : kTypes) {
    if (type.kind == found->kind && type.bytes == found->item_bytes) {
      array.type = type.value;
      array.type_name = type.name;
    }
  }
  if (array.type == HCCL_DATA_TYPE_RESERVED) {
    raise(PyExc_TypeError, argument + ": the element type " + name_of_type(object, found->type) +
                               " is not supported");
  }
  if (!found->contiguous) {
    raise(PyExc_ValueError, argument + ": is not contiguous (C order); pass a contiguous copy");
  }
  if (access == Access::kWrite && found->read_only) {
    raise(PyExc_ValueError, argument + ": is read-only, but is to be written");
  }
  array.owner = std::move(found->owner);
  array.data = found->data;
  array.count = found->count;
  array.item_bytes = found->item_bytes;
  return array;
}

}  // namespace hccl::python
