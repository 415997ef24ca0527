#include "data.h"

#include <algorithm>
#include <cstring>

namespace {

struct TypeRow {
  HcclDataType type;
  const char* name;
  uint64_t size;
  enum NumberClass { kSigned, kUnsigned, kRaw } number_class;
};

const TypeRow kTypes[] = {
    {HCCL_DATA_TYPE_INT8, "int8", 1, TypeRow::kSigned},
    {HCCL_DATA_TYPE_INT16, "int16", 2, TypeRow::kSigned},
    {HCCL_DATA_TYPE_INT32, "int32", 4, TypeRow::kSigned},
    {HCCL_DATA_TYPE_INT64, "int64", 8, TypeRow::kSigned},
    {HCCL_DATA_TYPE_UINT8, "uint8", 1, TypeRow::kUnsigned},
    {HCCL_DATA_TYPE_UINT16, "uint16", 2, TypeRow::kUnsigned},
    {HCCL_DATA_TYPE_UINT32, "uint32", 4, TypeRow::kUnsigned},
    {HCCL_DATA_TYPE_UINT64, "uint64", 8, TypeRow::kUnsigned},
    {HCCL_DATA_TYPE_FP16, "fp16", 2, TypeRow::kSigned},
    {HCCL_DATA_TYPE_BFP16, "bfp16", 2, TypeRow::kSigned},
    {HCCL_DATA_TYPE_FP32, "fp32", 4, TypeRow::kSigned},
    {HCCL_DATA_TYPE_FP64, "fp64", 8, TypeRow::kSigned},
    {HCCL_DATA_TYPE_INT128, "int128", 16, TypeRow::kRaw},
    {HCCL_DATA_TYPE_HIF8, "hif8", 1, TypeRow::kRaw},
    {HCCL_DATA_TYPE_FP8E4M3, "fp8e4m3", 1, TypeRow::kRaw},
    {HCCL_DATA_TYPE_FP8E5M2, "fp8e5m2", 1, TypeRow::kRaw},
    {HCCL_DATA_TYPE_FP8E8M0, "fp8e8m0", 1, TypeRow::kRaw},
};

const char* const kReductions[] = {"sum", "prod", "max", "min"};

const TypeRow& row(HcclDataType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes),
                       [type](const TypeRow& row) { return row.type == type; });
}

// Primes, so that no power of two and no multiple of a rank count is a multiple of a period.
const int kMovedPeriod = 251;
const int kReducedPeriod = 11;

// IEEE half precision of a whole number of at most 11 bits.
uint16_t half(int value) {
  if (value == 0) return 0;
  const unsigned magnitude = static_cast<unsigned>(value < 0 ? -value : value);
  int exponent = 0;
  while (magnitude >> (exponent + 1) != 0) ++exponent;
  const unsigned fraction = (magnitude << (10 - exponent)) & 0x3FF;
  return static_cast<uint16_t>((value < 0 ? 0x8000U : 0U) |
                               (static_cast<unsigned>(exponent + 15) << 10) | fraction);
}

template <class T>
void put(T value, unsigned char* to) {
  std::memcpy(to, &value, sizeof value);
}

void encode(HcclDataType type, int value, unsigned char* to) {
  if (type == HCCL_DATA_TYPE_FP16) {
    put(half(value), to);
  } else if (type == HCCL_DATA_TYPE_BFP16) {
    const float exact = static_cast<float>(value);  // a number of at most 8 bits
    uint32_t bits;
    std::memcpy(&bits, &exact, sizeof bits);
    put(static_cast<uint16_t>(bits >> 16), to);
  } else if (type == HCCL_DATA_TYPE_FP32) {
    put(static_cast<float>(value), to);
  } else if (type == HCCL_DATA_TYPE_FP64) {
    put(static_cast<double>(value), to);
  } else if (size_of(type) == 16) {
    put(static_cast<int64_t>(value), to);
    put(~static_cast<int64_t>(value), to + 8);
  } else {
    const int64_t wide = value;  // little-endian: the low bytes are the narrower number
    std::memcpy(to, &wide, size_of(type));
  }
}

int value_to_reduce(HcclDataType type, HcclReduceOp reduction, uint32_t rank, int i) {
  if (reduction == HCCL_REDUCE_PROD) {
    return (i + static_cast<int>(rank)) % kReducedPeriod < 3 ? 2 : 1;
  }
  const int value = (i * 7 + static_cast<int>(rank) * 5) % kReducedPeriod;
  return row(type).number_class == TypeRow::kSigned ? value - 5 : value;
}

int combine(HcclReduceOp reduction, int a, int b) {
  switch (reduction) {
    case HCCL_REDUCE_PROD:
      return a * b;
    case HCCL_REDUCE_MAX:
      return std::max(a, b);
    case HCCL_REDUCE_MIN:
      return std::min(a, b);
    default:
      return a + b;
  }
}

}  // namespace

const std::vector<HcclDataType>& all_types() {
  static const std::vector<HcclDataType> types = [] {
    std::vector<HcclDataType> list;
    for (const TypeRow& row : kTypes) list.push_back(row.type);
    return list;
  }();
  return types;
}

const char* name_of(HcclDataType type) { return row(type).name; }
const char* name_of(HcclReduceOp reduction) { return kReductions[reduction]; }
uint64_t size_of(HcclDataType type) { return row(type).size; }
bool can_be_reduced(HcclDataType type) { return row(type).number_class != TypeRow::kRaw; }

bool type_by_name(const std::string& name, HcclDataType* type) {
  for (const TypeRow& row : kTypes) {
    if (name == row.name) {
      *type = row.type;
      return true;
    }
  }
  return false;
}

Data::Data(HcclDataType type, const std::vector<int>& values)
    : element_(size_of(type)), period_(values.size()), twice_(2 * values.size() * element_) {
  for (uint64_t i = 0; i < 2 * period_; ++i) {
    encode(type, values[i % period_], &twice_[i * element_]);
  }
}

Data Data::moved(HcclDataType type, uint32_t rank) {
  std::vector<int> values(kMovedPeriod);
  for (int i = 0; i < kMovedPeriod; ++i) {
    values[i] = (i + 31 * static_cast<int>(rank)) % kMovedPeriod;
    if (row(type).number_class == TypeRow::kSigned) values[i] -= kMovedPeriod / 2;
  }
  return Data(type, values);
}

Data Data::to_reduce(HcclDataType type, HcclReduceOp reduction, uint32_t rank) {
  std::vector<int> values(kReducedPeriod);
  for (int i = 0; i < kReducedPeriod; ++i) values[i] = value_to_reduce(type, reduction, rank, i);
  return Data(type, values);
}

Data Data::reduced(HcclDataType type, HcclReduceOp reduction, uint32_t ranks) {
  std::vector<int> values(kReducedPeriod);
  for (int i = 0; i < kReducedPeriod; ++i) {
    values[i] = value_to_reduce(type, reduction, 0, i);
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      values[i] = combine(reduction, values[i], value_to_reduce(type, reduction, rank, i));
    }
  }
  return Data(type, values);
}

void Data::write(void* memory, uint64_t first, uint64_t count) const {
  auto* to = static_cast<unsigned char*>(memory);
  const unsigned char* piece = &twice_[first % period_ * element_];
  for (uint64_t done = 0; done < count; done += period_) {
    std::memcpy(to + done * element_, piece, std::min(period_, count - done) * element_);
  }
}

bool Data::matches(const void* memory, uint64_t first, uint64_t count, uint64_t* wrong) const {
  const auto* from = static_cast<const unsigned char*>(memory);
  const unsigned char* piece = &twice_[first % period_ * element_];
  for (uint64_t done = 0; done < count; done += period_) {
    const uint64_t length = std::min(period_, count - done);
    if (std::memcmp(from + done * element_, piece, length * element_) == 0) continue;
    for (uint64_t i = 0; i < length; ++i) {
      if (std::memcmp(from + (done + i) * element_, piece + i * element_, element_) != 0) {
        *wrong = done + i;
        return false;
      }
    }
  }
  return true;
}
