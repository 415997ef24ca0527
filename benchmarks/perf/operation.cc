#include "benchmarks/perf/operation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace hccl_perf {
namespace {

// The iteration to which a value belongs. It is part of the input, so that a result of an earlier
// iteration is wrong.
struct Seed {
  std::uint64_t round;
};
thread_local Seed seed{0};  // the seed of the rank on this thread

std::uint64_t input(const Options& o, int rank, std::uint64_t i, int ranks) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(rank) * 5 + i + i / 7 + seed.round * 3;
  if (o.reduce_op == HCCL_REDUCE_PROD)
    return mixed % static_cast<std::uint64_t>(ranks) == 0 ? 2 : 1;
  // A sum of more values is not exact in a 16-bit type, so some ranks pass 0.
  const bool sums = o.reduce_op == HCCL_REDUCE_SUM;
  const int exact = sums && o.data_type == HCCL_DATA_TYPE_BFP16  ? 256 / 9
                    : sums && o.data_type == HCCL_DATA_TYPE_FP16 ? 2048 / 9
                                                                 : ranks;
  const auto each = static_cast<std::uint64_t>((ranks + exact - 1) / exact);
  return (static_cast<std::uint64_t>(rank) + i) % each == 0 ? mixed % 9 + 1 : 0;
}

std::uint64_t reduced(const Options& o, std::uint64_t i, int ranks) {
  std::uint64_t out = input(o, 0, i, ranks);
  for (int r = 1; r < ranks; ++r) {
    const std::uint64_t v = input(o, r, i, ranks);
    switch (o.reduce_op) {
      case HCCL_REDUCE_PROD:
        out *= v;
        break;
      case HCCL_REDUCE_MAX:
        out = std::max(out, v);
        break;
      case HCCL_REDUCE_MIN:
        out = std::min(out, v);
        break;
      default:
        out += v;
    }
  }
  return out;
}

std::uint64_t whole(std::uint64_t count, int) { return count; }
std::uint64_t block(std::uint64_t count, int ranks) {
  return count / static_cast<std::uint64_t>(ranks);
}
std::uint64_t none(std::uint64_t, int) { return 0; }
double one(int) { return 1; }
double share(int n) { return static_cast<double>(n - 1) / n; }
double twice_share(int n) { return 2.0 * (n - 1) / n; }
std::uint64_t nothing(const Options&, std::uint64_t, std::uint64_t, int, int) { return 0; }

constexpr std::array kOperations{
    Operation{"allreduce", whole, whole, twice_share,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int, HcclComm c) {
                return HcclAllReduce(s, r, n, o.data_type, o.reduce_op, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t, int, int ranks) {
                return reduced(o, i, ranks);
              },
              false, false},
    Operation{"broadcast", whole, whole, one,
              [](const Options& o, void* s, void* r, std::uint64_t n, int rank, int, HcclComm c) {
                const bool root = static_cast<std::uint32_t>(rank) == o.root;
                if (root && s != r) std::memcpy(r, s, n * size_of(o.data_type));
                return HcclBroadcast(r, n, o.data_type, o.root, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t, int, int ranks) {
                return input(o, static_cast<int>(o.root), i, ranks);
              },
              false, false},
    Operation{"reduce_scatter", whole, block, share,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int ranks, HcclComm c) {
                return HcclReduceScatter(s, r, block(n, ranks), o.data_type, o.reduce_op, c,
                                         nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t n, int rank, int ranks) {
                return reduced(o, static_cast<std::uint64_t>(rank) * block(n, ranks) + i, ranks);
              },
              true, false},
    Operation{"allgather", block, whole, share,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int ranks, HcclComm c) {
                return HcclAllGather(s, r, block(n, ranks), o.data_type, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t n, int, int ranks) {
                return input(o, static_cast<int>(i / block(n, ranks)), i % block(n, ranks), ranks);
              },
              true, false},
    Operation{"reduce", whole, whole, one,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int, HcclComm c) {
                return HcclReduce(s, r, n, o.data_type, o.reduce_op, o.root, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t, int, int ranks) {
                return reduced(o, i, ranks);
              },
              false, true},
    Operation{"scatter", whole, block, share,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int ranks, HcclComm c) {
                return HcclScatter(s, r, block(n, ranks), o.data_type, o.root, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t n, int rank, int ranks) {
                return input(o, static_cast<int>(o.root),
                             static_cast<std::uint64_t>(rank) * block(n, ranks) + i, ranks);
              },
              true, false},
    Operation{"alltoall", whole, whole, share,
              [](const Options& o, void* s, void* r, std::uint64_t n, int, int ranks, HcclComm c) {
                return HcclAlltoAll(s, block(n, ranks), o.data_type, r, block(n, ranks),
                                    o.data_type, c, nullptr);
              },
              [](const Options& o, std::uint64_t i, std::uint64_t n, int rank, int ranks) {
                const std::uint64_t b = block(n, ranks);
                return input(o, static_cast<int>(i / b),
                             static_cast<std::uint64_t>(rank) * b + i % b, ranks);
              },
              true, false},
    Operation{"barrier", none, none, one,
              [](const Options&, void*, void*, std::uint64_t, int, int, HcclComm c) {
                return HcclBarrier(c, nullptr);
              },
              nothing, false, false},
    // Even ranks send to their odd neighbours, and the neighbours send back: a ping-pong.
    Operation{
        "sendrecv", whole, whole, one,
        [](const Options& o, void* s, void* r, std::uint64_t n, int rank, int ranks, HcclComm c) {
          const int peer = rank ^ 1;
          if (peer >= ranks) {
            std::memcpy(r, s, n * size_of(o.data_type));
            return HCCL_SUCCESS;
          }
          const auto p = static_cast<std::uint32_t>(peer);
          const auto first = rank < peer ? HcclSend(s, n, o.data_type, p, c, nullptr)
                                         : HcclRecv(r, n, o.data_type, p, c, nullptr);
          if (first != HCCL_SUCCESS) return first;
          return rank < peer ? HcclRecv(r, n, o.data_type, p, c, nullptr)
                             : HcclSend(s, n, o.data_type, p, c, nullptr);
        },
        [](const Options& o, std::uint64_t i, std::uint64_t, int rank, int ranks) {
          return input(o, (rank ^ 1) < ranks ? rank ^ 1 : rank, i, ranks);
        },
        false, false}};

// Converts a whole number to an element type. All values in use are exact in each type.
template <class T>
T as(std::uint64_t value) {
  return static_cast<T>(value);
}
std::uint16_t as_bf16(std::uint64_t value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}
std::uint16_t as_fp16(std::uint64_t value) {
  if (value == 0) return 0;
  const int exponent = 63 - std::countl_zero(value);
  const std::uint64_t fraction = value - (std::uint64_t{1} << exponent);
  const std::uint64_t mantissa =
      exponent <= 10 ? fraction << (10 - exponent) : fraction >> (exponent - 10);
  return static_cast<std::uint16_t>(((exponent + 15) << 10) | static_cast<int>(mantissa));
}

// Calls body(encode), where encode converts a whole number to the element type.
template <class Body>
auto with_type(HcclDataType type, Body body) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_UINT8:
      return body(as<std::uint8_t>);
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_UINT16:
      return body(as<std::uint16_t>);
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_UINT32:
      return body(as<std::uint32_t>);
    case HCCL_DATA_TYPE_FP16:
      return body(as_fp16);
    case HCCL_DATA_TYPE_BFP16:
      return body(as_bf16);
    case HCCL_DATA_TYPE_FP32:
      return body(as<float>);
    case HCCL_DATA_TYPE_FP64:
      return body(as<double>);
    default:
      return body(as<std::uint64_t>);
  }
}

}  // namespace

const Operation& find_operation(const std::string& name) {
  return *std::find_if(kOperations.begin(), kOperations.end(),
                       [&](const Operation& each) { return name == each.name; });
}

void write_input(const Options& options, void* buffer, std::uint64_t elements, int rank, int ranks,
                 int round) {
  seed.round = static_cast<std::uint64_t>(round);
  with_type(options.data_type, [&](auto encode) {
    auto* out = static_cast<decltype(encode(0))*>(buffer);
    // Inputs repeat after `period` elements, so that rewriting takes no longer than a copy.
    const std::uint64_t period =
        7 * (options.reduce_op == HCCL_REDUCE_PROD ? static_cast<std::uint64_t>(ranks) : 9);
    const std::uint64_t first = std::min(elements, period);
    for (std::uint64_t i = 0; i < first; ++i) out[i] = encode(input(options, rank, i, ranks));
    const std::uint64_t tile = std::max<std::uint64_t>(1, 1024 / period) * period;
    for (std::uint64_t done = first; done < elements;) {
      const std::uint64_t more = std::min({done, tile, elements - done});
      std::memcpy(out + done, out, more * sizeof *out);
      done += more;
    }
  });
}

std::uint64_t count_wrong(const Options& options, const Operation& operation, const void* buffer,
                          std::uint64_t begin, std::uint64_t end, std::uint64_t count, int rank,
                          int ranks, int round) {
  seed.round = static_cast<std::uint64_t>(round);
  std::uint64_t wrong = 0;
  with_type(options.data_type, [&](auto encode) {
    const auto* in = static_cast<const decltype(encode(0))*>(buffer);
    for (std::uint64_t i = begin; i < end; ++i) {
      if (!(in[i] == encode(operation.expect(options, i, count, rank, ranks)))) ++wrong;
    }
  });
  return wrong;
}

}  // namespace hccl_perf
