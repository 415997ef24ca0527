// How fast fold() goes, beside the machine's own limits: memcpy, and the plain loop a[i] += b[i].
// bytes_per_second counts what is read and written; items_per_second counts result elements.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "hccl/kernels/kernels.h"

namespace hccl::kernels {
namespace {

constexpr std::int64_t kSizes[] = {16 << 10, 256 << 10, 4 << 20, 64 << 20};

/// Page-aligned, and touched: every 32-bit word a small number in all the types measured here.
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

 private:
  static constexpr std::align_val_t kPage{4096};
  std::byte* data_;
};

void count_bytes(benchmark::State& state, std::size_t streams, std::size_t bytes,
                 std::size_t elements) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(streams * bytes));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(elements));
}

void fold_into(benchmark::State& state, DataType type, ReduceOp op, std::size_t number,
               bool in_place) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<Block> blocks;
  std::vector<const std::byte*> inputs;
  for (std::size_t i = 0; i < number + 1; ++i) {
    blocks.emplace_back(bytes);
    inputs.push_back(blocks.back().data());
  }
  inputs.pop_back();
  std::byte* out = blocks[in_place ? 0 : number].data();
  const std::size_t count = bytes / size_of(type);
  for (auto _ : state) {
    fold(type, op, inputs, out, count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, number + 1, bytes, count);
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Block from(bytes), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2, bytes, bytes / sizeof(float));
}

void plain_loop(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Block left(bytes), right(bytes);
  auto* a = reinterpret_cast<float*>(left.data());
  const auto* b = reinterpret_cast<const float*>(right.data());
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
      a[i] += b[i];
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state, 3, bytes, bytes / sizeof(float));
}

template <class Body>
void add(const std::string& name, const Body& body) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), body);
  for (const std::int64_t size : kSizes) {
    bench->Arg(size);
  }
}

void add_fold(DataType type, ReduceOp op, std::size_t number, bool in_place) {
  add(std::string(words(type)) + "_" + std::string(words(op)) + "_of_" + std::to_string(number) +
          (in_place ? "_in_place" : ""),
      [=](benchmark::State& state) { fold_into(state, type, op, number, in_place); });
}

void add_all() {
  add("memcpy", copy);
  add("plain_loop_fp32", plain_loop);
  for (const DataType type :
       {DataType::kFp32, DataType::kBfp16, DataType::kFp16, DataType::kInt32}) {
    add_fold(type, ReduceOp::kSum, 2, true);
    for (const std::size_t number : {2, 4, 8}) {
      add_fold(type, ReduceOp::kSum, number, false);
    }
  }
  add_fold(DataType::kFp32, ReduceOp::kMax, 2, true);
  for (const DataType type : {DataType::kFp8E4M3, DataType::kFp8E5M2, DataType::kInt128}) {
    add_fold(type, ReduceOp::kSum, 2, true);
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
  hccl::kernels::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
