// Measures the speed of fold() and copy(), beside the machine's own limits: copies and plain loops,
// with normal and with streaming stores. bytes_per_second counts bytes read and written;
// items_per_second counts result elements.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "hccl/kernels/kernels.h"

// The plain loops show the limits of the machine, so the compiler may use all of its instructions.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HCCL_FOR_THIS_MACHINE \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define HCCL_FOR_THIS_MACHINE
#endif

namespace hccl::kernels {
namespace {

// One size for each cache level, and one size for memory.
constexpr std::int64_t kSizes[] = {8 << 10, 128 << 10, 4 << 20, 64 << 20};

/// Page-aligned memory that has been written. Every 32-bit word is a small number in all types that
/// are measured here.
class Block {
 public:
  explicit Block(std::size_t bytes) : data_(static_cast<std::byte*>(::operator new(bytes, kPage))) {
    std::memset(data_, 0x3C, bytes);
  }
  Block(Block&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block& operator=(Block&&) = delete;
  ~Block() { ::operator delete(data_, kPage); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  static constexpr std::align_val_t kPage{4096};
  std::byte* data_;
};

void count_bytes(benchmark::State& state, std::size_t streams, std::size_t bytes,
                 std::size_t elements) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(streams * bytes));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(elements));
}

// ---- the machine ----

HCCL_FOR_THIS_MACHINE void add_to(float* __restrict a, const float* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] += b[i];
}

HCCL_FOR_THIS_MACHINE void add(float* __restrict c, const float* __restrict a,
                               const float* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

#if defined(__SSE2__)
void add_streaming(float* c, const float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 4) {
    _mm_stream_ps(c + i, _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)));
  }
  _mm_sfence();
}

void copy_streaming(float* c, const float* a, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 4) _mm_stream_ps(c + i, _mm_load_ps(a + i));
  _mm_sfence();
}
#endif

/// Times body(out, a, b, floats), which moves `streams` arrays.
template <class Body>
void machine(benchmark::State& state, std::size_t streams, const Body& body) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Block out(bytes), a(bytes), b(bytes);
  for (auto _ : state) {
    body(out.floats(), a.floats(), b.floats(), bytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, streams, bytes, bytes / sizeof(float));
}

// ---- ours ----

void fold_into(benchmark::State& state, DataType type, ReduceOp op, std::size_t number,
               bool in_place, Store store) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<Block> blocks;
  std::vector<const std::byte*> inputs;
  for (std::size_t i = 0; i < number + (in_place ? 0 : 1); ++i) blocks.emplace_back(bytes);
  for (std::size_t i = 0; i < number; ++i) inputs.push_back(blocks[i].data());
  std::byte* out = blocks[in_place ? 0 : number].data();
  const std::size_t count = bytes / size_of(type);
  for (auto _ : state) {
    fold(type, op, inputs, out, count, store);
    benchmark::ClobberMemory();
  }
  count_bytes(state, number + 1, bytes, count);
}

template <class Body>
void add_bench(const std::string& name, const Body& body) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), body);
  for (const std::int64_t size : kSizes) bench->Arg(size);
}

void add_machine() {
  add_bench("machine_copy", [](benchmark::State& state) {
    machine(state, 2, [](float* out, const float* a, const float*, std::size_t n) {
      std::memcpy(out, a, n * sizeof(float));
    });
  });
  add_bench("machine_a+=b", [](benchmark::State& state) {
    machine(state, 3, [](float*, float* a, const float* b, std::size_t n) { add_to(a, b, n); });
  });
  add_bench("machine_c=a+b", [](benchmark::State& state) { machine(state, 3, add); });
#if defined(__SSE2__)
  add_bench("machine_copy_streaming", [](benchmark::State& state) {
    machine(state, 2, [](float* out, const float* a, const float*, std::size_t n) {
      copy_streaming(out, a, n);
    });
  });
  add_bench("machine_c=a+b_streaming",
            [](benchmark::State& state) { machine(state, 3, add_streaming); });
#endif
}

void add_fold(DataType type, ReduceOp op, std::size_t number, bool in_place,
              Store store = Store::kCached) {
  add_bench(std::string(to_string(type)) + "_" + std::string(to_string(op)) + "_of_" +
                std::to_string(number) + (in_place ? "_in_place" : "") +
                (store == Store::kStream ? "_streaming" : ""),
            [=](benchmark::State& state) { fold_into(state, type, op, number, in_place, store); });
}

void add_ours() {
  for (const Store store : {Store::kCached, Store::kStream}) {
    add_bench(store == Store::kStream ? "copy_streaming" : "copy",
              [store](benchmark::State& state) {
                machine(state, 2, [store](float* out, const float* a, const float*, std::size_t n) {
                  copy(reinterpret_cast<const std::byte*>(a), reinterpret_cast<std::byte*>(out),
                       n * sizeof(float), store);
                });
              });
  }
  constexpr DataType kTypes[] = {DataType::kFp32,    DataType::kBfp16, DataType::kFp16,
                                 DataType::kFp64,    DataType::kInt8,  DataType::kInt16,
                                 DataType::kInt32,   DataType::kInt64, DataType::kFp8E4M3,
                                 DataType::kFp8E5M2, DataType::kInt128};
  for (const DataType type : kTypes) add_fold(type, ReduceOp::kSum, 2, true);
  for (const DataType type : {DataType::kFp32, DataType::kBfp16, DataType::kFp16}) {
    for (const std::size_t number : {2, 3, 4, 6, 8}) add_fold(type, ReduceOp::kSum, number, false);
    add_fold(type, ReduceOp::kSum, 2, false, Store::kStream);
    add_fold(type, ReduceOp::kSum, 4, false, Store::kStream);
  }
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kProd}) {
    add_fold(DataType::kFp32, op, 2, true);
    add_fold(DataType::kInt64, op, 2, true);
  }
}

}  // namespace
}  // namespace hccl::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::AddCustomContext("instruction_set", hccl::kernels::instruction_set());
  hccl::kernels::add_machine();
  hccl::kernels::add_ours();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
