// Ranks as threads of this process, with an exchange in memory.
#include <condition_variable>
#include <mutex>

#include "tests/support/ranks.h"
#include "tests/support/threads.h"

namespace hccl::testing {
namespace {

/// The blobs of one round of the exchange.
class Table {
 public:
  explicit Table(int size) : size_(static_cast<std::size_t>(size)), blobs_(size_) {}

  Result<std::vector<std::string>> exchange(int rank, std::string mine, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    blobs_[static_cast<std::size_t>(rank)] = std::move(mine);
    if (++arrived_ == size_) {
      result_ = blobs_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return result_;
    }
    const auto until = std::chrono::system_clock::now() +
                       std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1));
    if (!changed_.wait_until(lock, until, [&] { return round_ != round; })) {
      --arrived_;
      return Status(Code::kTimeout, "not all ranks came to the exchange");
    }
    return result_;  // the next round needs this rank, too
  }

 private:
  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> blobs_;
  std::vector<std::string> result_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace

void run_ranks(int size, const std::function<void(Rank&)>& body) {
  Table table(size);
  on_threads(size, [&](int r) {
    Rank rank(r, size, [&table, r](std::string mine, Deadline deadline) {
      return table.exchange(r, std::move(mine), deadline);
    });
    body(rank);
  });
}

std::vector<int> possible_sizes() { return {2, 3, 4, 8}; }
bool ranks_are_threads() { return true; }

}  // namespace hccl::testing
