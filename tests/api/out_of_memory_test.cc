// Any allocation of a rank may fail: the rank gets a code, the other rank gets an error, and both
// may join again. Needs failing_malloc loaded before the program. HCCL_TEST_FAILURES is the number
// of allocations of each rank that fail in turn (0: all), most of them late ones. Besides these,
// each allocation of leaving fails in turn, where destructors run. HCCL_TEST_FAILURE=RANK:NUMBER
// tries one allocation.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSize = 2;
constexpr std::chrono::seconds kHang{20};
constexpr int kCalledWrongly = 9999;
constexpr long kLeaving = 500;  // more than the allocations of a rank that leaves

void (*fail_allocation)(long) = nullptr;
bool (*has_failed)() = nullptr;

/// The memory that the two ranks of a trial share with the test.
struct Board {
  enum State { kNone, kThere, kFailed };
  struct Meeting {
    std::atomic<int> state{kNone};
    HcclRootInfo info{};
  };
  struct End {
    HcclResult code = HCCL_SUCCESS;
    char text[512] = "";
    bool failed_allocation = false;
    bool nothing_to_join = false;
    char again[512] = "";
  };
  std::array<Meeting, 2> meetings;
  std::atomic<std::uint32_t> over{0};  // ranks that have ended the first part
  std::array<End, kSize> ends;
};

bool eventually(const auto& condition) {
  const auto end = Clock::now() + kHang;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

HcclResult join(Board::Meeting& meeting, std::uint32_t rank, HcclComm* comm) {
  if (rank == 0) {
    const HcclResult made = HcclGetRootInfo(&meeting.info);
    meeting.state = made == HCCL_SUCCESS ? Board::kThere : Board::kFailed;
    if (made != HCCL_SUCCESS) return made;
  }
  // Rank 0 also reports through `meeting` that it has no root info.
  eventually([&] { return meeting.state != Board::kNone; });
  if (meeting.state == Board::kFailed) return HCCL_E_UNAVAIL;
  return HcclCommInitRootInfo(kSize, &meeting.info, rank, comm);
}

HcclResult collectives(HcclComm comm, std::vector<float>& data) {
  float* const at = data.data();
  const std::uint64_t many = data.size() / 2;
  for (const std::uint64_t count : {std::uint64_t{1}, many}) {
    const HcclResult sum =
        HcclAllReduce(at, at, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
    if (sum != HCCL_SUCCESS) return sum;
  }
  const HcclResult all = HcclAllGather(at, at + many, many / 2, HCCL_DATA_TYPE_FP32, comm, nullptr);
  return all != HCCL_SUCCESS ? all : HcclBarrier(comm, nullptr);
}

/// A send and a receive in a group.
HcclResult exchange(HcclComm comm, std::uint32_t rank, std::vector<float>& data) {
  const std::uint64_t many = data.size() / 2;
  float* const at = data.data();
  const HcclResult started = HcclGroupStart();
  if (started != HCCL_SUCCESS) return started;
  const HcclResult sent = HcclSend(at, many, HCCL_DATA_TYPE_FP32, 1 - rank, comm, nullptr);
  const HcclResult received =
      HcclRecv(at + many, many, HCCL_DATA_TYPE_FP32, 1 - rank, comm, nullptr);
  const HcclResult ended = HcclGroupEnd();  // refused if one of the two calls was
  if (sent != HCCL_SUCCESS) return sent;
  return received != HCCL_SUCCESS ? received : ended;
}

HcclResult sub_communicator(HcclComm world, std::uint32_t rank, std::vector<float>& data) {
  std::array<std::uint32_t, kSize> ranks{0, 1};
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm made = nullptr;
  HcclResult result = HcclCreateSubCommConfig(&world, kSize, ranks.data(), 1, rank, &config, &made);
  if (result != HCCL_SUCCESS) return result;
  result = collectives(made, data);
  const HcclResult destroyed = HcclCommDestroy(made);
  return result != HCCL_SUCCESS ? result : destroyed;
}

/// Submits a call. If the submission is refused, the call must not run.
HcclResult background(HcclComm comm) {
  std::atomic<int> calls{0};
  const auto call = [](void* at) {
    ++*static_cast<std::atomic<int>*>(at);
    return HCCL_SUCCESS;
  };
  HcclRequest request = nullptr;
  const HcclResult begun = HcclSubmit(call, comm, false, nullptr, &calls, &request);
  const HcclResult result = begun == HCCL_SUCCESS ? HcclRequestWait(request, 0, nullptr) : begun;
  if (begun == HCCL_SUCCESS) HcclRequestFree(request);
  return calls == (begun == HCCL_SUCCESS ? 1 : 0) ? result
                                                  : static_cast<HcclResult>(kCalledWrongly);
}

/// A short and a long message in each direction. Each request that was made must end.
HcclResult messages(HcclComm comm, std::uint32_t rank, std::vector<float>& data) {
  HcclResult result = HCCL_SUCCESS;
  const auto note_result = [&](HcclResult each) {
    result = result == HCCL_SUCCESS ? each : result;
  };
  std::array<HcclRequest, 4> requests{};
  const std::uint64_t bytes = data.size() * 2;
  char* const at = reinterpret_cast<char*>(data.data());
  for (std::size_t i = 0; i < 2 && result == HCCL_SUCCESS; ++i) {
    const std::uint64_t part = i == 0 ? 4 : bytes - 4;
    const auto tag = static_cast<std::int32_t>(i);
    note_result(HcclIrecv(at + bytes + 4 * i, part, 1 - rank, tag, comm, nullptr, nullptr,
                          &requests[2 * i]));
    if (result != HCCL_SUCCESS) break;
    note_result(HcclIsend(at, part, 1 - rank, tag, comm, nullptr, nullptr, &requests[2 * i + 1]));
  }
  for (const HcclRequest each : requests) {
    if (each == nullptr) continue;
    note_result(HcclRequestWait(each, 0, nullptr));
    note_result(HcclRequestFree(each));
  }
  return result;
}

HcclResult job(Board::Meeting& meeting, std::uint32_t rank, std::vector<float>& data,
               const std::function<void()>& before_leaving = {}) {
  HcclComm comm = nullptr;
  HcclResult result = join(meeting, rank, &comm);
  if (result != HCCL_SUCCESS) return result;
  result = collectives(comm, data);
  if (result == HCCL_SUCCESS) result = exchange(comm, rank, data);
  if (result == HCCL_SUCCESS) result = background(comm);
  if (result == HCCL_SUCCESS) result = messages(comm, rank, data);
  if (result == HCCL_SUCCESS) result = sub_communicator(comm, rank, data);
  if (before_leaving) before_leaving();
  const HcclResult destroyed = HcclCommDestroy(comm);
  return result != HCCL_SUCCESS ? result : destroyed;
}

/// The allocation that fails on a rank, counted from the start of the rank or from the start of
/// leaving.
struct Failure {
  std::uint32_t rank;
  long number;
  bool leaving = false;
};

int run_rank(Board& board, std::uint32_t rank, const Failure& failure) {
  std::vector<float> data(1 << 16);
  Board::End& end = board.ends[rank];
  const auto fail = [&](bool leaving) {
    if (rank == failure.rank && leaving == failure.leaving) fail_allocation(failure.number);
  };
  fail(false);
  end.code = job(board.meetings[0], rank, data, [&] { fail(true); });
  end.nothing_to_join = board.meetings[0].state == Board::kFailed;
  end.failed_allocation = rank == failure.rank && has_failed();
  fail_allocation(-1);
  if (end.code != HCCL_SUCCESS)
    std::snprintf(end.text, sizeof end.text, "%s", HcclGetLastErrorText());
  ++board.over;
  if (!eventually([&] { return board.over == kSize; })) return 2;
  if (job(board.meetings[1], rank, data) == HCCL_SUCCESS) return 0;
  std::snprintf(end.again, sizeof end.again, "%s", HcclGetLastErrorText());
  return 3;
}

/// Runs two ranks; one allocation of one of them fails.
class Trial {
 public:
  explicit Trial(const Failure& failure) : failure_(failure) {
    void* const page =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (page) Board;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      ranks_[rank] = ::fork();
      if (ranks_[rank] == 0) ::_exit(run_rank(*board_, rank, failure));
    }
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    for (const pid_t each : ranks_) {
      if (each == 0) continue;
      ::kill(each, SIGKILL);
      ::waitpid(each, nullptr, 0);
    }
    ::munmap(board_, sizeof(Board));
  }

  /// Waits until both ranks have ended, and checks how. Returns whether the allocation was reached.
  bool judge() {
    bool crashed = false;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      int status = -1;
      const bool ended =
          eventually([&] { return ::waitpid(ranks_[rank], &status, WNOHANG) == ranks_[rank]; });
      const Board::End& end = board_->ends[rank];
      crashed = crashed || !ended || !WIFEXITED(status);
      if (ended) ranks_[rank] = 0;
      EXPECT_TRUE(ended) << where(rank) << " hangs";
      EXPECT_TRUE(!ended || WIFEXITED(status))
          << where(rank) << " crashed by signal " << WTERMSIG(status);
      EXPECT_TRUE(!ended || !WIFEXITED(status) || WEXITSTATUS(status) == 0)
          << where(rank) << " ended with " << WEXITSTATUS(status)
          << ", could not join again: " << end.again;
      EXPECT_NE(end.code, kCalledWrongly) << where(rank) << " ran a call that was refused";
      EXPECT_TRUE(end.code == HCCL_SUCCESS || end.nothing_to_join || *end.text != '\0')
          << where(rank) << " has no text";
      if (std::getenv("HCCL_TEST_VERBOSE") != nullptr && end.code != HCCL_SUCCESS) {
        std::printf("%s: %d: %s\n", where(rank).c_str(), end.code, end.text);
      }
    }
    return crashed || board_->ends[failure_.rank].failed_allocation;
  }

 private:
  std::string where(std::uint32_t rank) const {
    return "allocation " + std::to_string(failure_.number) + " of rank " +
           std::to_string(failure_.rank) + (failure_.leaving ? ", which leaves" : "") + ": rank " +
           std::to_string(rank);
  }

  const Failure failure_;
  Board* board_;
  std::array<pid_t, kSize> ranks_{};
};

/// Tries failures until a rank does not reach one. Returns the number reached. A trial mostly
/// waits, so several run at a time.
std::size_t reached(const std::vector<Failure>& failures) {
  constexpr std::size_t kAtOnce = 6;
  std::vector<std::unique_ptr<Trial>> trials;
  std::size_t number = 0;
  for (const Failure& each : failures) {
    trials.push_back(std::make_unique<Trial>(each));
    if (trials.size() < kAtOnce) continue;
    if (!trials.front()->judge()) return number;
    trials.erase(trials.begin());
    ++number;
  }
  for (const auto& each : trials) number += each->judge() ? 1 : 0;
  return number;
}

/// The approximate number of allocations that a rank makes.
long allocations(std::uint32_t rank) {
  long reached = 0;
  for (long step = 1 << 14; step > 8; step /= 2) {
    if (Trial({rank, reached + step}).judge()) reached += step;
  }
  return reached;
}

TEST(OutOfMemory, AnyAllocationMayFail) {
  fail_allocation = reinterpret_cast<void (*)(long)>(::dlsym(RTLD_DEFAULT, "fail_allocation"));
  has_failed = reinterpret_cast<bool (*)()>(::dlsym(RTLD_DEFAULT, "has_failed"));
  ASSERT_NE(fail_allocation, nullptr) << "LD_PRELOAD has no failing_malloc";
  if (const char* const one = std::getenv("HCCL_TEST_FAILURE"); one != nullptr) {  // RANK:NUMBER
    static_cast<void>(Trial({one[0] == '0' ? 0U : 1U, std::atol(one + 2)}).judge());
    return;
  }
  const char* const wanted = std::getenv("HCCL_TEST_FAILURES");
  const long number = wanted == nullptr ? 24 : std::atol(wanted);
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    const long all = allocations(rank);
    // The first three quarters are OpenSSL's allocations when it is first used.
    const auto step = [&](long at) {
      if (number == 0) return 1L;
      return std::max(1L, at < all * 3 / 4 ? all * 3 / number : all / 3 / number);
    };
    std::printf("rank %u makes about %ld allocations\n", rank, all);
    std::vector<Failure> failures = {{rank, 25}, {rank, 31}, {rank, 50}};  // OpenSSL initializes
    for (long at = 0; at < all; at += step(at)) failures.push_back({rank, at});
    static_cast<void>(reached(failures));
    failures.clear();
    for (long at = 0; at < kLeaving; ++at) failures.push_back({rank, at, true});
    EXPECT_LT(reached(failures), failures.size()) << "not all allocations of leaving were tried";
  }
}

}  // namespace
}  // namespace hccl::testing
