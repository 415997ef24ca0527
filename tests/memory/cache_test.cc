// The caching allocator: which blocks it reuses, which ones it frees, and when.
#include "hccl/memory/cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/memory/sizes.h"

namespace hccl::memory {
namespace {

std::shared_ptr<Heap> heap_of(std::size_t bytes) { return Heap::create(bytes).value(); }

TEST(Cache, AFreedBlockIsTheNextOfItsClass) {
  Cache cache(heap_of(64 * kMiB), 64 * kMiB);
  void* const first = cache.allocate(100000).value();
  ASSERT_TRUE(cache.free(first).ok());
  EXPECT_EQ(cache.allocate(99999).value(), first);
  EXPECT_NE(cache.allocate(100000).value(), first);
  EXPECT_EQ(cache.info().reused, 1u);
  EXPECT_EQ(cache.info().fresh, 2u);
}

TEST(Cache, ClassesWasteAnEighthAtMost) {
  for (std::size_t bytes = 1; bytes < 64 * kMiB; bytes += bytes / 37 + 1) {
    const std::size_t size = Cache::class_of(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(size, std::max<std::size_t>(bytes + 63, bytes + bytes / 8)) << bytes;
    ASSERT_EQ(Cache::class_of(size), size);
  }
}

TEST(Cache, KeepsNoMoreThanItsLimitAndDropsTheOldest) {
  const auto heap = heap_of(64 * kMiB);
  Cache cache(heap, 3 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cache.allocate(kMiB).value());
  EXPECT_EQ(heap->used(), 5 * kMiB);
  for (void* each : blocks) ASSERT_TRUE(cache.free(each).ok());
  EXPECT_EQ(cache.info().cached, 3 * kMiB);
  EXPECT_EQ(heap->used(), 3 * kMiB);
  EXPECT_EQ(cache.allocate(kMiB).value(), blocks.back());
  cache.trim();
  EXPECT_EQ(cache.info().cached, 0u);
  EXPECT_EQ(heap->used(), kMiB);
}

TEST(Cache, AFullHeapGetsTheKeptBlocksBackFirst) {
  Cache cache(heap_of(16 * kMiB), 16 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 15; ++i) blocks.push_back(cache.allocate(kMiB).value());
  for (void* each : blocks) ASSERT_TRUE(cache.free(each).ok());
  const auto large = cache.allocate(14 * kMiB);
  ASSERT_TRUE(large.ok()) << large.status().message();
  const auto none = cache.allocate(8 * kMiB);
  EXPECT_EQ(none.status().code(), Code::kOom);
  EXPECT_NE(none.status().message().find("8388608"), std::string::npos) << none.status().message();
}

TEST(Cache, RefusesWhatItDidNotGive) {
  Cache cache(heap_of(8 * kMiB), kMiB);
  void* const block = cache.allocate(64).value();
  EXPECT_EQ(cache.free(static_cast<char*>(block) + 64).code(), Code::kPara);
  EXPECT_TRUE(cache.free(block).ok());
  EXPECT_EQ(cache.free(block).code(), Code::kPara);
  EXPECT_EQ(cache.allocate(0).status().code(), Code::kPara);
  EXPECT_TRUE(cache.free(nullptr).ok());
}

TEST(Cache, ThreadsNeverShareABlock) {
  Cache cache(heap_of(64 * kMiB), 4 * kMiB);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      std::mt19937 random(t);
      std::map<std::byte*, std::size_t> live;
      for (int i = 0; i < 5000; ++i) {
        if (live.size() < 20 && random() % 2 == 0) {
          const std::size_t bytes = 1 + random() % 100000;
          auto* const block = static_cast<std::byte*>(cache.allocate(bytes).value());
          std::memset(block, static_cast<int>(t), bytes);
          ASSERT_TRUE(live.emplace(block, bytes).second);
        } else if (!live.empty()) {
          const auto at = live.begin();
          ASSERT_EQ(at->first[0], static_cast<std::byte>(t));
          ASSERT_EQ(at->first[at->second - 1], static_cast<std::byte>(t));
          ASSERT_TRUE(cache.free(at->first).ok());
          live.erase(at);
        }
      }
      for (const auto& each : live) ASSERT_TRUE(cache.free(each.first).ok());
    });
  }
  for (auto& each : threads) each.join();
  EXPECT_EQ(cache.info().in_use, 0u);
}

}  // namespace
}  // namespace hccl::memory
